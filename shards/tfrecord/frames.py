"""Walks and makes TFRecord frames: length, both masked CRC-32C, data; nothing is taken on trust.

The frame (source: TensorFlow, ``tensorflow/core/lib/io/record_writer.h``)::

    uint64 length    uint32 masked CRC-32C of length    data[length]    uint32 masked CRC-32C of data

Rules of the reader:

- the CRC of a length is checked before the length is believed, the length is checked against the limit and the file
  before anything is allocated, and the CRC of the data is checked before a record is given out;
- a cut anywhere inside a frame is an error, also inside the 12 bytes of the header, where TensorFlow ends in silence;
- a cut exactly between two frames is a shorter, legal file in this format. Only an index or a manifest can tell;
- compression is recognised from the content, whatever the name says.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import BinaryIO

from shards.compression import DecodedStream, open_decoded
from shards.digests import crc32c, mask_crc
from shards.errors import TFRecordFormatError

HEADER_BYTES = 12
"""Length and its CRC."""

FOOTER_BYTES = 4
"""CRC of the data."""

MAX_RECORD_BYTES = 2**31 - 1
"""Largest message that protobuf serializes or parses, so the largest record that can hold an Example."""

_LENGTH = Struct("<Q")
_CRC = Struct("<I")
_HEADER = Struct("<QI")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLimits:
    """What a reader lets a TFRecord claim."""

    max_record_bytes: int = MAX_RECORD_BYTES
    """Most data bytes in one record."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a TFRecord shard. Offsets are bytes from the start of the (decompressed) stream."""

    offset: int
    """Where the frame starts."""
    data_offset: int
    """Where the data start."""
    data: bytes


DEFAULT_LIMITS = RecordLimits()


def frame_header(length: int) -> bytes:
    """Give the 12 bytes before ``length`` bytes of data.

    Raises:
        ValueError: the length does not fit 64 bits.
    """
    if not 0 <= length < 2**64:
        raise ValueError(f"a record has 0 to 2**64 - 1 bytes, not {length}")
    packed = _LENGTH.pack(length)
    return packed + _CRC.pack(mask_crc(crc32c(packed)))


def frame_record(data: bytes) -> bytes:
    """Give one whole frame."""
    return b"".join((frame_header(len(data)), data, _CRC.pack(mask_crc(crc32c(data)))))


def read_records(stream: BinaryIO, name: str, *, limits: RecordLimits = DEFAULT_LIMITS) -> Iterator[Record]:
    """Yield every record in file order.

    Args:
        stream: the shard's bytes from their start; may be a pipe, may give short reads, may be compressed.
        name: the shard, for messages.
        limits: what a record may claim.

    Raises:
        TFRecordFormatError: damage or a cut; the offset is that of the frame (in the decompressed stream), and all
            records before it were given.
    """
    decoded = open_decoded(stream, name, TFRecordFormatError, allow_zlib=True, is_plain=starts_with_record)
    while (offset := decoded.position, header := decoded.read_exactly(HEADER_BYTES))[1]:
        if len(header) < HEADER_BYTES:
            reason = f"file ends {len(header)} bytes into a {HEADER_BYTES}-byte record header"
            raise TFRecordFormatError(name, offset, reason)
        length = _check_header(header, name, offset, limits)
        yield Record(offset, offset + HEADER_BYTES, _read_data(decoded, length, name, offset))


def starts_with_record(head: bytes) -> bool:
    """Whether the first 12 bytes are a header whose CRC is right: 1 in 2**32 by chance, unlike two magic bytes."""
    return len(head) >= HEADER_BYTES and _CRC.unpack_from(head, 8)[0] == mask_crc(crc32c(head[:8]))


def _check_header(header: bytes, name: str, offset: int, limits: RecordLimits) -> int:
    length: int
    length, stored = _HEADER.unpack(header)
    expected = mask_crc(crc32c(header[:8]))
    if stored != expected:
        raise TFRecordFormatError(
            name,
            offset,
            f"length CRC is 0x{stored:08x}, expected 0x{expected:08x}: no record starts here{_guess(header)}",
        )
    if length > limits.max_record_bytes:
        raise TFRecordFormatError(
            name, offset, f"record of {length} bytes is longer than the limit of {limits.max_record_bytes} bytes"
        )
    return length


def _read_data(decoded: DecodedStream, length: int, name: str, offset: int) -> bytes:
    remaining = decoded.find_remaining()
    if remaining is not None and remaining < length + FOOTER_BYTES:
        found = remaining
    else:
        data = decoded.read_exactly(length)
        footer = decoded.read_exactly(FOOTER_BYTES)
        found = len(data) + len(footer)
    if found < length + FOOTER_BYTES:
        reason = f"file ends inside the record: {length + FOOTER_BYTES} bytes of data and CRC expected, {found} found"
        raise TFRecordFormatError(name, offset, reason)
    stored = _CRC.unpack(footer)[0]
    actual = mask_crc(crc32c(data))
    if stored != actual:
        reason = f"data CRC of the record is 0x{stored:08x}, but its {length} bytes of data give 0x{actual:08x}"
        raise TFRecordFormatError(name, offset, reason)
    return data


def _guess(header: bytes) -> str:
    """Say what the bytes look like when it helps."""
    if header.startswith(b"\x1f\x8b"):
        return "; looks gzip-compressed, perhaps twice or behind other bytes"
    if header.count(0) == len(header):
        return "; only zero bytes here, perhaps padding or a file that was not written to its end"
    if header.isascii() and all(byte >= 32 or byte in b"\t\r\n" for byte in header):
        return f"; looks like text: {header.decode('ascii')!r}"
    return ""
