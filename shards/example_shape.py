"""Says what a record is by its bytes, without taking it apart: Example, SequenceExample or something else; pure.

Protobuf messages do not name their type, and a parser takes nearly any message for any other one by skipping unknown
fields: a SequenceExample parses as an Example without features. So a record is called an Example only if every byte
belongs to the structure of one::

    Example          { Features features = 1 }
    SequenceExample  { Features context = 1;  FeatureLists feature_lists = 2 }
    Features         { map<string, Feature> feature = 1 }
    FeatureLists     { map<string, FeatureList> feature_list = 1 }
    FeatureList      { repeated Feature feature = 1 }
    Feature          { oneof: BytesList = 1, FloatList = 2, Int64List = 3 }    each { repeated … value = 1 }

Source: TensorFlow, ``tensorflow/core/example/{example,feature}.proto``.
"""

import re
from collections.abc import Callable
from typing import Literal

from shards.wire import FIXED32, LENGTH_DELIMITED, VARINT, WireError, iter_fields, read_varint

RecordKind = Literal["example", "sequence_example", "record"]

FOREIGN_EXTENSIONS = frozenset({"example", "sequence_example", "record"})
"""Of the one member that a foreign record gives."""

_LENGTH_TAG_1 = 0x0A
_LENGTH_TAG_2 = 0x12
_LONG_VARINT = re.compile(rb"[\x80-\xff]{10}")


def classify_record(data: bytes) -> RecordKind:
    """Name the kind of a record's data.

    Empty data are a ``"record"``: they are valid for every protobuf type. A SequenceExample that has only a context is
    the same bytes as an Example, and is called one.
    """
    if not data:
        return "record"
    kind: RecordKind = "example"
    try:
        for number, wire_type, start, end in iter_fields(data, 0, len(data)):
            if wire_type != LENGTH_DELIMITED:
                return "record"
            if number == 1 and _is_map(data, start, end, _is_feature):
                continue
            if number == 2 and _is_map(data, start, end, _is_feature_list):
                kind = "sequence_example"
                continue
            return "record"
    except WireError:
        return "record"
    return kind


def find_bytes_feature_spans(data: bytes) -> tuple[tuple[str, int, int], ...] | None:
    """Find the values of an Example whose features all are one bytes value, without copying them.

    Returns:
        (feature name, offset in ``data``, size) in the order of the bytes; None when ``data`` are anything else,
        unusual encodings of such an Example included.
    """
    spans: list[tuple[str, int, int]] = []
    try:
        pos, end = _enter(data, 0, len(data), _LENGTH_TAG_1)
        if end != len(data):
            return None
        while pos < end:
            entry, entry_end = _enter(data, pos, end, _LENGTH_TAG_1)
            name, name_end = _enter(data, entry, entry_end, _LENGTH_TAG_1)
            feature, feature_end = _enter(data, name_end, entry_end, _LENGTH_TAG_2)
            values, values_end = _enter(data, feature, feature_end, _LENGTH_TAG_1)
            value, value_end = _enter(data, values, values_end, _LENGTH_TAG_1)
            if not entry_end == feature_end == values_end == value_end:
                return None
            spans.append((data[name:name_end].decode("utf-8"), value, value_end - value))
            pos = entry_end
    except (WireError, UnicodeDecodeError):
        return None
    return tuple(spans)


def list_map_names(data: bytes, start: int, end: int) -> list[str]:
    """List the keys of the map message in ``data[start:end]``.

    Raises:
        WireError: the bytes are no message.
    """
    names = []
    for number, wire_type, entry, entry_end in iter_fields(data, start, end):
        if (number, wire_type) == (1, LENGTH_DELIMITED):
            for inner, inner_type, name, name_end in iter_fields(data, entry, entry_end):
                if (inner, inner_type) == (1, LENGTH_DELIMITED):
                    names.append(data[name:name_end].decode("utf-8", "surrogateescape"))
    return names


def _enter(data: bytes, pos: int, end: int, tag: int) -> tuple[int, int]:
    """Give the span behind a one-byte tag and its length."""
    if pos >= end or data[pos] != tag:
        raise WireError(pos, "another field")
    length, start = read_varint(data, pos + 1, end)
    if length > end - start:
        raise WireError(pos, "length exceeds the message")
    return start, start + length


def _is_map(data: bytes, start: int, end: int, is_value: Callable[[bytes, int, int], bool]) -> bool:
    for number, wire_type, entry, entry_end in iter_fields(data, start, end):
        if (number, wire_type) != (1, LENGTH_DELIMITED):
            return False
        for inner, inner_type, value, value_end in iter_fields(data, entry, entry_end):
            if inner_type != LENGTH_DELIMITED:
                return False
            if inner == 1:
                if not _is_text(data[value:value_end]):
                    return False
            elif inner != 2 or not is_value(data, value, value_end):
                return False
    return True


def _is_feature_list(data: bytes, start: int, end: int) -> bool:
    return all(
        (number, wire_type) == (1, LENGTH_DELIMITED) and _is_feature(data, value, value_end)
        for number, wire_type, value, value_end in iter_fields(data, start, end)
    )


def _is_feature(data: bytes, start: int, end: int) -> bool:
    return all(
        wire_type == LENGTH_DELIMITED and number in (1, 2, 3) and _is_list(data, value, value_end, number)
        for number, wire_type, value, value_end in iter_fields(data, start, end)
    )


def _is_list(data: bytes, start: int, end: int, kind: int) -> bool:
    single = (LENGTH_DELIMITED, FIXED32, VARINT)[kind - 1]
    for number, wire_type, value, value_end in iter_fields(data, start, end):
        if number != 1:
            return False
        if wire_type == single:
            continue
        if wire_type != LENGTH_DELIMITED or not _is_packed(data[value:value_end], kind):
            return False
    return True


def _is_packed(packed: bytes, kind: int) -> bool:
    if kind == 2:
        return len(packed) % 4 == 0
    return not packed or (packed[-1] < 0x80 and not _LONG_VARINT.search(packed))


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
