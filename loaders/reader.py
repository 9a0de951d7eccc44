"""Reads members of one shard, where its index says they are.

Rules:
    * Bytes are read with ``pread``, views are slices of a memory map. A map is a quarter quicker on pages that this
      process has touched before. Elsewhere it loses: a page fault reads far around the page from the disk (measured,
      for shuffled members of 24 KiB: 214 KiB each, where ``pread`` reads 29), keeps the interpreter locked meanwhile,
      and kills the process when the file is shorter than it was.
    * A shard's size is checked when it is opened, and a read that comes up short is an error.
    * The hot path touches neither numpy nor Arrow: memoryviews over the same memory give plain ints, several times
      faster than numpy scalars.
    * The descriptor is closed when the last sample of the shard is gone, not before: its number could be given to
      another file while somebody still reads.
"""

import os
import weakref
from collections.abc import Mapping
from os import pread

import numpy as np
import pyarrow as pa

from loaders.files import STAGE_AGAIN, ShardFile, open_file, open_index
from shards.digests import crc32c
from shards.errors import DigestMismatchError, NotStagedError, SizeMismatchError, printable
from shards.index import ShardIndex


class OpenShard:
    """An open shard with its checked index; the store behind :class:`loaders.sample.Sample`."""

    __slots__ = (
        "__weakref__",
        "_codes",
        "_crcs",
        "_extensions",
        "_fd",
        "_first",
        "_map",
        "_offsets",
        "_places",
        "_sizes",
        "_verify_crc",
        "_width",
        "file",
        "index",
    )

    def __init__(self, file: ShardFile, *, verify_crc: bool = False) -> None:
        """Open the shard and its index.

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
        self.index = open_index(file)
        self._verify_crc = verify_crc
        self._extensions = self.index.extensions
        self._places = find_uniform_places(self.index)
        self._width = len(self._places)
        self._first = self.index.first_member.data
        self._codes = self.index.extension_codes.data
        self._offsets = self.index.member_offsets.data
        self._sizes = self.index.member_sizes.data
        self._crcs = self.index.member_crc32cs.data
        self._map: memoryview | None = None
        self._fd = open_file(file.path, file.size_bytes)
        weakref.finalize(self, os.close, self._fd)

    def key(self, row: int) -> str:
        """Give the key of a sample."""
        return self.index.key(row)

    @property
    def path(self) -> str:
        """Of the shard."""
        return self.file.path

    def origin(self, row: int) -> str:
        """Say where a sample lies: the shard, and the byte offset in it."""
        return f"{self.file.path} at byte offset {self.index.sample_offset(row)}"

    def extensions(self, row: int) -> tuple[str, ...]:
        """Give the extensions of a sample's members, in shard order."""
        first = self._first
        return tuple([self._extensions[code] for code in self._codes[first[row] : first[row + 1]]])

    def read(self, row: int, extension: str) -> bytes | None:
        """Copy a member's bytes; None when the sample has no such member.

        Raises:
            SizeMismatchError: the shard was cut after it was opened.
            DigestMismatchError: CRCs are verified and this one does not match.
        """
        if self._width:
            # _find_member by hand: a call more is a tenth of the whole read
            place = self._places.get(extension)
            if place is None:
                return None
            member = row * self._width + place
        else:
            found = self._find_member(row, extension)
            if found is None:
                return None
            member = found
        size = self._sizes[member]
        data = pread(self._fd, size, self._offsets[member])
        if len(data) != size:
            data = self._read_rest(member, data)
        if self._verify_crc:
            self._check_crc(member, row, data)
        return data

    def read_all(self, row: int) -> dict[str, bytes]:
        """Copy all members of a sample, in shard order.

        Raises:
            SizeMismatchError: the shard was cut after it was opened.
            DigestMismatchError: CRCs are verified and one does not match.
        """
        members = {}
        for member in range(self._first[row], self._first[row + 1]):
            size = self._sizes[member]
            data = pread(self._fd, size, self._offsets[member])
            if len(data) != size:
                data = self._read_rest(member, data)
            if self._verify_crc:
                self._check_crc(member, row, data)
            members[self._extensions[self._codes[member]]] = data
        return members

    @property
    def is_unlinked(self) -> bool:
        """Whether the shard has no name any more and takes room only because it is open."""
        return os.fstat(self._fd).st_nlink == 0

    @property
    def verifies_crc(self) -> bool:
        """Whether reads check the CRC-32C."""
        return self._verify_crc

    def read_unverified(self, row: int, extension: str) -> tuple[int, bytes] | None:
        """Copy a member's bytes without checking them; None when the sample has no such member.

        Returns:
            The member's place, for :meth:`check`, and its bytes.

        Raises:
            SizeMismatchError: the shard was cut after it was opened.
        """
        member = self._find_member(row, extension)
        if member is None:
            return None
        data = pread(self._fd, self._sizes[member], self._offsets[member])
        return member, data if len(data) == self._sizes[member] else self._read_rest(member, data)

    def check(self, member: int, row: int, data: bytes) -> None:
        """Check a member's CRC-32C.

        Args:
            member: from :meth:`read_unverified`.
            row: of its sample.
            data: its bytes.

        Raises:
            DigestMismatchError: it does not match.
        """
        self._check_crc(member, row, data)

    def prefetch(self, row: int) -> None:
        """Ask the kernel to read a sample from the disk in the background. Costs about a microsecond."""
        first, end = self._first[row], self._first[row + 1]
        if first < end:
            start = self._offsets[first]
            size = self._offsets[end - 1] + self._sizes[end - 1] - start
            if size > 0:  # in a foreign shard, a hard link's data lie before the sample
                os.posix_fadvise(self._fd, start, size, os.POSIX_FADV_WILLNEED)

    def view(self, row: int, extension: str) -> memoryview | None:
        """Give a member's bytes in place, read-only; None when the sample has no such member.

        Raises:
            DigestMismatchError: CRCs are verified and this one does not match.
        """
        member = self._find_member(row, extension)
        if member is None:
            return None
        if self._map is None:
            self._map = self._map_shard()
        offset = self._offsets[member]
        data = self._map[offset : offset + self._sizes[member]]
        if self._verify_crc:
            self._check_crc(member, row, data)
        return data

    def _map_shard(self) -> memoryview:
        # Arrow's map keeps no descriptor open, Python's does (before 3.13); a map of an empty file is refused
        if self.file.size_bytes == 0:
            return memoryview(b"")
        try:
            file = pa.memory_map(os.fsencode(self.file.path))
        except FileNotFoundError:
            raise NotStagedError(f"{printable(self.file.path)} is missing; {STAGE_AGAIN}") from None
        with file:
            if file.size() != self.file.size_bytes:
                raise SizeMismatchError(self.file.path, self.file.size_bytes, file.size(), STAGE_AGAIN)
            return memoryview(file.read_buffer()).cast("B")

    def _read_rest(self, member: int, data: bytes) -> bytes:
        """Go on after a short read: one call gives at most 2 GiB, and a signal or a cut file may end it early."""
        pieces = [data]
        offset = self._offsets[member] + len(data)
        rest = self._sizes[member] - len(data)
        while rest:
            piece = pread(self._fd, rest, offset)
            if not piece:
                actual_bytes = os.fstat(self._fd).st_size
                raise SizeMismatchError(self.file.path, self.file.size_bytes, actual_bytes, STAGE_AGAIN)
            pieces.append(piece)
            offset += len(piece)
            rest -= len(piece)
        return b"".join(pieces)

    def _find_member(self, row: int, extension: str) -> int | None:
        if self._width:
            place = self._places.get(extension)
            return None if place is None else row * self._width + place
        for member in range(self._first[row], self._first[row + 1]):
            if self._extensions[self._codes[member]] == extension:
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


def find_uniform_places(index: ShardIndex) -> Mapping[str, int]:
    """Tell where each extension stands in a sample, when that is the same for all samples of the shard.

    Returns:
        Extension → place; empty when samples differ, or there are none.
    """
    first, codes = index.first_member, index.extension_codes
    width = len(codes) // index.num_samples if index.num_samples else 0
    if width * index.num_samples != len(codes) or width == 0:
        return {}
    if not np.array_equal(first, np.arange(0, len(codes) + 1, width)):
        return {}
    pattern = codes[:width]
    if not bool((codes.reshape(-1, width) == pattern).all()):
        return {}
    return {index.extensions[code]: place for place, code in enumerate(pattern.tolist())}
