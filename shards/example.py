"""The ``tf.train.Example`` codec, without TensorFlow; pure.

Decoding follows protobuf: packed and unpacked lists, repeated occurrences merged (lists are concatenated, the last
map entry and the last kind of a oneof win), unknown fields skipped. Three things stay apart that tables with missing
values need apart: a feature that is not there (no such name), one without a kind (:data:`UNSET`), and an empty list.

Encoding is deterministic: names in the order of their UTF-8 bytes, numbers packed. These are the bytes of TensorFlow's
``SerializeToString(deterministic=True)``, but for names that start with a whole other name: there implementations of
protobuf differ in which one comes first.
"""

import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from shards.errors import ExampleFormatError, printable
from shards.example_shape import classify_record, find_bytes_feature_spans, list_map_names
from shards.wire import (
    FIXED32,
    LENGTH_DELIMITED,
    VARINT,
    WireError,
    encode_varint,
    iter_fields,
    read_packed_integers,
    read_varint,
    to_signed,
)

__all__ = [
    "UNSET",
    "BytesList",
    "Example",
    "FeatureValue",
    "FloatList",
    "Int64List",
    "Unset",
    "classify_record",
    "encode_example",
    "find_bytes_feature_spans",
    "parse_example",
]

LISTED_NAMES = 20
"""How many feature names a message lists."""

_MAX_EXAMPLE_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BytesList:
    """A feature of kind ``bytes_list``."""

    values: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class FloatList:
    """A feature of kind ``float_list``."""

    values: "array[float]"
    """float32 [number of values]."""


@dataclass(frozen=True, slots=True)
class Int64List:
    """A feature of kind ``int64_list``."""

    values: "array[int]"
    """int64 [number of values]."""


@dataclass(frozen=True, slots=True)
class Unset:
    """A feature that is there but has no kind, as writers leave it for a missing value."""


UNSET = Unset()

FeatureValue: TypeAlias = BytesList | FloatList | Int64List | Unset
Example: TypeAlias = Mapping[str, FeatureValue]
"""Feature name → value."""


def make_floats(values: Iterable[float] = ()) -> FloatList:
    """Make a float feature; values are rounded to float32."""
    return FloatList(array("f", values))


def make_integers(values: Iterable[int] = ()) -> Int64List:
    """Make an integer feature.

    Raises:
        OverflowError: a value does not fit int64.
    """
    return Int64List(array("q", values))


def encode_example(features: Example) -> bytes:
    """Serialize features.

    Raises:
        ValueError: a name is not Unicode text, or the result is larger than protobuf's limit of 2 GiB.
    """
    entries: list[bytes] = []
    for name, value in sorted((_encode_name(name), value) for name, value in features.items()):
        feature = _encode_feature(value)
        entry = b"".join((b"\n", encode_varint(len(name)), name, b"\x12", encode_varint(len(feature)), feature))
        entries += (b"\n", encode_varint(len(entry)), entry)
    body = b"".join(entries)
    encoded = b"\n" + encode_varint(len(body)) + body
    if len(encoded) > _MAX_EXAMPLE_BYTES:
        raise ValueError(f"example of {len(encoded)} bytes exceeds protobuf's limit of {_MAX_EXAMPLE_BYTES} bytes")
    return encoded


def parse_example(data: bytes, *, name: str, offset: int) -> Example:
    """Take a record's data apart.

    Args:
        data: the record's data.
        name: the shard, for messages.
        offset: where the data start in the shard, for messages.

    Returns:
        Features in the order of the bytes.

    Raises:
        ExampleFormatError: the bytes are damaged, or are another message: a SequenceExample, or one that has nothing
            but fields an Example does not know.
    """
    try:
        return _parse_features(data)
    except WireError as error:
        raise ExampleFormatError(name, offset + error.offset, error.reason) from error


def _encode_name(name: str) -> bytes:
    try:
        return name.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"feature name {printable(name)!r} is not Unicode text, protobuf cannot store it") from None


def _encode_feature(value: FeatureValue) -> bytes:
    if isinstance(value, BytesList):
        tag, body = b"\n", b"".join(b"".join((b"\n", encode_varint(len(item)), item)) for item in value.values)
    elif isinstance(value, FloatList):
        tag, body = b"\x12", _encode_packed(_swap_to_little(value.values).tobytes())
    elif isinstance(value, Int64List):
        tag, body = (
            b"\x1a",
            _encode_packed(b"".join([encode_varint(item & 0xFFFFFFFFFFFFFFFF) for item in value.values])),
        )
    else:
        return b""
    return tag + encode_varint(len(body)) + body


def _encode_packed(packed: bytes) -> bytes:
    return b"\n" + encode_varint(len(packed)) + packed if packed else b""


def _swap_to_little(values: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values


def _parse_features(data: bytes) -> Example:
    features: dict[str, FeatureValue] = {}
    has_features = False
    unknown: list[int] = []
    for number, wire_type, start, end in iter_fields(data, 0, len(data)):
        if (number, wire_type) != (1, LENGTH_DELIMITED):
            unknown.append(number)
            continue
        has_features = True
        for inner, inner_type, entry, entry_end in iter_fields(data, start, end):
            if (inner, inner_type) == (1, LENGTH_DELIMITED):
                name, value = _parse_entry(data, entry, entry_end)
                # Taken out first, so that the order is that of the entries that count.
                features.pop(name, None)
                features[name] = value
    if unknown:
        _refuse_other_messages(data, has_features=has_features, unknown=unknown)
    return features


def _refuse_other_messages(data: bytes, *, has_features: bool, unknown: list[int]) -> None:
    if classify_record(data) == "sequence_example":
        names: dict[int, list[str]] = {1: [], 2: []}
        for number, _, start, end in iter_fields(data, 0, len(data)):
            names[number] += list_map_names(data, start, end)
        raise WireError(
            0,
            f"this is a tf.train.SequenceExample with context features {_list_names(names[1])} and feature lists "
            f"{_list_names(names[2])}; read the record as bytes",
        )
    if not has_features:
        numbers = ", ".join(str(number) for number in sorted(set(unknown))[:LISTED_NAMES])
        raise WireError(0, f"no features, only fields an Example does not have ({numbers}); read the record as bytes")


def _list_names(names: list[str]) -> str:
    listed = ", ".join(printable(name) for name in sorted(set(names))[:LISTED_NAMES])
    return f"[{listed}{', …' if len(names) > LISTED_NAMES else ''}]"


def _parse_entry(data: bytes, start: int, end: int) -> tuple[str, FeatureValue]:
    name = ""
    spans: list[tuple[int, int]] = []
    for number, wire_type, value, value_end in iter_fields(data, start, end):
        if wire_type != LENGTH_DELIMITED:
            continue
        if number == 1:
            try:
                name = data[value:value_end].decode("utf-8")
            except UnicodeDecodeError:
                raise WireError(value, "feature name is not UTF-8") from None
        elif number == 2:
            spans.append((value, value_end))
    return name, _parse_feature(data, spans)


def _parse_feature(data: bytes, spans: list[tuple[int, int]]) -> FeatureValue:
    """Merge the occurrences of one Feature message."""
    kind = 0
    items: list[bytes] = []
    floats = array("f")
    integers = array("q")
    for start, end in spans:
        for number, wire_type, value, value_end in iter_fields(data, start, end):
            if wire_type != LENGTH_DELIMITED or number not in (1, 2, 3):
                continue
            if number != kind:
                # The oneof forgets what another kind had.
                kind = number
                items, floats, integers = [], array("f"), array("q")
            if number == 1:
                _parse_bytes(data, value, value_end, items)
            elif number == 2:
                _parse_floats(data, value, value_end, floats)
            else:
                _parse_integers(data, value, value_end, integers)
    if kind == 1:
        return BytesList(tuple(items))
    if kind == 2:
        return FloatList(_swap_to_little(floats))
    return Int64List(integers) if kind == 3 else UNSET


def _parse_bytes(data: bytes, start: int, end: int, into: list[bytes]) -> None:
    for number, wire_type, value, value_end in iter_fields(data, start, end):
        if (number, wire_type) == (1, LENGTH_DELIMITED):
            into.append(data[value:value_end])


def _parse_floats(data: bytes, start: int, end: int, into: "array[float]") -> None:
    for number, wire_type, value, value_end in iter_fields(data, start, end):
        if number != 1 or wire_type not in (LENGTH_DELIMITED, FIXED32):
            continue
        if (value_end - value) % 4:
            raise WireError(value, f"packed floats of {value_end - value} bytes are no multiple of 4")
        into.frombytes(data[value:value_end])


def _parse_integers(data: bytes, start: int, end: int, into: "array[int]") -> None:
    for number, wire_type, value, value_end in iter_fields(data, start, end):
        if number != 1:
            continue
        if wire_type == VARINT:
            into.append(to_signed(read_varint(data, value, value_end)[0]))
        elif wire_type == LENGTH_DELIMITED:
            read_packed_integers(data, value, value_end, into)
