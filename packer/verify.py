"""``pack verify``: does a dataset hold what its manifest promises?

The chain is manifest → index (size, digest) → shard (size, every block's digest), so every byte of the dataset is
checked. With ``deep`` also index ↔ shard: a strict scan of the shard's own format must find the very samples and
members, at the same offsets, with the same sums. All faults are collected, not only the first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from packer.stores.base import DatasetStore
from packer.stores.open import open_store
from packer.unpack.compare import Comparison
from shardferry.console.units import format_bytes, format_count
from shards.digests import BlockHasher, block_ranges, digest_text, hash_bytes
from shards.errors import (
    DigestMismatchError,
    FormatError,
    IntegrityError,
    SampleGroupError,
    SizeMismatchError,
    printable,
)
from shards.formats import ShardFormat, find_format
from shards.index import ShardIndex
from shards.layout import ScannedSample
from shards.manifest import MANIFEST_NAME, Manifest, ShardEntry
from shards.ranges import ReaderStream, read_pieces
from shards.strict_json import JsonValue

MAX_FAULTS_PER_SHARD = 20


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
        what, advice = "is damaged", "copy the named shards again from a good place, or pack the dataset again"
        if report.comparison is not None:
            what = f"is not what {printable(report.comparison.source)} holds"
            advice = "pack the source again, or see which of the two is right"
        elif report.are_names_at_fault:
            what = "has names that readers take for different samples"
            advice = "pack again with --dotted-names error or escape, or use readers of the first-dot rule only"
        super().__init__(f"{printable(report.destination)} {what}, {len(report.faults)} fault(s):\n{lines}\n{advice}")


def verify_dataset(
    location: str, manifest: Manifest, *, is_deep: bool, report_bytes: Callable[[int], None]
) -> VerifyReport:
    """Check every file of a dataset.

    Args:
        location: of the manifest.
        manifest: of the dataset.
        is_deep: also compare each index with a strict scan of its shard.
        report_bytes: called with the number of bytes checked since the last call; may raise to stop.
    """
    store = open_store(location)
    found = VerifyReport(location, manifest.dataset_id, is_deep)
    shard_format = find_format(manifest.shard_format, where=MANIFEST_NAME)
    for _, entry in manifest.shards():
        faults = list(_shard_faults(store, manifest, entry, report_bytes))
        if is_deep and not faults:
            faults.extend(_scan_faults(store, entry, shard_format))
        found.faults.extend(faults)
        found.num_shards += 1
        found.num_samples += entry.num_samples
        found.size_bytes += entry.size_bytes
    known = {name for _, entry in manifest.shards() for name in (entry.name, entry.index_name)} | {MANIFEST_NAME}
    found.remarks += [f"{printable(name)} is left from a killed run" for name in store.list_leftovers()]
    found.remarks += [
        f"{printable(name)} does not belong to the dataset" for name in store.list_names() if name not in known
    ]
    return found


def _shard_faults(
    store: DatasetStore, manifest: Manifest, entry: ShardEntry, report_bytes: Callable[[int], None]
) -> Iterator[str]:
    """Check one shard and its index against the manifest."""
    index_bytes = _read_index(store, entry)
    if isinstance(index_bytes, str):
        yield index_bytes
        return
    try:
        with ShardIndex.from_bytes(index_bytes, name=entry.index_name) as index:
            index.validate()
            header, num_samples = index.header, index.num_samples
    except FormatError as error:
        yield str(error)
        return
    promised = (
        entry.name,
        manifest.shard_format,
        entry.size_bytes,
        manifest.block_bytes,
        entry.digest,
        entry.num_samples,
    )
    actual = (
        header.shard_name,
        header.format_name,
        header.shard_bytes,
        header.block_bytes,
        header.blocks.shard_digest,
        num_samples,
    )
    names = ("shard name", "format", "shard size", "block size", "shard digest", "number of samples")
    wrong = [
        f"{printable(entry.index_name)}: the {name} is {here}, the manifest says {there}"
        for name, here, there in zip(names, actual, promised, strict=True)
        if here != there
    ]
    yield from wrong
    if wrong:
        return
    try:
        with store.open_reader(entry.name) as shard:
            if shard.size_bytes != entry.size_bytes:
                yield str(SizeMismatchError(entry.name, entry.size_bytes, shard.size_bytes))
                return
            hasher = BlockHasher(header.block_bytes)
            for piece in read_pieces(shard):
                hasher.update(piece)
                report_bytes(len(piece))
    except OSError as error:
        yield f"{printable(entry.name)}: {error.strerror}"
        return
    ranges = block_ranges(entry.size_bytes, header.block_bytes)
    for number, ((start, _), expected, found) in enumerate(
        zip(ranges, header.block_digests, hasher.finish().digests, strict=True)
    ):
        if expected != found:
            yield str(DigestMismatchError(entry.name, number, start, digest_text(expected), digest_text(found)))


def _read_index(store: DatasetStore, entry: ShardEntry) -> bytes | str:
    """The index file if it is the promised one, else the fault."""
    try:
        data = store.read_file(entry.index_name)
    except OSError as error:
        return f"{printable(entry.index_name)}: {error.strerror}"
    if len(data) != entry.index_size_bytes:
        return str(SizeMismatchError(entry.index_name, entry.index_size_bytes, len(data)))
    digest = hash_bytes(data)
    if digest != entry.index_digest:
        return str(DigestMismatchError(entry.index_name, None, 0, entry.index_digest, digest))
    return data


def _scan_faults(store: DatasetStore, entry: ShardEntry, shard_format: ShardFormat) -> Iterator[str]:
    """Compare an index with what a strict reader finds in the shard."""
    shown = 0
    with store.open_index(entry.index_name) as index, store.open_reader(entry.name) as reader:
        shard = cast("BinaryIO", ReaderStream(reader))
        number = 0
        try:
            for number, sample in enumerate(shard_format.scan_samples(shard, entry.name), start=1):
                fault = _sample_fault(index, number - 1, sample)
                if fault is not None:
                    yield f"{printable(entry.name)}: {fault}"
                    shown += 1
                    if shown == MAX_FAULTS_PER_SHARD:
                        yield f"{printable(entry.name)}: more faults are not listed"
                        return
        except (FormatError, SampleGroupError) as error:
            yield str(error)
            return
        if number != index.num_samples:
            yield f"{printable(entry.name)}: holds {number} samples, its index has {index.num_samples}"


def _sample_fault(index: ShardIndex, number: int, sample: ScannedSample) -> str | None:
    if number >= index.num_samples:
        return f"sample {printable(sample.key)} at byte offset {sample.offset} is not in the index"
    indexed = (index.key(number), index.sample_offset(number), tuple(tuple(member) for member in index.members(number)))
    scanned = (
        sample.key,
        sample.offset,
        tuple((member.extension, member.offset, member.size, member.crc32c) for member in sample.members),
    )
    if indexed == scanned:
        return None
    return printable(
        f"sample {number} is {scanned} in the shard, but {indexed} in the index (extension, offset, size, crc)"
    )
