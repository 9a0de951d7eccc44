"""Values that describe where the bytes of a sample lie in a shard, written or read; pure.

All offsets are bytes from the start named by the field, all ranges half-open.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checksum:
    """A masked CRC-32C (TFRecord) that a writer has to fill in once the bytes it covers are there."""

    start: int
    """First covered byte, from the start of the sample."""
    end: int
    """One past the last covered byte; the 4 bytes of the masked CRC, little-endian, follow here."""


@dataclass(frozen=True, slots=True)
class SampleLayout:
    """Where each byte of one encoded sample goes.

    ``literals`` and ``holes``, plus the 4 bytes of ``checksum`` if there is one, tile ``[0, size)`` exactly:
    no gaps, no overlap. Filling every hole with the member's bytes gives the encoded sample.
    """

    size: int
    """Length of the encoded sample in bytes, padding included."""
    literals: tuple[tuple[int, bytes], ...]
    """(offset from the start of the sample, bytes), ascending."""
    holes: tuple[tuple[int, int], ...]
    """(offset from the start of the sample, size) of each member's data, in the order the members were given."""
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class ScannedMember:
    """One member found in a shard."""

    extension: str
    offset: int | None
    """Of the data, from the start of the shard (of the decompressed stream for a compressed one); None when the
    data do not lie there in one piece (sparse members)."""
    size: int
    crc32c: int
    """CRC-32C of the data (not masked)."""


@dataclass(frozen=True, slots=True)
class ScannedSample:
    """One sample found in a shard."""

    key: str
    offset: int
    """Where the sample starts: its first header or record frame."""
    members: tuple[ScannedMember, ...]
    """In shard order."""
