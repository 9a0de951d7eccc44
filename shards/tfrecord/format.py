"""Samples in TFRecord shards: one sample is one record, a ``tf.train.Example`` of bytes features.

The features are ``__key__`` first, then one for each member in the order given, each a bytes list of one value. All
lengths are known before the bytes are, so a member's bytes are a hole in an otherwise computed record, and they lie in
one piece in the file: an index points straight at them. ``docs/format.md`` has the byte table.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import numpy as np

from shards.digests import crc32c
from shards.errors import SampleGroupError, printable
from shards.example_shape import classify_record, find_bytes_feature_spans
from shards.layout import Checksum, SampleLayout, ScannedMember, ScannedSample
from shards.sample_columns import Int64s, SampleColumns
from shards.tfrecord.frames import (
    FOOTER_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    Record,
    frame_header,
    read_records,
)
from shards.wire import encode_varint

END_MARKER = b""
"""Bytes that close a shard: none, a TFRecord ends with its last record."""

KEY_FEATURE = "__key__"
"""Feature that holds the sample's key."""

KEY_DIGITS = 8
"""Least digits of the key of a foreign record: its number in the shard, from 0."""

_KEY_FIELD = b"\n\x07__key__"


def layout_sample(key: str, members: Sequence[tuple[str, int]]) -> SampleLayout:
    """Compute where each byte of a sample's record goes.

    Args:
        key: any text that is not empty; surrogate escapes stand for bytes that are not UTF-8.
        members: (extension, size in bytes) in the order of the sample.

    Raises:
        ValueError: an extension is empty, repeated, reserved or no Unicode text, or the record would be larger than
            any reader of Examples takes.
    """
    if not key:
        raise ValueError("a sample needs a key that is not empty")
    key_bytes = key.encode("utf-8", "surrogateescape")
    heads = [_head_entry(_KEY_FIELD, len(key_bytes)) + key_bytes]
    body_bytes = len(heads[0])
    for extension, size in members:
        head = _head_entry(_encode_name(extension, key), size)
        heads.append(head)
        body_bytes += len(head) + size
    if len({extension for extension, _ in members}) != len(members):
        raise ValueError(f"sample {printable(key)} has an extension twice: {[name for name, _ in members]}")
    prefix = b"\n" + encode_varint(body_bytes)
    data_bytes = len(prefix) + body_bytes
    if data_bytes > MAX_RECORD_BYTES:
        raise ValueError(
            f"sample {printable(key)} makes a record of {data_bytes} bytes; protobuf, and so every reader of "
            f"tf.train.Example, takes at most {MAX_RECORD_BYTES}; pack it as tar"
        )
    literal = b"".join((frame_header(data_bytes), prefix, *heads[:2]))
    literals = [(0, literal)]
    holes = []
    position = len(literal)
    for number, (_, size) in enumerate(members, start=2):
        holes.append((position, size))
        position += size
        if number < len(heads):
            literals.append((position, heads[number]))
            position += len(heads[number])
    return SampleLayout(position + FOOTER_BYTES, tuple(literals), tuple(holes), Checksum(HEADER_BYTES, position))


def sample_size(key: str, members: Sequence[tuple[str, int]]) -> int:
    """Length of a sample's encoding; arguments and errors are those of :func:`layout_sample`."""
    return layout_sample(key, members).size


def sample_sizes(samples: SampleColumns) -> Int64s:
    """Length of each sample's encoding, or 0 where :func:`sample_size` has to be asked, which is seldom."""
    key_bytes, sizes = samples.key_bytes, samples.sizes.astype(np.int64)
    names = np.array([_name_field_bytes(name) for name in samples.extensions], np.int64)[samples.codes]
    is_odd = (names == 0) | (sizes < 0) | (sizes > MAX_RECORD_BYTES)
    is_usual = (key_bytes > 0) & (samples.sum_members(is_odd) == 0)
    body = _entry_bytes(np.int64(len(_KEY_FIELD)), key_bytes) + samples.sum_members(
        np.where(is_odd, 0, _entry_bytes(names, sizes))
    )
    data_bytes = 1 + _varint_bytes(body) + body
    is_usual &= data_bytes <= MAX_RECORD_BYTES
    return np.where(is_usual, HEADER_BYTES + data_bytes + FOOTER_BYTES, 0)


def scan_samples(
    stream: BinaryIO,
    name: str,
    *,
    report_keyless: Callable[[int, Sequence[str]], None] | None = None,
    reads_data: bool = True,
) -> Iterator[ScannedSample]:
    """Yield the sample in each record, in shard order.

    A record that :func:`layout_sample` describes gives its members. Any other record is one member, ``example``,
    ``sequence_example`` or ``record`` by what it is, and its key is its number in the shard. All data are read,
    whatever ``reads_data`` says: where the members of a record lie is only known from the record.

    Raises:
        TFRecordFormatError: the shard is damaged or cut.
        SampleGroupError: a key is empty or re-appears, or a sample has an extension twice.
    """
    keys: dict[str, int] = {}
    for number, record in enumerate(read_records(stream, name)):
        sample = _scan_own(record, name) or _scan_foreign(record, number)
        first = keys.setdefault(sample.key, record.offset)
        if first != record.offset:
            reason = f"key {printable(sample.key)} re-appears, its first record is at byte offset {first}"
            raise SampleGroupError(name, record.offset, reason)
        yield sample


def _head_entry(name_field: bytes, size: int) -> bytes:
    """Give all bytes of a feature's map entry before its value of ``size`` bytes.

    Built from the inside out, since each length counts the lengths inside it. This runs for each member of a pack.
    """
    if size < 0x7A:  # the three inner lengths have one byte each
        inner = bytes((0x12, size + 4, 0x0A, size + 2, 0x0A, size))
    else:
        head = b"\n" + encode_varint(size)
        head = b"\n" + encode_varint(len(head) + size) + head
        inner = b"\x12" + encode_varint(len(head) + size) + head
    return b"\n" + encode_varint(len(name_field) + len(inner) + size) + name_field + inner


def _entry_bytes(name_field_bytes: Int64s | np.int64, sizes: Int64s) -> Int64s:
    """Length of the map entries of features with values of some sizes, the values included; see :func:`_head_entry`."""
    value = 1 + _varint_bytes(sizes) + sizes
    value = 1 + _varint_bytes(value) + value
    value = 1 + _varint_bytes(value) + value
    pair = name_field_bytes + value
    return 1 + _varint_bytes(pair) + pair


def _varint_bytes(values: Int64s) -> Int64s:
    """Length of numbers below 2**35 as varints."""
    return np.searchsorted([1 << bits for bits in (7, 14, 21, 28)], values, side="right").astype(np.int64) + 1


def _name_field_bytes(extension: str) -> int:
    """Length of the name field of a member's feature; 0 when :func:`layout_sample` must look at it."""
    try:
        return len(_encode_name(extension, ""))
    except ValueError:
        return 0


def _encode_name(extension: str, key: str) -> bytes:
    """Give the name field of a member's feature."""
    if not extension or extension == KEY_FEATURE:
        raise ValueError(f"sample {printable(key)} has the extension {extension!r}, which names no member")
    try:
        encoded = extension.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(
            f"extension {printable(extension)} of sample {printable(key)} is not UTF-8, and a feature name must be; "
            "rename the file, or pack as tar"
        ) from None
    return b"\n" + encode_varint(len(encoded)) + encoded


def _scan_own(record: Record, name: str) -> ScannedSample | None:
    """Read a record as a sample; None when it is something else."""
    spans = find_bytes_feature_spans(record.data)
    if spans is None or all(feature != KEY_FEATURE for feature, _, _ in spans):
        return None
    view = memoryview(record.data)
    key: str | None = None
    members: dict[str, ScannedMember] = {}
    for feature, offset, size in spans:
        extension = feature.lower()
        if (feature == KEY_FEATURE and key is not None) or extension in members or not extension:
            reason = f"record has the feature {printable(feature)!r} twice, or without a name"
            raise SampleGroupError(name, record.offset, reason)
        if feature == KEY_FEATURE:
            key = record.data[offset : offset + size].decode("utf-8", "surrogateescape")
        else:
            checksum = crc32c(view[offset : offset + size])
            members[extension] = ScannedMember(extension, record.data_offset + offset, size, checksum)
    if not key:
        raise SampleGroupError(name, record.offset, f"{KEY_FEATURE} of the record is empty")
    return ScannedSample(key, record.offset, tuple(members.values()))


def _scan_foreign(record: Record, number: int) -> ScannedSample:
    data = record.data
    member = ScannedMember(classify_record(data), record.data_offset, len(data), crc32c(data))
    return ScannedSample(f"{number:0{KEY_DIGITS}d}", record.offset, (member,))
