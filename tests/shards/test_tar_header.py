import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.tar.encoder import MAX_NAME_BYTES, encode_header
from shards.tar.header import (
    HeaderFault,
    PlainHeaderDecoder,
    check_checksum,
    decode_header,
    decode_number,
    is_header,
)

NAME_BYTES = st.binary(min_size=1, max_size=100).filter(lambda name: b"\0" not in name and name[-1:] != b"/")
SIZES = st.integers(0, 8**11 - 1)


@given(NAME_BYTES, SIZES)
def test_plain_header_is_decoded_as_encoded_by_both_decoders(name: bytes, size: int) -> None:
    block = encode_header(name, size)
    assert len(block) == 512
    header = decode_header(block)
    assert (header.name, header.size, header.typeflag, header.link_name) == (name, size, b"0", b"")
    assert PlainHeaderDecoder().decode(block) == (name.decode("utf-8", "surrogateescape"), size)


@given(NAME_BYTES, SIZES)
def test_standard_library_reads_the_same_header(name: bytes, size: int) -> None:
    info = tarfile.TarInfo.frombuf(encode_header(name, size), "utf-8", "surrogateescape")
    assert (info.name.encode("utf-8", "surrogateescape"), info.size, info.mode) == (name, size, 0o444)
    assert (info.uid, info.gid, info.mtime, info.uname, info.gname) == (0, 0, 0, "", "")


@given(NAME_BYTES, SIZES, st.integers(0, 512 * 8 - 1))
def test_flipped_bit_is_found_by_both_decoders_or_changes_nothing(name: bytes, size: int, bit: int) -> None:
    block = bytearray(encode_header(name, size))
    plain = PlainHeaderDecoder()
    plain.decode(bytes(block))
    block[bit // 8] ^= 1 << bit % 8
    found = plain.decode(bytes(block))
    assert found is None
    try:
        header = decode_header(bytes(block))
    except HeaderFault:
        return
    # Only the checksum field itself has such bits: a space for a leading zero, or what stands behind its end.
    assert 148 <= bit // 8 < 156
    assert (header.name, header.size, header.typeflag) == (name, size, b"0")


@given(st.lists(st.tuples(NAME_BYTES, SIZES), max_size=5), st.binary(min_size=512, max_size=512))
def test_fast_decoder_agrees_with_the_slow_one_whatever_came_before(
    before: list[tuple[bytes, int]], block: bytes
) -> None:
    plain = PlainHeaderDecoder()
    for name, size in before:
        assert plain.decode(encode_header(name, size)) is not None
    assert plain.decode(block) is None
    assert plain.decode(block[:100]) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"0000644\0", 0o644),
        (b"00000000017\0", 15),
        (b"000000000017", 15),
        (b"         17 ", 15),
        (b"17\0        ", 15),
        (b"17 \0garbage", 15),
        (b"\0" * 12, 0),
        (b" " * 8, 0),
        (b"\x80" + b"\0" * 10 + b"\x07", 7),
        (b"\x80" + (1 << 40).to_bytes(11, "big"), 1 << 40),
        (b"\xff" * 12, -1),
        (b"\xff" * 11 + b"\xfe", -2),
    ],
)
def test_number_fields(field: bytes, value: int) -> None:
    assert decode_number(field) == value


@pytest.mark.parametrize("field", [b"0000648\0", b"-1 ", b"0o17", b"1_7", b"+17", b"0x1f", b"17garbage", b"\x7f17"])
def test_other_number_fields_are_refused(field: bytes) -> None:
    with pytest.raises(HeaderFault, match="not an octal number"):
        decode_number(field)


def test_signed_checksum_is_taken() -> None:
    block = bytearray(encode_header("é".encode("latin-1"), 3))
    summed = block[:148] + b" " * 8 + block[156:]
    block[148:156] = b"%06o\0 " % sum(byte - 256 if byte > 127 else byte for byte in summed)
    check_checksum(bytes(block))
    assert decode_header(bytes(block)).name == b"\xe9"


def test_wrong_checksum_quotes_the_first_bytes() -> None:
    page = b"<!DOCTYPE html><title>502 Bad Gateway</title>".ljust(512)
    with pytest.raises(HeaderFault, match="DOCTYPE html"):
        check_checksum(page)
    assert not is_header(page)


@pytest.mark.parametrize("num_bytes", [0, 1, 511])
def test_short_block_is_no_header(num_bytes: int) -> None:
    assert not is_header(encode_header(b"a.txt", 1)[:num_bytes])


@pytest.mark.parametrize("size", [-1, 1 << 63, 1 << 90])
def test_impossible_size_is_no_header(size: int) -> None:
    with pytest.raises(ValueError, match="cannot have"):
        encode_header(b"a.txt", size)


def test_negative_and_absurd_base_256_sizes_are_refused() -> None:
    for field, reason in [(b"\xff" * 12, "negative size -1"), (b"\x80" + b"\x7f" + b"\xff" * 10, "larger than any")]:
        block = bytearray(encode_header(b"a.txt", 1))
        block[124:136] = field
        block[148:156] = b"%06o\0 " % sum(block[:148] + b" " * 8 + block[156:])
        with pytest.raises(HeaderFault, match=reason):
            decode_header(bytes(block))


@pytest.mark.parametrize("size", [8**11, 8**11 + 1, 1 << 40, (1 << 63) - 1])
def test_large_size_is_base_256_in_one_block(size: int) -> None:
    block = encode_header(b"a.bin", size)
    assert len(block) == 512
    assert decode_header(block).size == size
    assert tarfile.TarInfo.frombuf(block, "utf-8", "strict").size == size


def test_name_of_exactly_the_field_needs_no_prefix() -> None:
    name = b"d" * 49 + b"/" + b"n" * 50
    assert encode_header(name, 1)[:100] == name
    assert encode_header(name, 1)[345:500] == bytes(155)


def test_longer_name_is_split_at_a_slash() -> None:
    name = b"p" * 155 + b"/" + b"n" * 100
    block = encode_header(name, 1)
    assert len(block) == 512
    assert (block[:100], block[345:500]) == (b"n" * 100, b"p" * 155)
    assert decode_header(block).name == name


@pytest.mark.parametrize("name", [b"n" * 101, b"p" * 156 + b"/n", b"p/" + b"n" * 101, b"n" * MAX_NAME_BYTES])
def test_name_that_cannot_be_split_gets_a_long_name_entry(name: bytes) -> None:
    blocks = encode_header(name, 1)
    assert blocks[156:157] == b"L"
    assert len(blocks) == 1024 + -(-(len(name) + 1) // 512) * 512
    assert blocks[512 : 512 + len(name) + 1] == name + b"\0"


def test_longest_name_is_documented() -> None:
    with pytest.raises(ValueError, match="4095 bytes"):
        encode_header(b"n" * (MAX_NAME_BYTES + 1), 1)
