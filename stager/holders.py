"""Reads who has a lease on a dataset: lease files as they are now, without taking anything."""

import os
from dataclasses import dataclass

from shards.cache import CacheLayout
from shards.errors import FormatError
from shards.leases import LeaseRecord, boottime_seconds, is_live, read_boot_id, try_lock

_MAX_RECORD_BYTES = 64 * 1024
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """What a lease file says now."""

    holder: str
    is_locked: bool
    """Its stager runs."""
    seconds_left: float
    """Until the hand-over ends; 0 when it ended or belongs to an earlier boot."""


def read_leases(layout: CacheLayout, dataset_id: str) -> list[LeaseFacts]:
    """Read the lease files of a dataset, sorted by holder. Files that cannot be read or understood are left out."""
    directory = layout.leases_dir(dataset_id)
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(_SUFFIX))
    except (FileNotFoundError, PermissionError):
        return []
    boot_id, now_seconds = read_boot_id(), boottime_seconds()
    facts = []
    for name in names:
        path = os.path.join(directory, name)
        try:
            is_locked, data = _read_lease_file(path)
            record = LeaseRecord.from_json(data, name=path)
        except (OSError, FormatError):
            continue
        is_valid = is_live(record, boot_id=boot_id, boottime_seconds=now_seconds)
        seconds_left = record.boottime_deadline_seconds - now_seconds if is_valid else 0.0
        facts.append(LeaseFacts(name.removesuffix(_SUFFIX), is_locked, seconds_left))
    return facts


def _read_lease_file(path: str) -> tuple[bool, bytes]:
    """Give whether a lease file's stager runs, and what the file holds."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return not try_lock(fd, is_exclusive=False), os.pread(fd, _MAX_RECORD_BYTES, 0)
    finally:
        os.close(fd)
