"""TFRecord frames: nothing is believed before it is checked, and damage anywhere is an error that says where."""

import gzip
import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import FormatError, TFRecordFormatError
from shards.tfrecord.frames import RecordLimits, frame_header, frame_record, read_records

RECORDS = [b"first", b"", b"x" * 300, b"\x1f\x8b" * 20, b"last"]
SHARD = b"".join(map(frame_record, RECORDS))
EDGES = [sum(len(data) + 16 for data in RECORDS[:count]) for count in range(len(RECORDS) + 1)]

records_strategy = st.lists(st.binary(max_size=200), max_size=8)


class Pipe(io.RawIOBase):
    """An unseekable stream whose reads are as short as a script of sizes says."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._source = io.BytesIO(data)
        self._sizes = sizes
        self._turn = 0

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1) -> bytes:
        self._turn += 1
        return self._source.read(min(size, self._sizes[self._turn % len(self._sizes)]))


def _read(data: bytes, name: str = "train-000000.tfrecord") -> list[bytes]:
    return [record.data for record in read_records(io.BytesIO(data), name)]


def test_frame_is_the_published_one() -> None:
    # The record that TensorFlow writes for b"abc".
    assert frame_record(b"abc").hex() == "0300000000000000b099490e6162636e57f121"


@pytest.mark.parametrize("length", [-1, 2**64])
def test_a_length_outside_64_bits_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=r"2\*\*64"):
        frame_header(length)


@settings(deadline=None)
@given(records=records_strategy, sizes=st.lists(st.integers(1, 99), min_size=1, max_size=4), data=st.data())
def test_round_trip_is_the_same_for_every_way_of_reading(
    records: list[bytes], sizes: list[int], data: st.DataObject
) -> None:
    plain = b"".join(map(frame_record, records))
    compress: Callable[[bytes], bytes] = data.draw(st.sampled_from([bytes, gzip.compress, zlib.compress]))
    whole = list(read_records(io.BytesIO(compress(plain)), "s"))
    assert [record.data for record in whole] == records
    assert list(read_records(Pipe(compress(plain), sizes), "s")) == whole
    for record in whole:
        assert record.data_offset == record.offset + 12
        assert plain[record.data_offset : record.data_offset + len(record.data)] == record.data


@pytest.mark.parametrize("is_pipe", [False, True])
def test_every_cut_inside_a_record_is_an_error_after_the_records_before_it(is_pipe: bool) -> None:
    for length in range(len(SHARD)):
        source = Pipe(SHARD[:length], [7]) if is_pipe else io.BytesIO(SHARD[:length])
        found = []
        if length in EDGES:
            # Legal in this format: only the index or the manifest can tell that records are missing.
            assert [record.data for record in read_records(source, "s")] == RECORDS[: EDGES.index(length)]
            continue
        with pytest.raises(TFRecordFormatError, match="file ends") as caught:
            found.extend(record.data for record in read_records(source, "s"))
        start = max(edge for edge in EDGES if edge <= length)
        assert caught.value.offset == start
        assert found == RECORDS[: EDGES.index(start)]


def test_records_before_the_damage_are_given() -> None:
    reader = read_records(io.BytesIO(SHARD[:-1]), "s")
    assert [next(reader).data for _ in RECORDS[:-1]] == RECORDS[:-1]
    with pytest.raises(TFRecordFormatError):
        next(reader)


def test_every_flipped_bit_is_an_error() -> None:
    for bit in range(8 * len(SHARD)):
        damaged = bytearray(SHARD)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TFRecordFormatError) as caught:
            _read(bytes(damaged))
        assert caught.value.offset is not None
        assert caught.value.offset <= bit // 8
        assert "train-000000.tfrecord" in str(caught.value)


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_every_cut_and_flipped_bit_of_a_compressed_shard_is_an_error_or_changes_nothing(
    compress: Callable[[bytes], bytes],
) -> None:
    blob = compress(SHARD)
    for length in range(1, len(blob)):
        with pytest.raises(TFRecordFormatError):
            _read(blob[:length])
    for bit in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            # Bits of the gzip header that name the system or the time change no data.
            assert _read(bytes(damaged)) == RECORDS
        except TFRecordFormatError:
            continue


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=120), at=st.integers(0, len(SHARD)))
def test_no_bytes_make_the_reader_raise_anything_else(data: bytes, at: int) -> None:
    for blob in (data, SHARD[:at] + data, SHARD[:at] + data + SHARD[at:]):
        try:
            _read(blob)
        except FormatError as error:
            assert "train-000000.tfrecord" in str(error)  # noqa: PT017 - no error is fine too


def test_length_crc_is_checked_before_the_length_is_believed() -> None:
    with pytest.raises(TFRecordFormatError, match="length CRC"):
        _read(struct.pack("<QI", 1 << 60, 0) + bytes(100))


@pytest.mark.parametrize("claim", [2**31, 2**63])
def test_a_length_above_the_limit_is_refused_unread(claim: int) -> None:
    with pytest.raises(TFRecordFormatError, match="longer than the limit of 2147483647"):
        _read(frame_header(claim) + bytes(100))


def test_the_limit_is_the_callers() -> None:
    limits = RecordLimits(max_record_bytes=4)
    with pytest.raises(TFRecordFormatError, match="limit of 4 bytes"):
        list(read_records(io.BytesIO(SHARD), "s", limits=limits))
    wide = RecordLimits(max_record_bytes=1 << 62)
    for source in (io.BytesIO(frame_header(1 << 50) + bytes(100)), Pipe(frame_header(1 << 50) + bytes(100), [50])):
        with pytest.raises(TFRecordFormatError, match="100 found"):
            list(read_records(source, "s", limits=wide))


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (gzip.compress(gzip.compress(SHARD)), "looks gzip-compressed, perhaps twice"),
        (SHARD + gzip.compress(SHARD), "looks gzip-compressed"),
        (SHARD + bytes(512), "only zero bytes"),
        (b"<html><body>403 Forbidden</body></html>", "looks like text: '<html><body>'"),
    ],
)
def test_message_says_what_the_bytes_look_like(content: bytes, hint: str) -> None:
    with pytest.raises(TFRecordFormatError, match=hint):
        _read(content)


def test_unsupported_compression_is_named() -> None:
    with pytest.raises(TFRecordFormatError, match="compressed with lz4"):
        _read(b"\x04\x22\x4d\x18" + bytes(50))


@pytest.mark.parametrize("magic", [b"\x1f\x8b\x08", b"\x78\x9c", b"\x78\x01", b"BZh", b"\x1f\x9d"])
def test_a_length_that_looks_like_a_magic_number_is_a_length(tmp_path: Path, magic: bytes) -> None:
    data = bytes(int.from_bytes(magic, "little"))
    path = tmp_path / "plain.tfrecord.gz"
    path.write_bytes(frame_record(data))
    assert path.read_bytes().startswith(magic)
    with path.open("rb") as stream:
        assert [record.data for record in read_records(stream, path.name)] == [data]


def test_gzip_members_joined_with_cat_are_one_shard() -> None:
    assert _read(gzip.compress(SHARD) + gzip.compress(SHARD)) == RECORDS * 2


def test_an_empty_file_has_no_records() -> None:
    assert _read(b"") == []
    assert _read(gzip.compress(b"")) == []
