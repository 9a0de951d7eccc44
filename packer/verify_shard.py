"""``pack verify`` of one shard: its index, the digest of every block, and with ``deep`` a strict scan."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from packer.stores.base import DatasetStore
from packer.stores.open import open_store
from shards.digests import BlockHasher, block_ranges, digest_text, hash_bytes
from shards.errors import (
    DigestMismatchError,
    FormatError,
    SampleGroupError,
    SizeMismatchError,
    printable,
)
from shards.formats import ShardFormat, find_format
from shards.index import ShardIndex
from shards.layout import ScannedSample
from shards.manifest import MANIFEST_NAME, ShardEntry
from shards.ranges import ReaderStream, read_pieces

MAX_FAULTS_PER_SHARD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCheck:
    """How the shards of a dataset are checked; travels to each process."""

    location: str
    format_name: str
    block_bytes: int
    is_deep: bool


def shard_faults(check: ShardCheck, entry: ShardEntry) -> list[str]:
    """Check one shard; gives one sentence for each fault."""
    return list(find_shard_faults(check, entry, lambda _: None))


def find_shard_faults(check: ShardCheck, entry: ShardEntry, report_bytes: Callable[[int], None]) -> Iterator[str]:
    """Check one shard.

    Args:
        check: how.
        entry: of the shard in the manifest.
        report_bytes: called with the number of bytes read since the last call; may raise to stop.
    """
    store = open_store(check.location)
    is_whole = True
    for fault in _digest_faults(store, check, entry, report_bytes):
        is_whole = False
        yield fault
    if check.is_deep and is_whole:
        yield from _scan_faults(store, entry, find_format(check.format_name, where=MANIFEST_NAME))


def _digest_faults(
    store: DatasetStore, check: ShardCheck, entry: ShardEntry, report_bytes: Callable[[int], None]
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
        check.format_name,
        entry.size_bytes,
        check.block_bytes,
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
