"""Who has to go so that something fits: the rules of room in a cache, on values; pure.

Rules:
    * What is used counts as the disk counts it (allocated bytes, a file with several names once), and what running
      stagers may still write counts as if they had written it.
    * Only datasets that the stager made, that nobody protects and that have been idle for a while are evictable.
    * What was set aside as damaged goes first, then what its last user wanted deleted, then what was used longest ago.
    * No more is evicted than is needed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from stager.limits import HEADROOM_BYTES, Retain, SpaceLimits

SPACE_UNIT_BYTES = 4096
"""Filesystems give room in units, and take one more to remember where a file's pieces lie."""


def footprint_bytes(size_bytes: int, unit_bytes: int = SPACE_UNIT_BYTES) -> int:
    """Give the most that a file of a size takes on disk."""
    num_units = -(-size_bytes // unit_bytes) + 1 + size_bytes // 2**30
    return num_units * unit_bytes


class DiskFile(NamedTuple):
    """One name of a file that takes room."""

    inode: int
    disk_bytes: int
    """Allocated, as ``du`` counts."""
    num_links: int
    """Names that the file has, in the cache or outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetUsage:
    """One dataset directory as it takes room now."""

    dataset_id: str
    files: tuple[DiskFile, ...] = ()
    """Everything in it, directories included."""
    promised_bytes: int = 0
    """What its partials may still grow by while somebody stages it."""
    holders: tuple[str, ...] = ()
    """Who protects it; empty when nobody does."""
    is_self_made: bool = True
    """Whether the stager made it and knows where to get it again."""
    idle_seconds: float = 0.0
    """Since somebody was last seen using it."""
    used_at: float = 0.0
    """When that was, in seconds since 1970; for the order of eviction only."""
    retain: Retain = Retain.LRU
    is_released: bool = False
    """Whether its last user said that it is done."""

    @property
    def disk_bytes(self) -> int:
        """Allocated bytes of all its files."""
        return distinct_bytes(self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineUsage:
    """One file that was set aside as damaged."""

    token: str
    files: tuple[DiskFile, ...]
    is_evictable: bool
    """Whether it is a staged file; what somebody else put in the way is not ours to delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """What the filesystem says."""

    size_bytes: int
    free_bytes: int
    """That an ordinary user may still write."""
    num_inodes: int
    """0 on a filesystem that makes them as needed."""
    free_inodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUsage:
    """A cache as it takes room now."""

    datasets: tuple[DatasetUsage, ...]
    disk: DiskSpace
    quarantine: tuple[QuarantineUsage, ...] = ()
    other_files: tuple[DiskFile, ...] = ()
    """Leases, metrics, trash, and what is not ours below the cache's directories."""
    reserved_bytes: int = 0
    """What running stagers may still write beside their partials."""

    @property
    def used_bytes(self) -> int:
        """Allocated bytes of everything, each file once."""
        return distinct_bytes(self._all_files())

    @property
    def promised_bytes(self) -> int:
        """What running stagers may still write."""
        return self.reserved_bytes + sum(dataset.promised_bytes for dataset in self.datasets)

    def _all_files(self) -> Iterator[DiskFile]:
        for dataset in self.datasets:
            yield from dataset.files
        for item in self.quarantine:
            yield from item.files
        yield from self.other_files


@dataclass(frozen=True, slots=True)
class Need:
    """Room that something takes, or lacks."""

    num_bytes: int = 0
    num_inodes: int = 0

    @property
    def is_met(self) -> bool:
        """Whether nothing is lacking."""
        return self.num_bytes <= 0 and self.num_inodes <= 0


class Reason(StrEnum):
    """Why something goes."""

    DAMAGED = "damaged"
    """It had been set aside."""
    DELETE = "delete"
    """Its last user wanted it deleted."""
    ROOM = "room"
    """Its room was needed for a dataset."""
    WATERMARK = "watermark"
    """The cache was above its high watermark, or the disk below what has to stay free."""


@dataclass(frozen=True, slots=True)
class Victim:
    """Something that goes."""

    name: str
    """A dataset id, or the token of a quarantined file."""
    reason: Reason
    freed_bytes: int
    """What its going frees, after those before it went."""


@dataclass(slots=True)
class CleaningReport:
    """What a pass over the cache did, or would do."""

    is_dry_run: bool = False
    evicted: list[Victim] = field(default_factory=list)
    num_leases_removed: int = 0
    """Lease files that protected nothing any more."""
    num_partials_removed: int = 0
    """Unfinished files that nobody works on and no dataset needs."""
    trash_bytes: int = 0
    """Freed by deleting what was evicted before."""

    @property
    def evicted_bytes(self) -> int:
        """Freed by this pass's evictions."""
        return sum(victim.freed_bytes for victim in self.evicted)


def free_for_cache(usage: CacheUsage, limits: SpaceLimits) -> Need:
    """Give the room that the cache has left, promises taken off; negative when it is beyond its limits."""
    free_bytes = usage.disk.free_bytes - limits.min_free_bytes.of(usage.disk.size_bytes)
    if limits.quota_bytes is not None:
        free_bytes = min(free_bytes, limits.quota_bytes - HEADROOM_BYTES - usage.used_bytes)
    # a filesystem that makes inodes as needed does not run out of them
    free_inodes = usage.disk.free_inodes - limits.min_free_inodes.of(usage.disk.num_inodes)
    return Need(free_bytes - usage.promised_bytes, free_inodes if usage.disk.num_inodes else 2**62)


def lacking(usage: CacheUsage, limits: SpaceLimits, need: Need) -> Need:
    """Give what is lacking so that ``need`` fits."""
    free = free_for_cache(usage, limits)
    return Need(max(need.num_bytes - free.num_bytes, 0), max(need.num_inodes - free.num_inodes, 0))


def evictable_bytes(usage: CacheUsage, limits: SpaceLimits) -> int:
    """Give what could be freed by evicting everything that may go."""
    return sum(victim.freed_bytes for victim in _in_order(usage, limits, Reason.ROOM))


def choose_for_room(usage: CacheUsage, limits: SpaceLimits, need: Need) -> tuple[Victim, ...]:
    """Choose what goes so that ``need`` fits; empty when it fits already, or never will."""
    missing = lacking(usage, limits, need)
    chosen, is_enough = _until_met(_in_order(usage, limits, Reason.ROOM), missing, usage)
    return chosen if is_enough else ()


def choose_for_cleaning(usage: CacheUsage, limits: SpaceLimits) -> tuple[Victim, ...]:
    """Choose what goes although nobody needs its room just now: what is to be deleted, and what is over the limits."""
    deletable = {dataset.dataset_id for dataset in usage.datasets if _is_deletable(dataset, limits)}
    may_take = usage.used_bytes + max(usage.disk.free_bytes - limits.min_free_bytes.of(usage.disk.size_bytes), 0)
    if limits.quota_bytes is not None:
        may_take = min(may_take, limits.quota_bytes)
    too_much = 0
    if usage.used_bytes > limits.high_watermark * may_take:
        too_much = usage.used_bytes - int(limits.low_watermark * may_take)
    beyond = lacking(usage, limits, Need())
    missing = Need(max(too_much, beyond.num_bytes), beyond.num_inodes)
    chosen, _ = _until_met(_in_order(usage, limits, Reason.WATERMARK), missing, usage)
    named = {victim.name for victim in chosen}
    rest = (victim for victim in _in_order(usage, limits, Reason.WATERMARK) if victim.name not in named)
    return (*chosen, *(victim for victim in rest if victim.name in deletable))


def _until_met(victims: Iterable[Victim], missing: Need, usage: CacheUsage) -> tuple[tuple[Victim, ...], bool]:
    """Take victims until nothing is lacking; tell whether that was reached."""
    num_inodes = {dataset.dataset_id: len(dataset.files) for dataset in usage.datasets}
    chosen: list[Victim] = []
    num_bytes, num_freed_inodes = missing.num_bytes, missing.num_inodes
    for victim in victims:
        if num_bytes <= 0 and num_freed_inodes <= 0:
            break
        chosen.append(victim)
        num_bytes -= victim.freed_bytes
        num_freed_inodes -= num_inodes.get(victim.name, 1)
    return tuple(chosen), num_bytes <= 0 and num_freed_inodes <= 0


def _in_order(usage: CacheUsage, limits: SpaceLimits, reason: Reason) -> Iterator[Victim]:
    """Yield everything that may go, in the order in which it goes."""
    freed = _Freed()
    for item in usage.quarantine:
        if item.is_evictable:
            yield Victim(item.token, Reason.DAMAGED, freed.remove(item.files))
    evictable = [dataset for dataset in usage.datasets if is_evictable(dataset, limits)]
    evictable.sort(key=lambda dataset: (not _is_deletable(dataset, limits), dataset.used_at, dataset.dataset_id))
    for dataset in evictable:
        why = Reason.DELETE if _is_deletable(dataset, limits) else reason
        yield Victim(dataset.dataset_id, why, freed.remove(dataset.files))


def is_evictable(dataset: DatasetUsage, limits: SpaceLimits) -> bool:
    """Whether a dataset may go."""
    if dataset.holders or not dataset.is_self_made:
        return False
    return _is_deletable(dataset, limits) or dataset.idle_seconds >= limits.min_idle_seconds


def _is_deletable(dataset: DatasetUsage, limits: SpaceLimits) -> bool:
    """Whether a dataset is to be deleted: its last user wanted that, and is done or has been away for long enough."""
    if dataset.holders or not dataset.is_self_made or dataset.retain is not Retain.DELETE:
        return False
    return dataset.is_released or dataset.idle_seconds >= limits.min_idle_seconds


@dataclass(slots=True)
class _Freed:
    """Counts what removing files frees: a file's room comes back with its last name."""

    removed: Counter[int] = field(default_factory=Counter)

    def remove(self, files: Sequence[DiskFile]) -> int:
        freed_bytes = 0
        for file in files:
            self.removed[file.inode] += 1
            if self.removed[file.inode] == file.num_links:
                freed_bytes += file.disk_bytes
        return freed_bytes


def distinct_bytes(files: Iterable[DiskFile]) -> int:
    """Allocated bytes of files, each once however many names it has."""
    return sum({file.inode: file.disk_bytes for file in files}.values())
