"""What ``stage status`` tells: each dataset of a cache, how much is there, who protects it. Changes nothing."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from shardferry.console.units import format_bytes, format_count, format_seconds
from shards.cache import CacheLayout, dataset_id_of
from shards.errors import FormatError, printable
from shards.files import read_regular_file
from shards.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest
from stager.holders import LeaseFacts, read_leases
from stager.local import read_status
from stager.status import DatasetStatus
from stager.usage import is_held


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOverview:
    """One dataset of the cache, as it is now."""

    dataset_id: str
    path: str
    source: str
    """Where it was staged from; empty when that was not written down yet."""
    is_complete: bool
    num_samples_by_split: Mapping[str, int]
    num_shards: int
    num_shards_staged: int
    size_bytes: int
    """Of all shards, staged or not."""
    partial_bytes: int
    """On disk in shards that are not complete."""
    leases: tuple[LeaseFacts, ...]
    is_held: bool
    """Whether any process, a stager or a reader, holds the dataset's directory."""

    @property
    def lease(self) -> str:
        """``live`` while a process uses the dataset, ``grace`` until a hand-over ends, else ``none``."""
        if self.is_held:
            return "live"
        return "grace" if self.lease_seconds_left > 0 else "none"

    @property
    def lease_seconds_left(self) -> float:
        """Until the last hand-over ends."""
        return max((lease.seconds_left for lease in self.leases), default=0.0)

    def as_json(self) -> dict[str, object]:
        """Give the facts for ``--json``."""
        return {**asdict(self), "lease": self.lease, "lease_seconds_left": round(self.lease_seconds_left, 1)}

    def to_text(self) -> str:
        """Render for a person; no newline at the end."""
        plural = "" if self.num_shards == 1 else "s"
        shards = f"{format_count(self.num_shards)} shard{plural}, {format_bytes(self.size_bytes)}"
        state = f"complete, {shards}"
        if not self.is_complete:
            state = (
                f"{format_count(self.num_shards_staged)} of {shards}, {format_bytes(self.partial_bytes)} in partials"
            )
        splits = ", ".join(f"{printable(name)} {format_count(num)}" for name, num in self.num_samples_by_split.items())
        lease = self.lease
        if lease != "none":
            holders = ", ".join(
                f"{item.holder} since {item.started_at}" if item.started_at else item.holder
                for item in self.leases
                if item.is_live
            )
            left = f", {format_seconds(self.lease_seconds_left)} left" if lease == "grace" else ""
            lease = f"{lease}{left}{f' ({printable(holders)})' if holders else ''}"
        return (
            f"{self.dataset_id}\n"
            f"  state:   {state}\n"
            f"  samples: {splits or 'unknown'}\n"
            f"  source:  {printable(self.source) or 'unknown'}\n"
            f"  path:    {printable(self.path)}\n"
            f"  lease:   {lease}"
        )


def observe_cache(layout: CacheLayout) -> list[DatasetOverview]:
    """Observe every dataset of a cache, in the order of the ids."""
    try:
        names = sorted(os.listdir(layout.datasets_dir))
    except FileNotFoundError:
        return []
    ids = [dataset_id for name in names if (dataset_id := dataset_id_of(name)) is not None]
    return [_observe_dataset(layout, dataset_id) for dataset_id in ids]


def _observe_dataset(layout: CacheLayout, dataset_id: str) -> DatasetOverview:
    path = layout.dataset_dir(dataset_id)
    status = read_status(layout.status_path(dataset_id))
    manifest = _read_manifest(path)
    if manifest is not None:
        # the manifest is the truth about a complete dataset, whatever became of the status
        status = DatasetStatus.of_manifest(manifest, "" if status is None else status.source)
        num_shards_staged = manifest.num_shards
    elif status is not None:
        indexes = sum(name.endswith(".index.arrow") for name in status.records)
        num_shards_staged = len(status.records) - indexes
    else:
        status = DatasetStatus(source="", num_shards=0, size_bytes=0)
        num_shards_staged = 0
    return DatasetOverview(
        dataset_id=dataset_id,
        path=path,
        source=status.source,
        is_complete=manifest is not None,
        num_samples_by_split=status.num_samples_by_split,
        num_shards=status.num_shards,
        num_shards_staged=num_shards_staged,
        size_bytes=status.size_bytes,
        partial_bytes=_partial_bytes(layout.stage_dir(dataset_id)),
        leases=tuple(read_leases(layout, dataset_id)),
        is_held=is_held(path),
    )


def _read_manifest(path: str) -> Manifest | None:
    with contextlib.suppress(OSError, FormatError):
        data = read_regular_file(os.path.join(path, MANIFEST_NAME), max_bytes=MAX_MANIFEST_BYTES)
        return Manifest.from_json(data, name=path)
    return None


def _partial_bytes(stage_dir: str) -> int:
    total = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(stage_dir) as entries:
        for entry in entries:
            if entry.name.endswith(".partial"):
                with contextlib.suppress(FileNotFoundError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total
