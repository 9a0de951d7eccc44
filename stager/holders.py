"""Reads who has a lease on a dataset: lease files as they are now, without taking anything."""

import os
from dataclasses import dataclass

from shards.cache import CacheLayout
from shards.errors import FormatError
from shards.leases import LeaseRecord, boottime_seconds, is_live, read_boot_id, try_lock

LEASE_SUFFIX = ".json"

MAX_RECORD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """What a lease file says now."""

    holder: str
    is_locked: bool
    """Its stager runs."""
    seconds_left: float
    """Until the hand-over ends; 0 when it ended or belongs to an earlier boot."""
    reserved_bytes: int = 0
    """What its stager may still write beside its partials; 0 when it does not run."""
    started_at: str = ""
    """When its stager began, UTC; empty when that is not known."""
    is_window: bool = False
    """Whether only what its readers need next is wanted."""

    @property
    def is_live(self) -> bool:
        """Whether it protects its dataset."""
        return self.is_locked or self.seconds_left > 0


def read_leases(layout: CacheLayout, dataset_id: str) -> list[LeaseFacts]:
    """Read the lease files of a dataset, sorted by holder.

    One that may not be read protects as if its stager ran: nobody can tell that it does not. One that is damaged
    protects only while its stager runs.
    """
    directory = layout.leases_dir(dataset_id)
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(LEASE_SUFFIX))
    except (FileNotFoundError, PermissionError):
        return []
    boot_id, now_seconds = read_boot_id(), boottime_seconds()
    facts = []
    for name in names:
        path, holder = os.path.join(directory, name), name.removesuffix(LEASE_SUFFIX)
        try:
            is_locked, data = _read_lease_file(path)
        except PermissionError:
            facts.append(LeaseFacts(holder, is_locked=True, seconds_left=0.0))
            continue
        except OSError:
            continue
        try:
            record = LeaseRecord.from_json(data, name=path)
        except FormatError:
            if is_locked:  # it is being written
                facts.append(LeaseFacts(holder, is_locked=True, seconds_left=0.0))
            continue
        is_valid = is_live(record, boot_id=boot_id, boottime_seconds=now_seconds)
        started_at = record.extra.get("started_at")
        facts.append(
            LeaseFacts(
                holder,
                is_locked,
                record.boottime_deadline_seconds - now_seconds if is_valid else 0.0,
                record.reserved_bytes if is_locked else 0,
                started_at if isinstance(started_at, str) else "",
                record.extra.get("is_window") is True,
            )
        )
    return facts


def _read_lease_file(path: str) -> tuple[bool, bytes]:
    """Give whether a lease file's stager runs, and what the file holds."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return not try_lock(fd, is_exclusive=False), os.pread(fd, MAX_RECORD_BYTES, 0)
    finally:
        os.close(fd)
