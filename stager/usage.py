"""Observes how a cache takes room: every file below its own directories, and who protects what. Changes nothing.

What lies beside the cache's own names in its root is somebody else's and is not looked at.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from shards.cache import STAGE_DIRECTORY, CacheLayout, dataset_id_of
from shards.errors import UnsupportedEnvironmentError
from shards.files import is_partial_name
from shards.leases import boottime_seconds, read_boot_id, try_exclude
from stager.holders import read_leases
from stager.marks import read_mark
from stager.quarantine import is_deletable
from stager.space import (
    SPACE_UNIT_BYTES,
    CacheUsage,
    DatasetUsage,
    DiskFile,
    DiskSpace,
    QuarantineUsage,
    footprint_bytes,
)

PARTIAL_SUFFIX = ".partial"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A name below a directory of the cache."""

    path: str
    status: os.stat_result

    @property
    def disk_file(self) -> DiskFile:
        """How it takes room; a directory has one name, whatever its link count says."""
        is_directory = stat.S_ISDIR(self.status.st_mode)
        return DiskFile(self.status.st_ino, self.status.st_blocks * 512, 1 if is_directory else self.status.st_nlink)


def walk(path: str) -> Iterator[FoundFile]:
    """Yield a file, or a directory and all below it; a directory's ``.stage`` before its other entries.

    In that order, a shard that is committed meanwhile is seen twice rather than not at all. Names that vanish
    meanwhile are left out. Links are not followed.
    """
    try:
        yield FoundFile(path, os.lstat(path))
        with os.scandir(path) as entries:
            names = sorted((entry.name for entry in entries), key=lambda name: (name != STAGE_DIRECTORY, name))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for name in names:
        child = os.path.join(path, name)
        try:
            status = os.lstat(child)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(status.st_mode):
            yield from walk(child)
        else:
            yield FoundFile(child, status)


def observe_disk(path: str) -> DiskSpace:
    """Ask the filesystem for its room."""
    facts = os.statvfs(path)
    return DiskSpace(
        size_bytes=facts.f_blocks * facts.f_frsize,
        free_bytes=facts.f_bavail * facts.f_frsize,
        num_inodes=facts.f_files,
        free_inodes=facts.f_favail,
    )


def observe_usage(layout: CacheLayout) -> CacheUsage:
    """Observe everything that takes room in a cache, and the disk.

    Raises:
        FileNotFoundError: the cache's root is not there.
    """
    disk = observe_disk(layout.root)
    unit_bytes = max(os.statvfs(layout.root).f_frsize, SPACE_UNIT_BYTES)
    datasets: list[DatasetUsage] = []
    reserved_bytes = 0
    other: list[DiskFile] = []
    for name in _names_in(layout.datasets_dir):
        dataset_id = dataset_id_of(name)
        path = os.path.join(layout.datasets_dir, name)
        if dataset_id is None or not os.path.isdir(path) or os.path.islink(path):
            other.extend(found.disk_file for found in walk(path))
            continue
        dataset, reserved = _observe_dataset(layout, dataset_id, unit_bytes)
        datasets.append(dataset)
        reserved_bytes += reserved
    quarantine = []
    for token in _names_in(layout.quarantine_dir):
        files = tuple(found.disk_file for found in walk(os.path.join(layout.quarantine_dir, token)))
        quarantine.append(QuarantineUsage(token=token, files=files, is_evictable=is_deletable(layout, token)))
    for path in (
        layout.all_leases_dir,
        layout.metrics_dir,
        layout.progress_dir,
        layout.all_positions_dir,
        layout.trash_dir,
    ):
        other.extend(found.disk_file for found in walk(path))
    for path in (
        layout.root,
        layout.datasets_dir,
        layout.quarantine_dir,
        layout.version_path,
        layout.gc_lock_path,
        layout.scrub_path,
    ):
        try:
            other.append(FoundFile(path, os.lstat(path)).disk_file)
        except FileNotFoundError:
            continue
    return CacheUsage(
        datasets=tuple(datasets),
        disk=disk,
        quarantine=tuple(quarantine),
        other_files=tuple(other),
        reserved_bytes=reserved_bytes,
    )


def is_held(path: str) -> bool:
    """Whether anybody holds a dataset's directory; asks by taking the lock that excludes them, for a moment."""
    try:
        alone = try_exclude(path)
    except (OSError, UnsupportedEnvironmentError):
        return False
    if alone is not None:
        alone.close()
    return alone is None


def _observe_dataset(layout: CacheLayout, dataset_id: str, unit_bytes: int) -> tuple[DatasetUsage, int]:
    path = layout.dataset_dir(dataset_id)
    leases = read_leases(layout, dataset_id)
    holders = [lease.holder for lease in leases if lease.is_live]
    if is_held(path) and not any(lease.is_locked for lease in leases):
        holders.append("a reader")
    files, promised_bytes = [], 0
    for found in walk(path):
        files.append(found.disk_file)
        if _is_promise(found):
            grown = footprint_bytes(found.status.st_size, unit_bytes) - found.status.st_blocks * 512
            promised_bytes += max(grown, 0)
    mark = read_mark(layout, dataset_id)
    dataset = DatasetUsage(
        dataset_id=dataset_id,
        files=tuple(files),
        promised_bytes=promised_bytes if any(lease.is_locked for lease in leases) else 0,
        holders=tuple(holders),
        is_self_made=os.path.exists(layout.wanted_path(dataset_id)),
        idle_seconds=mark.idle_seconds(boot_id=read_boot_id(), now_seconds=boottime_seconds()),
        used_at=mark.used_at,
        retain=mark.retain,
        is_released=mark.is_released,
    )
    return dataset, sum(lease.reserved_bytes for lease in leases)


def _is_promise(found: FoundFile) -> bool:
    """Whether a file is a partial of a shard or index, whose size says how much will be in it."""
    if not found.path.endswith(PARTIAL_SUFFIX):
        return False
    directory, name = os.path.split(found.path)
    return (
        os.path.basename(directory) == STAGE_DIRECTORY
        and not is_partial_name(name)
        and stat.S_ISREG(found.status.st_mode)
    )


def _names_in(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
