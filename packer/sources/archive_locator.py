"""Where a member of an archive lies, as the bytes of a locator; pure.

The first byte says which of the two it is. All numbers are little-endian.
"""

import struct
from dataclasses import dataclass

Extents = tuple[tuple[int, int, int], ...]
"""(offset in the member, size, offset in the tar) of each piece of a sparse member; empty when it lies in one piece."""

_STORED = struct.Struct("<cIQ")
_EXTENT = struct.Struct("<QQQ")
_ZIPPED = struct.Struct("<cIQQHI")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a tar."""

    archive: int
    offset: int
    """Of the data in the tar, after decompression."""
    extents: Extents

    def to_bytes(self) -> bytes:
        """The locator."""
        head = _STORED.pack(b"t", self.archive, self.offset)
        return head + b"".join(_EXTENT.pack(*extent) for extent in self.extents)


@dataclass(frozen=True, slots=True)
class ZippedFile:
    """A file in a zip."""

    archive: int
    offset: int
    """Of the local header."""
    stored_size: int
    method: int
    crc32: int

    def to_bytes(self) -> bytes:
        """The locator."""
        return _ZIPPED.pack(b"z", self.archive, self.offset, self.stored_size, self.method, self.crc32)


def parse_locator(locator: bytes) -> StoredFile | ZippedFile:
    """Read a locator that one of the two made."""
    if locator[:1] == b"z":
        _, archive, offset, stored_size, method, crc32 = _ZIPPED.unpack(locator)
        return ZippedFile(archive, offset, stored_size, method, crc32)
    _, archive, offset = _STORED.unpack_from(locator)
    extents = tuple(_EXTENT.iter_unpack(locator[_STORED.size :]))
    return StoredFile(archive, offset, extents)
