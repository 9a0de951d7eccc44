"""The stager's claim on a dataset: a shared lock on its directory, and a lease file that outlives the process.

While the stager runs, its lease file is locked and says so by the lock alone. When it ends, however it ends, the file
stays with a deadline on the clock that NTP does not move (``CLOCK_BOOTTIME``) and the id of this boot: until then the
dataset is protected for the trainer that is about to start. See "Node cache" in ``docs/format.md``.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime

from shards.cache import CacheLayout
from shards.errors import CacheNotWritableError, UnsupportedEnvironmentError, printable
from shards.leases import (
    HeldDataset,
    LeaseRecord,
    boottime_seconds,
    hold_dataset,
    probe_locking,
    read_boot_id,
    try_exclude,
    try_lock,
)
from stager.cache import DatasetDirectory
from stager.connections import Connections
from stager.limits import Retain
from stager.local import is_at, make_cache_directory, open_private
from stager.marks import mark_used

_MAX_HOLDERS = 1000
_SHORTEST_RENEWAL_SECONDS = 1.0
_LONGEST_RENEWAL_SECONDS = 60.0


class Lease:
    """A lease file that this process has open and locked.

    Args:
        fd: the file.
        holder: whose lease it is.
        dataset_id: what it protects.
        ttl_seconds: how long the protection goes on after the last write of the record.
        is_window: whether only what its readers need next is wanted, see "positions" in ``docs/format.md``.
    """

    def __init__(self, fd: int, holder: str, dataset_id: str, ttl_seconds: float, *, is_window: bool = False) -> None:
        self.holder = holder
        self.dataset_id = dataset_id
        self.ttl_seconds = ttl_seconds
        self._is_window = is_window
        self.fd = fd
        """The lease file; the lock belongs to it."""
        self.is_released = False
        """Whether its user is done with the dataset."""
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self.reserved_bytes = 0
        """What this stager may still write beside its partials."""
        self._is_done = False

    def reserve(self, num_bytes: int) -> None:
        """Write down what this stager may still write beside its partials."""
        self.reserved_bytes = num_bytes
        self.renew()

    def finish(self) -> None:
        """Write down that the dataset is staged."""
        self._is_done = True
        self.reserved_bytes = 0
        self.renew()

    def release(self) -> None:
        """Let the protection end with this process: whoever used the dataset has ended."""
        self.ttl_seconds = 0.0
        self.is_released = True

    def renew(self) -> None:
        """Let the protection count from now."""
        record = LeaseRecord(
            holder=self.holder,
            boot_id=read_boot_id(),
            boottime_deadline_seconds=boottime_seconds() + self.ttl_seconds,
            dataset_id=self.dataset_id,
            reserved_bytes=self.reserved_bytes,
            is_done=self._is_done,
            extra={"started_at": self._started_at, **({"is_window": True} if self._is_window else {})},
        )
        data = record.to_json()
        # in place: a rename would leave the lock on a file that has no name any more
        os.pwrite(self.fd, data, 0)
        os.ftruncate(self.fd, len(data))
        os.fsync(self.fd)

    def hand_over(self) -> None:
        """Let the protection count from now, whatever came of the staging. Best effort: the end is near already."""
        self.reserved_bytes = 0
        with suppress(OSError):
            self.renew()


@asynccontextmanager
async def renewing(lease: Lease, layout: CacheLayout, connections: Connections) -> AsyncIterator[None]:
    """Renew a lease again and again while a block runs, so that its protection outlives a process that is killed."""
    # a tenth, so that even a kill costs the trainer little of its time; not so often that a disk would notice
    pause = min(max(lease.ttl_seconds / 10, _SHORTEST_RENEWAL_SECONDS), _LONGEST_RENEWAL_SECONDS)

    async def renew() -> None:
        while True:
            await asyncio.sleep(pause)
            with suppress(OSError):
                await connections.on_commit(_renew, lease, layout)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _renew(lease: Lease, layout: CacheLayout) -> None:
    lease.renew()
    mark_used(layout, lease.dataset_id)


@contextmanager
def hold_lease(
    layout: CacheLayout,
    dataset: DatasetDirectory,
    holder: str,
    ttl_seconds: float,
    retain: Retain = Retain.LRU,
    *,
    is_window: bool = False,
) -> Iterator[Lease]:
    """Protect a dataset for the length of a ``with`` block, and for ``ttl_seconds`` after it.

    Args:
        layout: of the cache.
        dataset: its directory is made when it is not there; leftovers of killed writers go when nobody else uses it.
        holder: whose lease it is; a number is added when another process uses the name just now.
        ttl_seconds: how long the protection outlives the block.
        retain: what becomes of the dataset when nobody protects it any more.
        is_window: whether only what its readers need next is wanted.

    Raises:
        UnsupportedEnvironmentError: locks do not exclude on this filesystem.
        TimeoutError: the dataset is being evicted and that does not end.
    """
    make_cache_directory(layout.all_leases_dir)
    if not probe_locking(layout.all_leases_dir):
        raise UnsupportedEnvironmentError(
            f"locks do not exclude other processes at {printable(layout.all_leases_dir)}, so jobs could not share "
            "this cache: use a --cache-dir on a local disk (ext4, xfs); Lustre needs the mount option flock; Kata and "
            "gVisor need a volume of the node's own"
        )
    fd, name = _lock_lease_file(layout, dataset.dataset_id, holder)
    try:
        lease = Lease(fd, name, dataset.dataset_id, ttl_seconds, is_window=is_window)
        with _hold(dataset):
            lease.renew()
            mark_used(layout, dataset.dataset_id, retain=retain)
            try:
                yield lease
            finally:
                mark_used(layout, dataset.dataset_id, is_released=lease.is_released)
                lease.hand_over()
    finally:
        os.close(fd)


def take_lease(layout: CacheLayout, dataset_id: str, holder: str, ttl_seconds: float) -> Lease:
    """Lock a lease file on a dataset and write it; the lock stays until its descriptor is closed.

    Args:
        layout: of the cache.
        dataset_id: of a dataset that this process holds already.
        holder: whose lease it is; a number is added when another process uses the name just now.
        ttl_seconds: how long the protection outlives the process.

    Raises:
        OSError: the cache cannot be written.
    """
    fd, name = _lock_lease_file(layout, dataset_id, holder)
    lease = Lease(fd, name, dataset_id, ttl_seconds)
    try:
        lease.renew()
    except BaseException:
        os.close(fd)
        raise
    return lease


def release_lease(layout: CacheLayout, dataset_id: str, holder: str) -> bool:
    """End the protection that a process which has ended left behind; False when the process still runs.

    Raises:
        OSError: the cache cannot be written.
    """
    fd = _open_locked(layout, dataset_id, holder)
    if fd is None:
        return False
    try:
        Lease(fd, holder, dataset_id, 0.0).finish()
    finally:
        os.close(fd)
    return True


def _hold(dataset: DatasetDirectory) -> HeldDataset:
    """Take the live lease on a dataset's directory, making it first; what an eviction took away is made again."""
    while True:
        with suppress(FileNotFoundError):
            dataset.prepare()
            alone = try_exclude(dataset.path)
            if alone is not None:
                with alone:
                    dataset.tidy()
            held = hold_dataset(dataset.path)
            dataset.prepare()
            return held


def _lock_lease_file(layout: CacheLayout, dataset_id: str, holder: str) -> tuple[int, str]:
    for number in range(1, _MAX_HOLDERS):
        name = holder if number == 1 else f"{holder}.{number}"
        fd = _open_locked(layout, dataset_id, name)
        if fd is not None:
            return fd, name
    raise UnsupportedEnvironmentError(f"{_MAX_HOLDERS} stagers use the name {holder!r} at once; give another --holder")


def _open_locked(layout: CacheLayout, dataset_id: str, name: str) -> int | None:
    """Open and lock a lease file; None when another process has the lock."""
    path = layout.lease_path(dataset_id, name)
    while True:
        try:
            make_cache_directory(layout.leases_dir(dataset_id))
            fd = open_private(path)
        except FileNotFoundError:  # a cleaning took the empty directory away
            continue
        try:
            _check_regular(fd, path)
            if not try_lock(fd):
                os.close(fd)
                return None
            # between open and lock, a cleaning may have removed the file, whose last stager had ended
            if is_at(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _check_regular(fd: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise CacheNotWritableError(f"{printable(path)} is not a regular file; remove it, then run again")
