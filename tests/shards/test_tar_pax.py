import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.tar.header import HeaderFault
from shards.tar.pax import Extension, decode_decimal, last_number, last_value, parse_records

KEYWORDS = st.binary(min_size=1, max_size=20).filter(lambda word: b"=" not in word)
RECORDS = st.lists(st.tuples(KEYWORDS, st.binary(max_size=200)), max_size=6)


def encode_record(keyword: bytes, value: bytes) -> bytes:
    body = b" " + keyword + b"=" + value + b"\n"
    length = len(body)
    while len(str(length)) + len(body) != length:
        length = len(str(length)) + len(body)
    return str(length).encode() + body


@given(RECORDS, st.integers(0, 600))
def test_records_come_back_in_order_whatever_their_values(records: list[tuple[bytes, bytes]], padding: int) -> None:
    data = b"".join(encode_record(*record) for record in records)
    assert parse_records(data + bytes(padding)) == records


@given(st.binary(max_size=300))
def test_any_bytes_parse_or_fault(data: bytes) -> None:
    with contextlib.suppress(HeaderFault):
        parse_records(data)


@pytest.mark.parametrize(
    "data",
    [
        b"0 path=x\n",
        b"5 a=\n6 path=x\n",
        b"99999 path=x\n",
        b"8 path=x\n",
        b"-9 path=x\n",
        b"+9 path=x\n",
        b"9path=x\n",
        b" 9 path=x\n",
        b"10 pathxx\n\n",
        b"6 =abc\n"[:7],
        b"4 a\n",
        b"9 path=x\n\0x",
        b"00000000000000000000000000009 path=x\n",
        b"99999999999999999999999999999999999999999 path=x\n",
    ],
)
def test_malformed_record_is_refused(data: bytes) -> None:
    with pytest.raises(HeaderFault, match="bad PAX record"):
        parse_records(data)


def test_last_value_counts_and_an_empty_one_takes_it_back() -> None:
    assert last_value([(b"path", b"a"), (b"path", b"b")], b"path") == b"b"
    assert last_value([(b"path", b"a"), (b"path", b"")], b"path") is None
    assert last_value([], b"path") is None


@pytest.mark.parametrize("value", [b"-1", b"1.5", b"0x10", b"1_0", b" 1", b"9223372036854775808", b"9" * 5000, b"\xb2"])
def test_size_that_is_no_size_is_refused(value: bytes) -> None:
    with pytest.raises(HeaderFault, match="bad number in PAX size"):
        last_number([(b"size", value)], b"size")


def test_largest_size_is_a_size() -> None:
    assert decode_decimal(b"9223372036854775807", "size") == (1 << 63) - 1


def test_two_names_that_differ_are_refused() -> None:
    extension = Extension(records=[(b"path", b"a")], long_name=b"b")
    with pytest.raises(HeaderFault, match="two values for path"):
        extension.text(b"path", extension.long_name)
    extension.long_name = b"a"
    assert extension.text(b"path", extension.long_name) == b"a"
