"""Reads members of one shard out of its memory map, where its index says they are.

Rules:
    * A shard is mapped once per process, on first use, and its size is checked then: reading a map behind the end of
      its file kills the process. Staged files are read-only and never shortened; that the file is whole at opening
      is what must be checked.
    * Its index is trusted only after its digest, its header and the place of every member in it were checked, once
      per process. The digest says that the index is the packer's; whether the packer kept every other promise of the
      format is what ``check="index"`` looks at.
    * The hot path touches neither numpy nor Arrow: memoryviews over the same memory give plain ints, several times
      faster than numpy scalars.
    * Maps are never closed by hand: a sample or view may still need one. Dropping the last reference unmaps it.
"""

import mmap
import os
from dataclasses import dataclass

from shards.digests import crc32c, hash_bytes, shard_digest
from shards.errors import DigestMismatchError, IndexFormatError, NotStagedError, SizeMismatchError, printable
from shards.index import ShardIndex

STAGE_AGAIN = "pack or stage the dataset again"
"""What helps against files that are not what the manifest promises."""

_PIECE_MEMBERS = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFile:
    """One shard, its index, and what the manifest promises of them."""

    name: str
    """As in the manifest."""
    path: str
    size_bytes: int
    digest: str
    num_samples: int
    index_path: str
    index_size_bytes: int
    index_digest: str


class MappedShard:
    """A mapped shard with its checked index; the store behind :class:`loaders.sample.Sample`."""

    __slots__ = (
        "_code_of",
        "_codes",
        "_crcs",
        "_extensions",
        "_first",
        "_map",
        "_offsets",
        "_sizes",
        "_view",
        "file",
        "index",
        "verify_crc",
    )

    def __init__(self, file: ShardFile, *, verify_crc: bool = False) -> None:
        """Map the shard and its index.

        Args:
            file: the shard.
            verify_crc: check a member's CRC-32C at every read.

        Raises:
            NotStagedError: a file is not there.
            SizeMismatchError: a file has another size than promised.
            DigestMismatchError: the index is not the promised one.
            IndexFormatError: the index does not fit to the shard.
        """
        self.file = file
        self.verify_crc = verify_crc
        self._map = map_file(file.path, file.size_bytes)
        self._view = memoryview(self._map)
        self.index = open_index(file)
        self._extensions = self.index.extensions
        self._code_of = {extension: code for code, extension in enumerate(self._extensions)}
        self._first = self.index.first_member.data
        self._codes = self.index.extension_codes.data
        self._offsets = self.index.member_offsets.data
        self._sizes = self.index.member_sizes.data
        self._crcs = self.index.member_crc32cs.data

    def key(self, row: int) -> str:
        """Give the key of a sample."""
        return self.index.key(row)

    def extensions(self, row: int) -> tuple[str, ...]:
        """Give the extensions of a sample's members, in shard order."""
        first = self._first
        return tuple([self._extensions[code] for code in self._codes[first[row] : first[row + 1]]])

    def read(self, row: int, extension: str) -> bytes | None:
        """Copy a member's bytes; None when the sample has no such member.

        Raises:
            DigestMismatchError: CRCs are verified and this one does not match.
        """
        # the same search as in _find_member, here by hand: a call more costs a tenth of the whole read
        code = self._code_of.get(extension)
        codes = self._codes
        first = self._first
        for member in range(first[row], first[row + 1]):
            if codes[member] == code:
                offset = self._offsets[member]
                data = self._map[offset : offset + self._sizes[member]]
                if self.verify_crc:
                    self._check_crc(member, row, data)
                return data
        return None

    def read_all(self, row: int) -> dict[str, bytes]:
        """Copy all members of a sample, in shard order.

        Raises:
            DigestMismatchError: CRCs are verified and one does not match.
        """
        members = {}
        for member in range(self._first[row], self._first[row + 1]):
            offset = self._offsets[member]
            data = self._map[offset : offset + self._sizes[member]]
            if self.verify_crc:
                self._check_crc(member, row, data)
            members[self._extensions[self._codes[member]]] = data
        return members

    def view(self, row: int, extension: str) -> memoryview | None:
        """Give a member's bytes in place, read-only; None when the sample has no such member.

        Raises:
            DigestMismatchError: CRCs are verified and this one does not match.
        """
        member = self._find_member(row, extension)
        if member is None:
            return None
        offset = self._offsets[member]
        data = self._view[offset : offset + self._sizes[member]]
        if self.verify_crc:
            self._check_crc(member, row, data)
        return data

    def _find_member(self, row: int, extension: str) -> int | None:
        code = self._code_of.get(extension)
        for member in range(self._first[row], self._first[row + 1]):
            if self._codes[member] == code:
                return member
        return None

    def _check_crc(self, member: int, row: int, data: bytes | memoryview) -> None:
        actual = crc32c(data)
        if actual != self._crcs[member]:
            extension = self._extensions[self._codes[member]]
            raise DigestMismatchError(
                f"member {self.key(row)}.{extension} of {self.file.path}",
                None,
                self._offsets[member],
                f"crc32c:{self._crcs[member]:08x}",
                f"crc32c:{actual:08x}",
                STAGE_AGAIN,
            )


def map_file(path: str, size_bytes: int) -> "mmap.mmap | bytes":
    """Map a whole file for reading; an empty one, which cannot be mapped, is ``b""``.

    Raises:
        NotStagedError: it is not there.
        SizeMismatchError: it has another size.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotStagedError(f"{printable(path)} is missing; {STAGE_AGAIN}") from None
    try:
        actual_bytes = os.fstat(fd).st_size
        if actual_bytes != size_bytes:
            raise SizeMismatchError(path, size_bytes, actual_bytes, STAGE_AGAIN)
        return mmap.mmap(fd, size_bytes, access=mmap.ACCESS_READ) if size_bytes else b""
    finally:
        os.close(fd)


def open_index(file: ShardFile) -> ShardIndex:
    """Open a shard's index and check all of it against the manifest's promises and the shard's size.

    Raises:
        NotStagedError: it is not there.
        SizeMismatchError: it has another size than promised.
        DigestMismatchError: it has another digest than promised.
        IndexFormatError: it does not follow the format or belongs to another shard.
    """
    content = map_file(file.index_path, file.index_size_bytes)
    actual = hash_bytes(content)
    if actual != file.index_digest:
        raise DigestMismatchError(file.index_path, None, 0, file.index_digest, actual, STAGE_AGAIN)
    index = ShardIndex.open(file.index_path)
    header = index.header
    promises = (
        ("shard name", file.name, header.shard_name),
        ("shard size", file.size_bytes, header.shard_bytes),
        ("number of samples", file.num_samples, index.num_samples),
        ("shard digest", file.digest, shard_digest(header.block_digests)),
    )
    for what, expected, actual_value in promises:
        if expected != actual_value:
            raise IndexFormatError(
                file.index_path, None, f"{what} is {actual_value} here and {expected} in the manifest; {STAGE_AGAIN}"
            )
    _check_places(index, file)
    return index


def _check_places(index: ShardIndex, file: ShardFile) -> None:
    """Check that every member lies inside the shard, in pieces, so that memory stays constant."""
    offsets, sizes = index.member_offsets, index.member_sizes
    for start in range(0, len(offsets), _PIECE_MEMBERS):
        some_offsets = offsets[start : start + _PIECE_MEMBERS]
        ends = some_offsets + sizes[start : start + _PIECE_MEMBERS]
        # a sum that wraps around is smaller than its offset
        if int(ends.max()) > file.size_bytes or bool((ends < some_offsets).any()):
            raise IndexFormatError(file.index_path, None, f"a member lies outside the shard; {STAGE_AGAIN}")
