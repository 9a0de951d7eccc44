"""Compression is recognised from the content, decoded in bounded pieces, and damage is one error."""

import bz2
import contextlib
import gzip
import io
import itertools
import lzma
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.compression import HEAD_BYTES, DecodedStream, find_compression, open_decoded
from shards.decoders import PIECE_BYTES
from shards.errors import TarFormatError

TEXT = b"".join(b"line %d of a text that compresses\n" % number for number in range(20_000))
NOISE = bytes((i * i * 31 + (i >> 3) * 7) & 0xFF for i in range(70_000))


def _zstd_stream(data: bytes) -> bytes:
    """Frames with and without content size and checksum, with skippable frames before, between and after."""
    skippable = b"\x5a\x2a\x4d\x18" + (70_000).to_bytes(4, "little") + b"s" * 70_000
    half = len(data) // 2
    unsized = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    first = unsized.compress(data[:half]) + unsized.flush()
    return skippable + first + skippable + zstandard.ZstdCompressor().compress(data[half:]) + skippable


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zlib": zlib.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
MANY: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda d: gzip.compress(d[: len(d) // 2]) + gzip.compress(b"") + gzip.compress(d[len(d) // 2 :]),
    "bzip2": lambda d: bz2.compress(d[: len(d) // 2]) + bz2.compress(d[len(d) // 2 :]),
    "xz": lambda d: lzma.compress(d[: len(d) // 2]) + bytes(8) + lzma.compress(d[len(d) // 2 :]) + bytes(4),
    "zstd": _zstd_stream,
}
CHECKED = ["gzip", "zlib", "bzip2", "xz", "zstd"]


class ShortReads(io.RawIOBase):
    """An unseekable stream that gives what a script of sizes says."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._source = io.BytesIO(data)
        self._sizes = sizes
        self._turn = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1) -> bytes:
        wanted = self._sizes[self._turn % len(self._sizes)]
        self._turn += 1
        return self._source.read(min(size, wanted))


def _open(data: bytes | BinaryIO, name: str = "shard.tar") -> DecodedStream:
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    return open_decoded(stream, name, TarFormatError, allow_zlib=True)


def _read_all(stream: DecodedStream, size: int = 1 << 20) -> bytes:
    pieces = []
    while piece := stream.read(size):
        assert len(piece) <= size
        pieces.append(piece)
    assert stream.read(1) == b""
    return b"".join(pieces)


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize("data", [TEXT, NOISE, b"x", b""], ids=["text", "noise", "one-byte", "empty"])
def test_compression_is_recognised_and_decoded(compression: str, data: bytes) -> None:
    stream = _open(COMPRESSORS[compression](data))
    assert stream.compression == compression
    assert _read_all(stream) == data
    assert stream.position == len(data)


@pytest.mark.parametrize("compression", MANY)
def test_all_members_of_a_stream_are_decoded(compression: str) -> None:
    assert _read_all(_open(MANY[compression](TEXT))) == TEXT


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 900)), min_size=1, max_size=6),
    compression=st.sampled_from([*COMPRESSORS, *(f"many {name}" for name in MANY)]),
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=5),
)
def test_short_reads_and_read_sizes_change_nothing(
    steps: list[tuple[bool, int]], compression: str, sizes: list[int]
) -> None:
    text = TEXT[:3000] + NOISE[:2000]
    kind, _, many = compression.rpartition(" ")
    blob = MANY[many](text) if kind else COMPRESSORS[many](text)
    stream = _open(ShortReads(blob, sizes))
    found = b""
    for turn in itertools.count():
        if len(found) == len(text):
            break
        is_read, step = steps[turn % len(steps)]
        if is_read:
            piece = stream.read_exactly(step)
            assert len(piece) == min(step, len(text) - len(found))
        else:
            skipped = stream.skip(step)
            assert skipped == min(step, len(text) - len(found))
            piece = text[len(found) : len(found) + skipped]
        found += piece
        assert stream.position == len(found)
    assert found == text
    assert stream.read(10) == b""
    assert stream.skip(10) == 0


@pytest.mark.parametrize("compression", CHECKED)
def test_every_cut_is_an_error(compression: str) -> None:
    blob = COMPRESSORS[compression](TEXT[:400])
    for length in range(6, len(blob)):  # a shorter head shows no compression
        stream = _open(blob[:length])
        with pytest.raises(TarFormatError, match=r"shard\.tar at byte offset \d+"):
            stream.drain()
        with pytest.raises(TarFormatError):
            stream.drain()


@pytest.mark.parametrize("compression", MANY)
def test_a_cut_between_or_inside_members_never_gives_wrong_bytes(compression: str) -> None:
    blob = MANY[compression](TEXT[:400])
    for length in range(6, len(blob), 1 if len(blob) < 2000 else 997):
        with contextlib.suppress(TarFormatError):
            assert TEXT[:400].startswith(_read_all(_open(blob[:length])))


@pytest.mark.parametrize("compression", CHECKED)
def test_every_flipped_bit_is_an_error_or_changes_nothing(compression: str) -> None:
    blob = COMPRESSORS[compression](TEXT[:200])
    for bit in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            stream = _open(bytes(damaged))
            decoded = _read_all(stream)
        except TarFormatError:
            continue
        assert decoded in (TEXT[:200], bytes(damaged))


@settings(max_examples=150, deadline=None)
@given(magic=st.sampled_from(CHECKED), tail=st.binary(max_size=300), cut=st.integers(3, 30))
def test_no_foreign_exception_leaks(magic: str, tail: bytes, cut: int) -> None:
    with contextlib.suppress(TarFormatError):
        _read_all(_open(COMPRESSORS[magic](b"abcdefgh")[:cut] + tail))


def test_gzip_trailer_is_checked_on_drain() -> None:
    blob = bytearray(gzip.compress(TEXT))
    blob[-8] ^= 1
    stream = _open(bytes(blob))
    assert stream.read_exactly(1000) == TEXT[:1000]
    with pytest.raises(TarFormatError, match="incorrect data check"):
        stream.drain()


def test_zero_padding_follows_gzip() -> None:
    assert _read_all(_open(gzip.compress(TEXT) + bytes(100_000))) == TEXT
    assert _read_all(_open(gzip.compress(TEXT) + bytes(7) + gzip.compress(b"more"))) == TEXT + b"more"


@pytest.mark.parametrize("compression", CHECKED)
@pytest.mark.parametrize("tail", [b"garbage", b"\x1f", bytes(3) + b"x"])
def test_bytes_after_the_stream_are_an_error(compression: str, tail: bytes) -> None:
    with pytest.raises(TarFormatError):
        _read_all(_open(COMPRESSORS[compression](b"abc") + tail))


def test_xz_padding_is_a_multiple_of_four() -> None:
    assert _read_all(_open(lzma.compress(b"abc") + bytes(4))) == b"abc"
    with pytest.raises(TarFormatError):
        _read_all(_open(lzma.compress(b"abc") + bytes(5)))


@pytest.mark.parametrize(
    ("head", "named"),
    [
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"\x1f\x9d\x90", "compress"),
        (b"7z\xbc\xaf\x27\x1c", "7z"),
        (b"PK\x03\x04", "zip"),
        (b"Rar!\x1a\x07\x01\0", "rar"),
        (b"LZIP\x01", "lzip"),
        (b"\x5d\0\0\x80\0", "lzma"),
    ],
)
def test_unsupported_compression_is_named(head: bytes, named: str) -> None:
    with pytest.raises(TarFormatError, match=rf"x\.tar.*compressed with {named}.*decompress it first"):
        _open(head + bytes(600), "x.tar")


def test_lz4_behind_a_skippable_frame_is_named() -> None:
    with pytest.raises(TarFormatError, match="lz4"):
        _open(b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc" + b"\x04\x22\x4d\x18" + bytes(20)).drain()


def test_zlib_is_recognised_only_when_allowed() -> None:
    blob = zlib.compress(TEXT)
    assert find_compression(blob) == "none"
    assert find_compression(blob, allow_zlib=True) == "zlib"


def test_proof_of_plain_content_beats_a_magic_number() -> None:
    stream = open_decoded(io.BytesIO(b"BZh9-notes.txt"), "a", TarFormatError, is_plain=lambda head: head[:3] == b"BZh")
    assert (stream.compression, _read_all(stream)) == ("none", b"BZh9-notes.txt")


@pytest.mark.parametrize("compression", CHECKED)
def test_a_bomb_is_decoded_in_small_pieces(compression: str) -> None:
    size = 40 << 20
    stream = _open(COMPRESSORS[compression](bytes(size)))
    total = 0
    while piece := stream.read(1 << 30):
        assert len(piece) <= PIECE_BYTES
        total += len(piece)
    assert total == size


def test_zstd_window_claim_is_limited() -> None:
    params = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    frame = zstandard.ZstdCompressor(compression_params=params).compressobj()
    blob = frame.compress(TEXT) + frame.flush()
    with pytest.raises(TarFormatError, match="too much memory"):
        _read_all(_open(blob))


def test_zstd_blocks_of_every_kind_are_decoded() -> None:
    for data in (NOISE * 5, bytes(1 << 20), TEXT * 2, bytes(128 * 1024), NOISE + bytes(128 * 1024 - len(NOISE))):
        for checksum in (False, True):
            assert _read_all(_open(zstandard.ZstdCompressor(write_checksum=checksum).compress(data))) == data


def test_skip_seeks_in_a_plain_file_and_stops_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "sparse.tar"
    with path.open("wb") as file:
        file.write(b"a" * 1000)
        file.truncate(1 << 40)
    with path.open("rb") as file:
        stream = _open(file)
        assert stream.find_remaining() == 1 << 40
        assert stream.read_exactly(10) == b"a" * 10
        assert stream.find_remaining() == (1 << 40) - 10
        assert stream.skip(980) == 980
        assert stream.read_exactly(20) == b"a" * 10 + bytes(10)
        assert stream.skip(1 << 39) == 1 << 39
        assert stream.skip(1 << 40) == (1 << 39) - 1010
        assert stream.read(1) == b""
        assert stream.position == 1 << 40
        assert stream.find_remaining() == 0


def test_huge_claims_on_a_short_file_allocate_nothing(tmp_path: Path) -> None:
    path = tmp_path / "short.tar"
    path.write_bytes(NOISE)
    with path.open("rb", buffering=0) as file:
        assert _open(file).read_exactly(1 << 50) == NOISE
    with path.open("rb") as file:
        assert _open(file).read_exactly(1 << 50) == NOISE


def test_a_pipe_gives_the_same_as_a_file() -> None:
    reader, writer = os.pipe()

    def feed() -> None:
        with os.fdopen(writer, "wb") as sink:
            sink.write(MANY["gzip"](TEXT))

    feeder = threading.Thread(target=feed)
    feeder.start()
    with os.fdopen(reader, "rb") as source:
        assert _read_all(_open(source)) == TEXT
    feeder.join()


def test_an_error_of_reading_passes_unchanged() -> None:
    class Broken(ShortReads):
        def read(self, size: int = -1) -> bytes:
            if self._turn > 0:
                raise OSError(5, "Input/output error")
            return super().read(size)

    stream = _open(Broken(bz2.compress(NOISE), [HEAD_BYTES]))
    with pytest.raises(OSError, match="Input/output error"):
        _read_all(stream)
