"""Room for what a stager is going to write, taken before the first byte; refused at once when there is not enough.

Rules:
    * A reservation is the partial itself: from the beginning it has the size that the file will have, as a hole. What
      is promised can be seen with ``ls``, is shared by all stagers of a dataset, and cannot drift from what is written.
    * It counts only while somebody stages the dataset, which the kernel knows: a stager that is killed promises
      nothing any more.
    * Small files (status, manifest, directory entries) are reserved as a number in the stager's lease.
    * Everything happens under one lock, so two stagers never take the same room.
"""

import asyncio
import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass

from shardferry.console.units import format_bytes, format_seconds
from shards.cache import CacheLayout
from shards.errors import NoSpaceError, printable
from stager.blocks import data_extents
from stager.cache import DatasetDirectory
from stager.connections import Connections
from stager.holders import read_leases
from stager.lease import Lease
from stager.limits import SpaceLimits
from stager.local import observe_file
from stager.plan import WantedFile
from stager.reclaim import GcLock, clean, make_room
from stager.space import (
    SPACE_UNIT_BYTES,
    CacheUsage,
    CleaningReport,
    Need,
    evictable_bytes,
    footprint_bytes,
    free_for_cache,
    lacking,
)
from stager.usage import PARTIAL_SUFFIX

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
_LOG_SECONDS = 5.0

_LEASE_OVERHEAD_BYTES = 64 * 1024
_FILE_OVERHEAD_BYTES = 512
"""A name in two directories that are half full, and twice a line in the status file while it is replaced."""

_LEASE_INODES = 64
"""Partials of indexes, status, marks and manifest while they are replaced."""

_LISTED_HOLDERS = 8


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a stager wants room for."""

    dataset: DatasetDirectory
    lease: Lease
    """Of this stager, on the dataset."""
    files: tuple[WantedFile, ...]
    """Shards and indexes that have to be fetched."""
    manifest: bytes
    """Of the dataset, as it is published; written down, so that the dataset can be told from what others put there."""


async def reserve_room(
    layout: CacheLayout, limits: SpaceLimits, wanted: Reservation, connections: Connections
) -> CleaningReport:
    """Take room for files that are going to be staged; clean the cache and evict for it as far as is needed.

    Args:
        layout: of the cache.
        limits: what the cache may take.
        wanted: what for.
        connections: whose threads do the work.

    Raises:
        NoSpaceError: there is not enough, and could not be made.
        OSError: the cache cannot be written.
    """
    lock = GcLock(layout)
    started_at = logged_at = time.monotonic()
    try:
        while not lock.try_take():
            if time.monotonic() - logged_at >= _LOG_SECONDS:
                logged_at = time.monotonic()
                elapsed_seconds = round(logged_at - started_at, 1)
                logger.info("waiting for another process that makes room", extra={"elapsed_seconds": elapsed_seconds})
            await asyncio.sleep(_POLL_SECONDS)
        return await connections.on_commit(_reserve, layout, limits, wanted)
    finally:
        lock.close()


def give_room_back(layout: CacheLayout, dataset: DatasetDirectory, lease: Lease) -> None:
    """Remove the partials in which nothing is, at the end of a run that did not need them. Best effort."""
    stage_dir = layout.stage_dir(dataset.dataset_id)
    with suppress(OSError):
        if not any(name.endswith(PARTIAL_SUFFIX) for name in os.listdir(stage_dir)):
            return
        lock = GcLock(layout)
        try:
            if lock.try_take() and _is_only_stager(layout, lease):
                _shrink_partials(layout, dataset, set())
        finally:
            lock.close()


def _reserve(layout: CacheLayout, limits: SpaceLimits, wanted: Reservation) -> CleaningReport:
    dataset, lease = wanted.dataset, wanted.lease
    report = clean(layout, limits)
    if _is_only_stager(layout, lease):
        _shrink_partials(layout, dataset, {dataset.partial_path(file.name) for file in wanted.files})
    unit_bytes = max(os.statvfs(layout.root).f_frsize, SPACE_UNIT_BYTES)
    new = [file for file in wanted.files if not _is_reserved(dataset, file)]
    overhead_bytes = _LEASE_OVERHEAD_BYTES + 3 * len(wanted.manifest) + len(wanted.files) * _FILE_OVERHEAD_BYTES
    need = Need(
        sum(footprint_bytes(file.size_bytes, unit_bytes) for file in new)
        + max(overhead_bytes - lease.reserved_bytes, 0),
        2 * len(new) + _LEASE_INODES,
    )
    usage = make_room(layout, limits, need, report)
    if not lacking(usage, limits, need).is_met:
        raise _refusal(limits, dataset, usage, need)
    lease.reserve(max(overhead_bytes, lease.reserved_bytes))
    dataset.write_wanted(wanted.manifest)
    for file in new:
        dataset.reserve(file)
    return report


def _is_reserved(dataset: DatasetDirectory, file: WantedFile) -> bool:
    found = observe_file(dataset.partial_path(file.name))
    return found is not None and found.size_bytes >= file.size_bytes


def _is_only_stager(layout: CacheLayout, lease: Lease) -> bool:
    leases = read_leases(layout, lease.dataset_id)
    return not any(other.is_locked for other in leases if other.holder != lease.holder)


def _shrink_partials(layout: CacheLayout, dataset: DatasetDirectory, needed_paths: set[str]) -> None:
    """Let partials that nobody is going to complete now promise nothing; what they hold is kept for later.

    Call it with the lock held, by the only stager of the dataset.
    """
    stage_dir = layout.stage_dir(dataset.dataset_id)
    for name in os.listdir(stage_dir):
        path = os.path.join(stage_dir, name)
        found = observe_file(path)
        if not name.endswith(PARTIAL_SUFFIX) or path in needed_paths or found is None or found.size_bytes < 0:
            continue
        with suppress(OSError):
            if os.lstat(path).st_blocks == 0:
                os.unlink(path)
                continue
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                extents = data_extents(fd, found.size_bytes)
                os.ftruncate(fd, min(extents[-1][1], found.size_bytes) if extents else 0)
            finally:
                os.close(fd)


def _refusal(limits: SpaceLimits, dataset: DatasetDirectory, usage: CacheUsage, need: Need) -> NoSpaceError:
    free = free_for_cache(usage, limits)
    facts = []
    if limits.quota_bytes is not None:
        facts.append(f"the quota is {limits.quota_bytes} bytes, {usage.used_bytes} of them are used")
    if usage.promised_bytes:
        facts.append(f"{usage.promised_bytes} bytes are reserved by running stagers")
    if need.num_inodes > free.num_inodes:
        facts.append(f"needed {need.num_inodes} inodes, free {max(free.num_inodes, 0)}")
    others = [item for item in usage.datasets if item.dataset_id != dataset.dataset_id]
    held = [item for item in others if item.holders]
    facts.extend(
        f"{item.dataset_id} ({format_bytes(item.disk_bytes)}) is held by {printable(', '.join(item.holders))}"
        for item in held[:_LISTED_HOLDERS]
    )
    if len(held) > _LISTED_HOLDERS:
        facts.append(f"and {len(held) - _LISTED_HOLDERS} more are held")
    young = [item for item in others if not item.holders and item.idle_seconds < limits.min_idle_seconds]
    if young:
        facts.append(
            f"{len(young)} unused datasets are kept for {format_seconds(limits.min_idle_seconds)} after their last use"
        )
    foreign = [item for item in others if not item.is_self_made]
    if foreign:
        facts.append(f"{len(foreign)} datasets were not made by the stager and are never evicted")
    wait = "wait until they are released, " if held or young or usage.promised_bytes else ""
    facts.append(f"{wait}raise the limits, stage less, or give another --cache-dir")
    return NoSpaceError(
        dataset.path,
        need.num_bytes,
        max(free.num_bytes, 0),
        evictable_bytes(usage, limits),
        "; ".join(facts),
    )
