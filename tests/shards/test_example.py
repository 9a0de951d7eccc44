"""The Example codec: protobuf's rules, three kinds of nothing kept apart, no crash on any bytes."""

import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import ExampleFormatError
from shards.example import (
    UNSET,
    BytesList,
    Example,
    classify_record,
    encode_example,
    find_bytes_feature_spans,
    make_floats,
    make_integers,
    parse_example,
)
from shards.wire import encode_varint

int64 = st.integers(-(2**63), 2**63 - 1)
values = st.one_of(
    st.just(UNSET),
    st.lists(st.binary(max_size=30), max_size=4).map(lambda items: BytesList(tuple(items))),
    st.lists(st.floats(width=32, allow_nan=False), max_size=6).map(make_floats),
    st.lists(st.one_of(int64, st.integers(0, 100)), max_size=6).map(make_integers),
)
examples = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), values, max_size=6)


def _field(number: int, body: bytes) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(len(body)) + body


def _example(*entries: bytes) -> bytes:
    return _field(1, b"".join(_field(1, entry) for entry in entries))


def _entry(name: bytes, *features: bytes) -> bytes:
    return _field(1, name) + b"".join(_field(2, feature) for feature in features)


def _parse(data: bytes) -> Example:
    return parse_example(data, name="shard-3", offset=100)


@settings(deadline=None)
@given(features=examples)
def test_round_trip(features: Example) -> None:
    encoded = encode_example(features)
    assert _parse(encoded) == features
    assert classify_record(encoded) == "example"
    assert encode_example(dict(reversed(list(features.items())))) == encoded


def test_missing_unset_and_empty_stay_apart() -> None:
    features: Example = {"unset": UNSET, "bytes": BytesList(), "floats": make_floats(), "integers": make_integers()}
    parsed = _parse(encode_example(features))
    assert parsed == features
    assert "missing" not in parsed
    assert len({repr(value) for value in parsed.values()}) == 4


def test_nan_and_negative_zero_keep_their_bits() -> None:
    bits = array("I", [0x7FC00001, 0x80000000, 0xFFC00000, 0x00000001])
    value = make_floats()
    value.values.frombytes(bits.tobytes())
    parsed = _parse(encode_example({"f": value}))["f"]
    assert parsed.values.tobytes() == bits.tobytes()


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, 2**31, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("count", [1, 3, 100, 1000])
def test_integers_of_every_width_and_list_length(number: int, count: int) -> None:
    assert _parse(encode_example({"n": make_integers([number, 5] * count)}))["n"] == make_integers([number, 5] * count)


@given(numbers=st.lists(int64, min_size=60, max_size=200))
def test_long_and_short_integer_lists_decode_alike(numbers: list[int]) -> None:
    halves = [encode_example({"n": make_integers([number])}) for number in numbers]
    assert _parse(encode_example({"n": make_integers(numbers)}))["n"].values.tolist() == [
        _parse(half)["n"].values[0] for half in halves
    ]


def test_unpacked_lists_are_read() -> None:
    floats = b"".join(b"\x0d" + struct.pack("<f", number) for number in (1.5, -2.0))
    integers = b"\x08\x05\x08" + encode_varint(2**64 - 3)
    data = _example(_entry(b"f", _field(2, floats)), _entry(b"i", _field(3, integers)))
    assert _parse(data) == {"f": make_floats([1.5, -2.0]), "i": make_integers([5, -3])}
    assert classify_record(data) == "example"


def test_repeated_occurrences_are_merged_as_protobuf_does() -> None:
    one, two = _field(3, _field(1, b"\x01")), _field(3, _field(1, b"\x02") + b"\x08\x03")
    text = _field(1, _field(1, b"text"))
    assert _parse(_example(_entry(b"n", one + two))) == {"n": make_integers([1, 2, 3])}
    assert _parse(_example(_entry(b"n", one, two))) == {"n": make_integers([1, 2, 3])}
    assert _parse(_example(_entry(b"n", one + text))) == {"n": BytesList((b"text",))}
    assert _parse(_example(_entry(b"n", one + text + two))) == {"n": make_integers([2, 3])}
    assert _parse(_example(_entry(b"n", one), _entry(b"m", text), _entry(b"n", two))) == {
        "n": make_integers([2, 3]),
        "m": BytesList((b"text",)),
    }
    assert _parse(_example(_entry(b"a", one)) + _example(_entry(b"b", two))) == {
        "a": make_integers([1]),
        "b": make_integers([2, 3]),
    }


def test_map_entries_in_both_orders_and_with_parts_missing() -> None:
    value = _field(1, _field(1, b"v"))
    data = _example(_field(2, value) + _field(1, b"late"), _field(2, value), _field(1, b"no value"))
    assert _parse(data) == {"late": BytesList((b"v",)), "": BytesList((b"v",)), "no value": UNSET}


def test_unknown_fields_are_skipped_everywhere() -> None:
    unknown = b"\x78\x01" + b"\x79" + bytes(8) + b"\x7d" + bytes(4) + _field(15, b"xyz") + b"\x7b\x7b\x08\x01\x7c\x7c"
    feature = unknown + _field(1, unknown + _field(1, b"v")) + unknown
    data = unknown + _field(1, unknown + _field(1, unknown + _entry(b"n", feature))) + unknown
    assert _parse(data) == {"n": BytesList((b"v",))}
    assert classify_record(data) == "record"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a", "varint is cut"),
        (b"\x0a\x05abc", "claims 5 bytes, 3 are left"),
        (b"\x0a" + encode_varint(2**62), "claims 4611686018427387904 bytes"),
        (b"\x0a" + b"\xff" * 11, "longer than 10 bytes"),
        (b"\x00\x00", "field tag is out of range"),
        (b"\x0e\x00", "unknown wire type 6"),
        (b"\x0c", "ends but has not started"),
        (b"\x1b\x24", "another one is open"),
        (b"\x1b" * 1000, "deeper than 100"),
        (b"\x1b\x08", "varint is cut"),
        (b"\x1d\x00", "needs 4 bytes, 1 are left"),
        (_example(_entry(b"n", _field(2, _field(1, b"12345")))), "no multiple of 4"),
        (_example(_entry(b"n", _field(3, _field(1, b"\x80")))), "varint is cut"),
        (_example(_entry(b"n", _field(3, _field(1, b"\x80" * 300)))), "varint is cut"),
        (_example(_entry(b"n", _field(3, _field(1, b"\x01" * 300 + b"\x80")))), "varint is cut"),
        (_example(_entry(b"n", _field(3, _field(1, b"\x80" * 10 + b"\x01" * 300)))), "longer than 10 bytes"),
        (_example(_entry(b"\xff", b"")), "not UTF-8"),
    ],
)
def test_malformed_bytes_are_one_error_with_shard_and_offset(data: bytes, reason: str) -> None:
    with pytest.raises(ExampleFormatError, match=rf"shard-3 at byte offset [1-4]\d\d: .*{reason}"):
        _parse(data)


@settings(max_examples=300, deadline=None)
@given(features=examples, data=st.data())
def test_no_damage_makes_the_codec_raise_anything_else(features: Example, data: st.DataObject) -> None:
    blob = bytearray(encode_example(features))
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    blob = blob[: data.draw(st.integers(0, len(blob)))]
    kind = classify_record(bytes(blob))
    find_bytes_feature_spans(bytes(blob))
    try:
        parsed = _parse(bytes(blob))
    except ExampleFormatError:
        assert kind != "example"
    else:
        # Whatever is accepted has one canonical encoding.
        assert encode_example(_parse(encode_example(parsed))) == encode_example(parsed)


def _sequence(context: bytes) -> bytes:
    steps = _field(1, _field(3, _field(1, b"\x01"))) + _field(1, b"")
    return context + _field(2, _field(1, _field(1, b"frames") + _field(2, steps)))


def test_a_sequence_example_is_named_with_its_keys() -> None:
    data = _sequence(_example(_entry(b"length", b"")))
    assert classify_record(data) == "sequence_example"
    with pytest.raises(ExampleFormatError, match=r"SequenceExample with context features \[length\].*lists \[frames\]"):
        _parse(data)
    assert classify_record(_sequence(b"")) == "sequence_example"
    with pytest.raises(ExampleFormatError, match=r"context features \[\]"):
        _parse(_sequence(b""))


def test_another_message_is_not_taken_for_an_example_without_features() -> None:
    with pytest.raises(ExampleFormatError, match=r"fields an Example does not have \(3, 15\)"):
        _parse(b"\x18\x01" + _field(15, b"name"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"plain text",
        b"\x08\x01",
        _field(3, b""),
        _field(1, b"name"),
        _example(b"\x08\x01"),
        _example(_field(3, b"")),
        _example(_entry(b"\xff")),
        _example(_entry(b"n", _field(4, b""))),
        _example(_entry(b"n", _field(1, b"\x08\x01"))),
        _example(_entry(b"n", _field(1, _field(2, b"")))),
        _example(_entry(b"n", _field(2, _field(1, b"123")))),
        _example(_entry(b"n", _field(3, _field(1, b"\x80")))),
        _field(2, _field(1, _field(2, _field(2, b"")))),
        _field(2, b"name"),
    ],
)
def test_other_records_are_just_records(data: bytes) -> None:
    assert classify_record(data) == "record"


def test_spans_point_at_the_values() -> None:
    features = {"a": BytesList((b"one",)), "b": BytesList((b"",)), "c" * 200: BytesList((bytes(1000),))}
    data = encode_example(features)
    spans = find_bytes_feature_spans(data)
    assert spans is not None
    assert {name: BytesList((data[offset : offset + size],)) for name, offset, size in spans} == features
    assert find_bytes_feature_spans(encode_example({})) == ()


@settings(deadline=None)
@given(features=examples)
def test_spans_exist_exactly_for_single_bytes_values(features: Example) -> None:
    data = encode_example(features)
    spans = find_bytes_feature_spans(data)
    is_single = all(isinstance(value, BytesList) and len(value.values) == 1 for value in features.values())
    assert (spans is not None) == is_single
    if spans is not None:
        assert {name: (data[offset : offset + size],) for name, offset, size in spans} == {
            name: value.values for name, value in features.items()
        }


def test_names_that_are_not_text_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'caf\\\\udce9' is not Unicode"):
        encode_example({"caf\udce9": UNSET})


def test_integers_beyond_int64_are_refused() -> None:
    with pytest.raises(OverflowError):
        make_integers([2**63])
