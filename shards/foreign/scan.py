"""Finds out what lies in one shard, by the strict reader of its format: with every byte read and hashed, or without."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import BinaryIO, cast

from shards.compression import HEAD_BYTES, find_compression
from shards.digests import BlockDigests, BlockHasher, hash_bytes
from shards.errors import FormatError, SampleGroupError, printable
from shards.example_shape import FOREIGN_EXTENSIONS
from shards.formats import find_format
from shards.index import IndexBuilder
from shards.layout import ScannedMember, ScannedSample
from shards.ranges import READ_BYTES, Ranges, ReaderStream


@dataclass(slots=True, kw_only=True)
class ScannedShard:
    """What was found in one shard."""

    name: str
    size_bytes: int = 0
    digest: str = ""
    """Empty when the shard was not hashed."""
    num_samples: int = 0
    index_bytes: bytes = b""
    index_size_bytes: int = 0
    index_digest: str = ""
    extensions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Extension → (members, bytes)."""
    key_hashes: bytes = b""
    """8 bytes a key, native order; empty for foreign records, whose keys are only numbers, and without hashing."""
    num_keyless: int = 0
    keyless_names: Sequence[str] = ()
    fault: str = ""
    """Why the shard cannot be used; nothing else is to be believed then."""
    is_compressed: bool = False


def scan_shard(plain: Ranges, name: str, format_name: str) -> ScannedShard:
    """Read one shard whole and hash it; damage is a result, not an error.

    Args:
        plain: the shard; stays open.
        name: for messages, and what the index will call it.
        format_name: ``tar`` or ``tfrecord``.

    Raises:
        OSError: it cannot be read; or what else the reader raises.
    """
    found = ScannedShard(name=name)
    reader = HashingReader(plain)
    try:
        index = _collect(reader, format_name, found, is_whole=True)
        if index is not None:
            blocks = reader.finish()
            found.digest = blocks.shard_digest
            _finish(found, index, format_name, blocks)
        if reader.has_changed():
            found.fault = f"{printable(name)} changed while it was read; let its writer finish, then begin again"
    except (FormatError, SampleGroupError) as error:
        found.fault = str(error)
    return found


def walk_shard(plain: Ranges, name: str, format_name: str) -> ScannedShard:
    """Find where the members of a shard lie without hashing it, and without reading data where the format allows that.

    The index says that there are no digests, and its CRCs mean nothing. See :func:`scan_shard`.
    """
    found = ScannedShard(name=name)
    try:
        index = _collect(plain, format_name, found, is_whole=False)
        if index is not None:
            _finish(found, index, format_name, BlockDigests(plain.size_bytes, 0, ()))
    except (FormatError, SampleGroupError) as error:
        found.fault = str(error)
    return found


class HashingReader:
    """Passes a file's bytes on and hashes each of them once, in order, however it is read.

    A strict reader passes over little (padding, what lies behind the end marker), and goes back only for hard links.
    What it passes over is read for the hash.
    """

    def __init__(self, reader: Ranges) -> None:
        self._reader = reader
        self._hasher = BlockHasher()
        self.size_bytes = reader.size_bytes

    def read_at(self, num_bytes: int, offset: int) -> bytes:
        """Read a range; fewer bytes only at the end of the file."""
        self._hash_up_to(offset)
        data = self._reader.read_at(num_bytes, offset)
        hashed = self._hasher.size_bytes
        if offset + len(data) > hashed:
            self._hasher.update(memoryview(data)[hashed - offset :])
        return data

    def finish(self) -> BlockDigests:
        """Read what is left, and give the digests of all blocks."""
        self._hash_up_to(self.size_bytes)
        return self._hasher.finish()

    def has_changed(self) -> bool:
        """Whether the file has another size than when it was opened, as far as reading tells."""
        return bool(self._reader.read_at(1, self.size_bytes)) or (
            self.size_bytes > 0 and not self._reader.read_at(1, self.size_bytes - 1)
        )

    def _hash_up_to(self, offset: int) -> None:
        while (hashed := self._hasher.size_bytes) < offset:
            data = self._reader.read_at(min(READ_BYTES, offset - hashed), hashed)
            if not data:
                return
            self._hasher.update(data)


def _collect(reader: Ranges, format_name: str, found: ScannedShard, *, is_whole: bool) -> IndexBuilder | None:
    """Read all samples; None when the shard has a fault."""
    shard_format = find_format(format_name, where=found.name)
    head = reader.read_at(HEAD_BYTES, 0)
    compression = "none" if shard_format.is_plain(head) else find_compression(head, allow_zlib=True)
    if compression != "none":
        found.is_compressed = True
        found.fault = f"{printable(found.name)} is compressed with {compression.lstrip('!')}"
        return None

    def report_keyless(count: int, names: Sequence[str]) -> None:
        found.num_keyless, found.keyless_names = count, tuple(names)

    index, hashes, split_up = IndexBuilder(), array("Q"), 0
    stream = cast("BinaryIO", ReaderStream(reader))
    samples = shard_format.scan_samples(stream, found.name, report_keyless=report_keyless, reads_data=is_whole)
    for sample in samples:
        members = [
            (member.extension, member.offset, member.size, member.crc32c)
            for member in sample.members
            if member.offset is not None
        ]
        if len(members) < len(sample.members):
            split_up += 1
            if not found.fault:
                found.fault = _sparse_fault(found.name, sample)
            continue
        index.add(sample.key, sample.offset, members)
        for member in sample.members:
            _count(found, member)
        if is_whole:
            raw = sample.key.encode("utf-8", "surrogateescape")
            hashes.append(int.from_bytes(blake2b(raw, digest_size=8).digest()))
    if split_up > 1:
        found.fault += f" (and {split_up - 1} more of its samples)"
    if found.fault:
        return None
    if not (shard_format.has_example_records and found.extensions.keys() <= FOREIGN_EXTENSIONS):
        found.key_hashes = hashes.tobytes()
    return index


def _finish(found: ScannedShard, index: IndexBuilder, format_name: str, blocks: BlockDigests) -> None:
    found.size_bytes, found.num_samples = blocks.size_bytes, index.num_samples
    found.index_bytes = index.finish(shard_name=found.name, format_name=format_name, blocks=blocks)
    found.index_size_bytes, found.index_digest = len(found.index_bytes), hash_bytes(found.index_bytes)


def _count(found: ScannedShard, member: ScannedMember) -> None:
    count, size_bytes = found.extensions.get(member.extension, (0, 0))
    found.extensions[member.extension] = (count + 1, size_bytes + member.size)


def _sparse_fault(name: str, sample: ScannedSample) -> str:
    extensions = ", ".join(member.extension for member in sample.members if member.offset is None)
    return (
        f"{printable(name)} at byte offset {sample.offset}: member {printable(extensions)} of "
        f"{printable(sample.key)} is sparse: its bytes do not lie in one piece, so no index can point at them; "
        "make the shard again without --sparse"
    )
