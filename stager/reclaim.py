"""Keeps a cache within its limits and clean: one pass over it, under the lock that all passes share.

A pass deletes what was evicted before, leases that protect nothing any more and what writers that were killed left;
then it evicts what has to go. It runs when a stager starts to fetch, when a job releases a dataset, in ``stage gc`` and
in ``stage janitor``. Correctness never depends on its running.
"""

import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from shards.cache import STAGE_DIRECTORY, CacheLayout, dataset_id_of
from shards.errors import FormatError, UnsupportedEnvironmentError
from shards.files import is_partial_name
from shards.leases import LeaseRecord, boottime_seconds, is_live, read_boot_id, try_exclude, try_lock
from shards.live_files import LOCK_SUFFIX, remove_dead_file
from shards.manifest import MANIFEST_NAME
from stager import quarantine
from stager.eviction import empty_trash, evict
from stager.holders import LEASE_SUFFIX, MAX_RECORD_BYTES, read_leases
from stager.limits import SpaceLimits
from stager.local import is_at, open_private, staged_ids
from stager.marks import mark_used
from stager.space import (
    CacheUsage,
    CleaningReport,
    Need,
    Reason,
    Victim,
    choose_for_cleaning,
    choose_for_room,
)
from stager.usage import PARTIAL_SUFFIX, observe_usage

logger = logging.getLogger(__name__)

GC_LOCK_WAIT_SECONDS = 600.0
"""A pass that deletes terabytes takes a while."""

_POLL_SECONDS = 0.05
_KEEP_PROGRESS_SECONDS = 86400.0


class GcLock:
    """The lock under which room is reserved and datasets are evicted; a context manager that lets go of it.

    Args:
        layout: of the cache.
    """

    def __init__(self, layout: CacheLayout) -> None:
        self._fd = open_private(layout.gc_lock_path)

    def try_take(self) -> bool:
        """Take the lock without waiting; tell whether it was got."""
        return try_lock(self._fd)

    def close(self) -> None:
        """Let go."""
        os.close(self._fd)


@contextmanager
def hold_gc_lock(layout: CacheLayout, *, wait_seconds: float = GC_LOCK_WAIT_SECONDS) -> Iterator[None]:
    """Hold the lock of all passes for the length of a ``with`` block.

    Raises:
        TimeoutError: another process has kept it for ``wait_seconds``.
    """
    lock = GcLock(layout)
    try:
        deadline = time.monotonic() + wait_seconds
        while not lock.try_take():
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    errno.ETIMEDOUT,
                    f"another process has kept the lock for {wait_seconds:g} seconds",
                    layout.gc_lock_path,
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        lock.close()


def clean(layout: CacheLayout, limits: SpaceLimits, *, is_dry_run: bool = False) -> CleaningReport:
    """Do one pass: delete leftovers, evict what has to go. Call it with the lock held.

    Raises:
        OSError: the cache cannot be read or written.
    """
    report = CleaningReport(is_dry_run=is_dry_run)
    if is_dry_run:
        report.evicted = list(choose_for_cleaning(observe_usage(layout), limits))
        return report
    sweep(layout, report)
    _evict_until_done(layout, limits, report, choose_for_cleaning)
    return report


def make_room(layout: CacheLayout, limits: SpaceLimits, need: Need, report: CleaningReport) -> CacheUsage:
    """Evict until ``need`` fits; nothing when it never will. Give the usage afterwards. Call it with the lock held."""

    def choose(usage: CacheUsage, limits: SpaceLimits) -> tuple[Victim, ...]:
        return choose_for_room(usage, limits, need)

    return _evict_until_done(layout, limits, report, choose)


def sweep(layout: CacheLayout, report: CleaningReport) -> None:
    """Delete what nobody needs any more, and mark what is in use. Call it with the lock held."""
    report.trash_bytes += empty_trash(layout)
    for token in _names_in(layout.quarantine_dir):
        if quarantine.is_deletable(layout, token) and quarantine.is_expired(layout, token):
            quarantine.delete(layout, token)
    for dataset_id in staged_ids(layout):
        _sweep_dataset(layout, dataset_id, report)
    for name in _names_in(layout.all_leases_dir):
        if dataset_id_of(name) is None:
            continue
        directory = os.path.join(layout.all_leases_dir, name)
        report.num_leases_removed += _remove_stale_leases(directory)
        with suppress(OSError):  # not empty
            os.rmdir(directory)
    _sweep_live_files(layout)


def _sweep_live_files(layout: CacheLayout) -> None:
    """Remove what processes said of themselves that ended long ago, and positions in datasets that are gone."""
    for name in _names_in(layout.metrics_dir):
        path = os.path.join(layout.metrics_dir, name)
        is_ours = name.endswith(".prom") or is_partial_name(name)
        with suppress(OSError):
            if is_ours and time.time() - os.lstat(path).st_mtime > _KEEP_PROGRESS_SECONDS:
                os.unlink(path)
    for name in _names_in(layout.progress_dir):
        path = os.path.join(layout.progress_dir, name)
        with suppress(OSError, UnsupportedEnvironmentError):
            if not name.endswith(LOCK_SUFFIX) and time.time() - os.lstat(path).st_mtime > _KEEP_PROGRESS_SECONDS:
                remove_dead_file(path)
    for directory_name in _names_in(layout.all_positions_dir):
        directory = os.path.join(layout.all_positions_dir, directory_name)
        dataset_id = dataset_id_of(directory_name)
        if dataset_id is None or os.path.exists(layout.dataset_dir(dataset_id)):
            continue
        for name in _names_in(directory):
            with suppress(OSError, UnsupportedEnvironmentError):
                if not name.endswith(LOCK_SUFFIX):
                    remove_dead_file(os.path.join(directory, name))
        with suppress(OSError):  # not empty
            os.rmdir(directory)


def _evict_until_done(
    layout: CacheLayout,
    limits: SpaceLimits,
    report: CleaningReport,
    choose: Callable[[CacheUsage, SpaceLimits], tuple[Victim, ...]],
) -> CacheUsage:
    """Evict what is chosen and look again, since what went may free less than it seemed: somebody has it open."""
    tried: set[str] = set()
    while True:
        usage = observe_usage(layout)
        victims = [victim for victim in choose(usage, limits) if victim.name not in tried]
        if not victims:
            return usage
        for victim in victims:
            tried.add(victim.name)
            if _remove(layout, victim):
                report.evicted.append(victim)
                logger.info(
                    "evicted",
                    extra={"what": victim.name, "reason": victim.reason.value, "num_bytes": victim.freed_bytes},
                )


def _remove(layout: CacheLayout, victim: Victim) -> bool:
    if victim.reason is Reason.DAMAGED:
        quarantine.delete(layout, victim.name)
        return True
    is_gone = evict(layout, victim.name)
    empty_trash(layout)
    return is_gone


def _sweep_dataset(layout: CacheLayout, dataset_id: str, report: CleaningReport) -> None:
    """Mark a dataset that is in use; else remove what was left unfinished in it for nothing."""
    try:
        alone = try_exclude(layout.dataset_dir(dataset_id))
    except OSError:
        return
    if alone is None:
        if not any(lease.is_locked for lease in read_leases(layout, dataset_id)):
            mark_used(layout, dataset_id)  # by a reader, which may have mounted the cache read-only
        return
    with alone:
        report.num_partials_removed += _remove_useless_partials(layout, dataset_id)
        _remove_if_hollow(layout, dataset_id)


def _remove_useless_partials(layout: CacheLayout, dataset_id: str) -> int:
    """Remove partials in which nothing is, and those of a complete dataset; give their number.

    Call it while nobody else uses the dataset.
    """
    is_complete = os.path.exists(os.path.join(layout.dataset_dir(dataset_id), MANIFEST_NAME))
    num_removed = 0
    stage_dir = layout.stage_dir(dataset_id)
    for name in _names_in(stage_dir):
        path = os.path.join(stage_dir, name)
        with suppress(OSError):
            if name.endswith(PARTIAL_SUFFIX) and (is_complete or is_partial_name(name) or _is_empty(path)):
                os.unlink(path)
                num_removed += 1
    return num_removed


def _is_empty(path: str) -> bool:
    return os.lstat(path).st_blocks == 0


def _remove_if_hollow(layout: CacheLayout, dataset_id: str) -> None:
    """Remove a dataset's directory in which nothing was ever staged: its stager was refused, or killed at once."""
    stage_dir = layout.stage_dir(dataset_id)
    if any(lease.is_live for lease in read_leases(layout, dataset_id)) or set(_names_in(stage_dir)) - {"used.json"}:
        return
    with suppress(OSError):  # something else is in it
        if os.listdir(layout.dataset_dir(dataset_id)) in ([], [STAGE_DIRECTORY]):
            with suppress(FileNotFoundError):
                os.unlink(layout.mark_path(dataset_id))
            with suppress(FileNotFoundError):
                os.rmdir(stage_dir)
            os.rmdir(layout.dataset_dir(dataset_id))


def _remove_stale_leases(directory: str) -> int:
    """Remove the lease files of a dataset that protect nothing any more; give their number."""
    num_removed = 0
    for name in _names_in(directory):
        with suppress(OSError):
            if name.endswith(LEASE_SUFFIX) and _remove_if_stale(os.path.join(directory, name)):
                num_removed += 1
    return num_removed


def _remove_if_stale(path: str) -> bool:
    """Remove a lease file whose stager has ended and whose time is over. What is no lease file stays."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or not try_lock(fd):
            return False
        data = os.pread(fd, MAX_RECORD_BYTES, 0)
        if data.strip(b"\0"):  # empty, or zeros after a loss of power: a stager that was killed at once
            try:
                record = LeaseRecord.from_json(data, name=path)
            except FormatError:
                return False
            if is_live(record, boot_id=read_boot_id(), boottime_seconds=boottime_seconds()):
                return False
        # who opens the file now and gets the lock later looks whether it still has its name
        if not is_at(fd, path):
            return False
        os.unlink(path)
        return True
    finally:
        os.close(fd)


def _names_in(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
