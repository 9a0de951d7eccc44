"""``pack verify``: does a dataset hold what its manifest promises?

The chain is manifest → index (size, digest) → shard (size, every block's digest), so every byte of the dataset is
checked. With ``deep`` also index ↔ shard: a strict scan of the shard's own format must find the very samples and
members, at the same offsets, with the same sums. All faults are collected, not only the first.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from packer.pool import map_in_processes
from packer.stores.open import open_store
from packer.unpack.compare import Comparison
from packer.verify_shard import ShardCheck, find_shard_faults, shard_faults
from shardferry.console.units import format_bytes, format_count
from shards.errors import IntegrityError, printable
from shards.manifest import MANIFEST_NAME, Manifest
from shards.strict_json import JsonValue


@dataclass(slots=True)
class VerifyReport:
    """What was checked and what was found."""

    destination: str
    dataset_id: str
    is_deep: bool
    num_shards: int = 0
    num_samples: int = 0
    size_bytes: int = 0
    faults: list[str] = field(default_factory=list)
    """One sentence each, naming file and place."""
    remarks: list[str] = field(default_factory=list)
    """Things beside the dataset that do no harm."""
    comparison: Comparison | None = None
    """With the source files, if that was asked for."""
    are_names_at_fault: bool = False
    """Whether the faults are those of :mod:`packer.readers`."""

    def as_text(self) -> str:
        """For people, when there are no faults."""
        counts = f"{format_count(self.num_shards)} shard(s), {format_count(self.num_samples)} samples"
        depth = ", and every index against its shard" if self.is_deep else ""
        lines = [f"remark: {remark}" for remark in self.remarks]
        lines.append(f"verified {counts}, {format_bytes(self.size_bytes)}{depth}: all is well")
        if self.comparison is not None:
            lines.append(self.comparison.as_text())
        lines.append(f"dataset id: {self.dataset_id}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, JsonValue]:
        """For ``--json``."""
        return {
            "destination": printable(self.destination),
            "dataset_id": self.dataset_id,
            "is_deep": self.is_deep,
            "num_shards": self.num_shards,
            "num_samples": self.num_samples,
            "size_bytes": self.size_bytes,
            "faults": self.faults,
            "remarks": self.remarks,
            **({} if self.comparison is None else {"comparison": self.comparison.as_json()}),
        }


class FaultsFoundError(IntegrityError):
    """A dataset is not what its manifest promises.

    Attributes:
        report: all that was found.
    """

    def __init__(self, report: VerifyReport) -> None:
        self.report = report
        lines = "\n".join(f"  {fault}" for fault in report.faults)
        what = "is damaged"
        advice = (
            "copy the named shards again from a good place, or pack them again: "
            "pack build replaces those that are gone, with --overwrite all"
        )
        if report.comparison is not None:
            what = f"is not what {printable(report.comparison.source)} holds"
            advice = "pack the source again, or see which of the two is right"
        elif report.are_names_at_fault:
            what = "has names that readers take for different samples"
            advice = "pack again with --dotted-names error or escape, or use readers of the first-dot rule only"
        super().__init__(f"{printable(report.destination)} {what}, {len(report.faults)} fault(s):\n{lines}\n{advice}")


def verify_dataset(
    location: str, manifest: Manifest, *, is_deep: bool, report_bytes: Callable[[int], None], num_jobs: int = 1
) -> VerifyReport:
    """Check every file of a dataset.

    Args:
        location: of the manifest.
        manifest: of the dataset.
        is_deep: also compare each index with a strict scan of its shard.
        report_bytes: called with the number of bytes checked since the last call, and now and then with 0; may raise
            to stop.
        num_jobs: processes; each takes one shard at a time, and about 20 MiB and an index of memory.
    """
    found = VerifyReport(location, manifest.dataset_id, is_deep)
    how = ShardCheck(
        location=location, format_name=manifest.shard_format, block_bytes=manifest.block_bytes, is_deep=is_deep
    )
    entries = [entry for _, entry in manifest.shards()]
    if min(num_jobs, len(entries)) <= 1:
        for entry in entries:
            found.faults.extend(find_shard_faults(how, entry, report_bytes))
    else:
        faults: dict[int, list[str]] = {}
        for place, in_shard in map_in_processes(partial(shard_faults, how), entries, num_jobs, lambda: report_bytes(0)):
            faults[place] = in_shard
            report_bytes(entries[place].size_bytes)
        found.faults += [fault for place in sorted(faults) for fault in faults[place]]
    found.num_shards = len(entries)
    found.num_samples = sum(entry.num_samples for entry in entries)
    found.size_bytes = sum(entry.size_bytes for entry in entries)
    store = open_store(location)
    known = {name for entry in entries for name in (entry.name, entry.index_name)} | {MANIFEST_NAME}
    found.remarks += [f"{printable(name)} is left from a killed run" for name in store.list_leftovers()]
    found.remarks += [
        f"{printable(name)} does not belong to the dataset" for name in store.list_names() if name not in known
    ]
    return found
