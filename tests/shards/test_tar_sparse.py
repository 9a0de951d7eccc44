import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.tar.header import HeaderFault
from shards.tar.sparse import MapText, decode_extension_map, decode_header_map, decode_pax_map, place_extents

PIECES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=12).map(
    # (gap, size) pairs made into ascending (offset, size) pairs
    lambda gaps: [
        (sum(gap for gap, _ in gaps[: place + 1]) + sum(size for _, size in gaps[:place]), gaps[place][1])
        for place in range(len(gaps))
    ]
)


def test_all_four_encodings_give_the_same_map() -> None:
    pieces = [(0, 5), (512, 7), (1000, 0)]
    header = bytearray(512)
    for place, (offset, size) in enumerate(pieces):
        header[386 + 24 * place : 410 + 24 * place] = b"%011o\0%011o\0" % (offset, size)
    header[483:495] = b"%011o\0" % 1000
    assert decode_header_map(bytes(header)) == (pieces, False, 1000)

    extension = bytearray(512)
    extension[:24] = b"%011o\0%011o\0" % pieces[1]
    extension[504] = 1
    assert decode_extension_map(bytes(extension)) == ([pieces[1]], True)

    repeated = [
        record
        for offset, size in pieces
        for record in ((b"GNU.sparse.offset", b"%d" % offset), (b"GNU.sparse.numbytes", b"%d" % size))
    ]
    assert decode_pax_map(repeated, 10) == pieces
    assert decode_pax_map([(b"GNU.sparse.map", b"0,5,512,7,1000,0")], 10) == pieces
    assert decode_pax_map([(b"path", b"x")], 10) is None

    text = MapText(10)
    assert text.feed(b"3\n0\n5\n512\n7\n1000\n0\n".ljust(512, b"\0"))
    assert text.pieces == pieces


@given(PIECES)
def test_map_text_may_be_cut_anywhere(pieces: list[tuple[int, int]]) -> None:
    text = b"%d\n" % len(pieces) + b"".join(b"%d\n%d\n" % piece for piece in pieces)
    reader = MapText(100)
    done = [reader.feed(text[at : at + 3]) for at in range(0, len(text), 3)]
    assert done[-1]
    assert not any(done[:-1])
    assert reader.pieces == pieces


@pytest.mark.parametrize("text", [b"x\n", b"-1\n", b"1\n2\n" + b"3" * 30, b"\n", b"9" * 30, bytes(512)])
def test_map_text_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(HeaderFault):
        MapText(100).feed(text)


@pytest.mark.parametrize(
    "records",
    [
        [(b"GNU.sparse.map", b"1,2,3")],
        [(b"GNU.sparse.map", b"1,")],
        [(b"GNU.sparse.map", b"1,-2")],
        [(b"GNU.sparse.offset", b"1")],
        [(b"GNU.sparse.numbytes", b"1"), (b"GNU.sparse.offset", b"1")],
        [(b"GNU.sparse.map", b",".join([b"1"] * 202))],
    ],
)
def test_malformed_or_long_map_is_refused(records: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(HeaderFault):
        decode_pax_map(records, 100)


def test_long_map_text_is_refused_by_its_claim() -> None:
    with pytest.raises(HeaderFault, match="limit of 100"):
        MapText(100).feed(b"101\n")


@given(PIECES, st.integers(0, 100), st.integers(0, 10_000))
def test_extents_hold_every_stored_byte_once(pieces: list[tuple[int, int]], hole: int, start: int) -> None:
    stored = sum(size for _, size in pieces)
    size = (pieces[-1][0] + pieces[-1][1] if pieces else 0) + hole
    extents = place_extents(pieces, size=size, stored_offset=start, stored_size=stored)
    if stored == size:
        assert extents == ()
        return
    assert sum(length for _, length, _ in extents) == stored
    at = start
    end = 0
    for offset, length, stored_offset in extents:
        assert stored_offset == at
        assert end <= offset
        end = offset + length
        at += length
    assert end <= size


@pytest.mark.parametrize(
    ("pieces", "size", "stored"),
    [
        ([(0, 5), (4, 5)], 100, 10),
        ([(50, 5), (0, 5)], 100, 10),
        ([(98, 5)], 100, 5),
        ([(0, 5)], 100, 6),
        ([(0, 5)], 100, 4),
        ([(101, 0)], 100, 0),
    ],
)
def test_impossible_extents_are_refused(pieces: list[tuple[int, int]], size: int, stored: int) -> None:
    with pytest.raises(HeaderFault, match="bad sparse map"):
        place_extents(pieces, size=size, stored_offset=512, stored_size=stored)
