"""The stager's claim on a dataset: a shared lock on its directory, and a lease file that outlives the process.

While the stager runs, its lease file is locked and says so by the lock alone. When it ends, however it ends, the file
stays with a deadline on the clock that NTP does not move (``CLOCK_BOOTTIME``) and the id of this boot: until then the
dataset is protected for the trainer that is about to start. See "Node cache" in ``docs/format.md``.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shards.cache import CacheLayout
from shards.errors import CacheNotWritableError, UnsupportedEnvironmentError, printable
from shards.files import make_directory
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

_MAX_HOLDERS = 1000


class Lease:
    """A lease file that this process has open and locked.

    Args:
        fd: the file.
        holder: whose lease it is.
        dataset_id: what it protects.
        ttl_seconds: how long the protection goes on after the last write of the record.
    """

    def __init__(self, fd: int, holder: str, dataset_id: str, ttl_seconds: float) -> None:
        self.holder = holder
        self._fd = fd
        self._dataset_id = dataset_id
        self._ttl_seconds = ttl_seconds
        self._is_done = False

    def reserve(self, num_bytes: int) -> None:
        """Write down what this stager is still going to write."""
        self._write(num_bytes)

    def finish(self) -> None:
        """Write down that the dataset is staged."""
        self._is_done = True
        self._write(0)

    def hand_over(self) -> None:
        """Let the protection count from now, whatever came of the staging. Best effort: the end is near already."""
        with suppress(OSError):
            self._write(0)

    def _write(self, reserved_bytes: int) -> None:
        record = LeaseRecord(
            holder=self.holder,
            boot_id=read_boot_id(),
            boottime_deadline_seconds=boottime_seconds() + self._ttl_seconds,
            dataset_id=self._dataset_id,
            reserved_bytes=reserved_bytes,
            is_done=self._is_done,
        )
        data = record.to_json()
        # in place: a rename would leave the lock on a file that has no name any more
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))
        os.fsync(self._fd)


@contextmanager
def hold_lease(layout: CacheLayout, dataset: DatasetDirectory, holder: str, ttl_seconds: float) -> Iterator[Lease]:
    """Protect a dataset for the length of a ``with`` block, and for ``ttl_seconds`` after it.

    Args:
        layout: of the cache.
        dataset: its directory is made when it is not there; leftovers of killed writers go when nobody else uses it.
        holder: whose lease it is; a number is added when another process uses the name just now.
        ttl_seconds: how long the protection outlives the block.

    Raises:
        UnsupportedEnvironmentError: locks do not exclude on this filesystem.
        TimeoutError: the dataset is being evicted and that does not end.
    """
    leases_dir = layout.leases_dir(dataset.dataset_id)
    make_directory(leases_dir)
    if not probe_locking(leases_dir):
        raise UnsupportedEnvironmentError(
            f"locks do not exclude other processes at {printable(leases_dir)}, so jobs could not share this cache: "
            "use a --cache-dir on a local disk (ext4, xfs); Lustre needs the mount option flock; Kata and gVisor need "
            "a volume of the node's own"
        )
    fd, name = _lock_lease_file(layout, dataset.dataset_id, holder)
    try:
        lease = Lease(fd, name, dataset.dataset_id, ttl_seconds)
        with _hold(dataset):
            try:
                yield lease
            finally:
                lease.hand_over()
    finally:
        os.close(fd)


def _hold(dataset: DatasetDirectory) -> HeldDataset:
    """Take the live lease on a dataset's directory, making it first; what an eviction took away is made again."""
    while True:
        dataset.prepare()
        with suppress(FileNotFoundError):
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
        # 0600: who can open the file could lock it, and keep the dataset from being cleaned up
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        path = layout.lease_path(dataset_id, name)
        fd = os.open(path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise CacheNotWritableError(f"{printable(path)} is not a regular file; remove it, then run again")
        try:
            if try_lock(fd):
                return fd, name
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise UnsupportedEnvironmentError(f"{_MAX_HOLDERS} stagers use the name {holder!r} at once; give another --holder")
