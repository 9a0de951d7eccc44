import itertools
import mmap
import struct

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from shards.digests import (
    BLOCK_BYTES,
    BlockDigests,
    BlockHasher,
    block_digest,
    block_ranges,
    crc32c,
    digest_text,
    hash_bytes,
    is_digest,
    mask_crc,
    shard_digest,
    unmask_crc,
)
from shards.formats import FORMATS


def slow_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_digest_of_nothing_is_the_published_one() -> None:
    published = "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert hash_bytes(b"") == shard_digest(()) == BlockHasher().finish().shard_digest == published
    assert BlockHasher().finish() == BlockDigests(0, BLOCK_BYTES, ())


@given(data=st.binary(max_size=300), block_bytes=st.integers(1, 64), cuts=st.lists(st.integers(0, 300), max_size=8))
def test_block_digests_do_not_depend_on_how_the_stream_is_cut(data: bytes, block_bytes: int, cuts: list[int]) -> None:
    hasher = BlockHasher(block_bytes)
    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(borders):
        hasher.update(data[start:end])
    assert hasher.size_bytes == len(data)
    result = hasher.finish()
    expected = [blake3(data[start:end]).digest() for start, end in block_ranges(len(data), block_bytes)]
    assert list(result.digests) == expected
    assert result.shard_digest == "blake3:" + blake3(b"".join(expected)).hexdigest()
    assert hasher.finish() == result


@pytest.mark.parametrize(
    ("size", "block", "expected"),
    [
        (0, 4, []),
        (1, 4, [(0, 1)]),
        (4, 4, [(0, 4)]),
        (5, 4, [(0, 4), (4, 5)]),
        (8, 4, [(0, 4), (4, 8)]),
    ],
)
def test_block_borders(size: int, block: int, expected: list[tuple[int, int]]) -> None:
    assert list(block_ranges(size, block)) == expected
    hasher = BlockHasher(block)
    hasher.update(bytes(size))
    assert len(hasher.finish().digests) == len(expected)


def test_every_kind_of_buffer_is_taken() -> None:
    data = bytes(range(256)) * 300
    with mmap.mmap(-1, len(data)) as mapped:
        mapped.write(data)
        buffers = [
            bytearray(data),
            memoryview(data),
            mapped,
            np.frombuffer(data, np.uint8),
            np.frombuffer(data, np.uint64),
            np.frombuffer(data, np.uint16).reshape(2, -1),
        ]
        for buffer in buffers:
            hasher = BlockHasher(1000)
            hasher.update(buffer)
            whole = BlockHasher(1000)
            whole.update(data)
            assert hasher.finish() == whole.finish()
            assert crc32c(buffer) == crc32c(data)
            if not isinstance(buffer, np.ndarray):
                assert hash_bytes(buffer) == hash_bytes(data)
                assert block_digest(buffer) == block_digest(data)
        buffers.clear()
        del buffer


def test_a_finished_hasher_takes_no_more() -> None:
    hasher = BlockHasher(4)
    hasher.update(b"abcde")
    hasher.finish()
    with pytest.raises(ValueError, match="finish"):
        hasher.update(b"f")


def test_impossible_block_digests_are_refused() -> None:
    for arguments in (
        (5, 4, (b"x" * 32,)),
        (0, 4, (b"x" * 32,)),
        (-1, 4, ()),
        (1, 0, (b"x" * 32,)),
        (-1, 0, ()),
        (1, 4, (b"x",)),
    ):
        with pytest.raises(ValueError):
            BlockDigests(*arguments)
    with pytest.raises(ValueError):
        BlockHasher(0)
    with pytest.raises(ValueError):
        list(block_ranges(-1, 4))
    with pytest.raises(ValueError):
        digest_text(b"short")


def test_digest_texts() -> None:
    assert is_digest(digest_text(bytes(32)))
    for text in ("", "blake3:", "blake3:" + "0" * 63, "blake3:" + "A" * 64, "sha256:" + "0" * 64, "0" * 64):
        assert not is_digest(text)
    assert not is_digest("blake3:" + "0" * 64 + "\n")


def test_crc32c_is_the_castagnoli_sum() -> None:
    # Vectors of RFC 3720, B.4.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"123456789") == 0xE3069283


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_crc32c_continues(left: bytes, right: bytes) -> None:
    assert crc32c(right, crc32c(left)) == crc32c(left + right) == slow_crc32c(left + right)
    assert crc32c(bytearray(right), crc32c(memoryview(left))) == crc32c(left + right)


def test_crc32c_over_more_than_one_piece() -> None:
    data = struct.pack("<200000Q", *range(200000))
    assert crc32c(bytearray(data)) == crc32c(data)


@given(st.integers(0, 2**32 - 1))
def test_masking_is_undone(crc: int) -> None:
    assert unmask_crc(mask_crc(crc)) == crc
    assert 0 <= mask_crc(crc) < 2**32


def test_the_mask_is_that_of_tfrecord() -> None:
    # The length field of an empty record, as TensorFlow writes it: 8 zero bytes, then 29 03 98 07.
    assert mask_crc(crc32c(bytes(8))).to_bytes(4, "little") == bytes.fromhex("29039807")


@pytest.mark.parametrize("format_name", sorted(FORMATS))
@given(data=st.data())
def test_any_flipped_bit_or_cut_of_a_shard_changes_its_digest(format_name, data):
    shard_format = FORMATS[format_name]
    shard = bytearray()
    for number in range(3):
        content = bytes([number]) * (300 * number)
        layout = shard_format.layout_sample(f"s{number}", [("bin", len(content))])
        sample = bytearray(layout.size)
        for offset, literal in layout.literals:
            sample[offset : offset + len(literal)] = literal
        (start, size) = layout.holes[0]
        sample[start : start + size] = content
        shard += sample
    shard += shard_format.end_marker
    block_bytes = data.draw(st.integers(1, len(shard) + 1))
    promised = digests_of(shard, block_bytes)
    damaged = bytearray(shard)
    if data.draw(st.booleans()):
        bit = data.draw(st.integers(0, 8 * len(shard) - 1))
        damaged[bit // 8] ^= 1 << bit % 8
    else:
        del damaged[data.draw(st.integers(0, len(shard) - 1)) :]
    assert digests_of(damaged, block_bytes).shard_digest != promised.shard_digest


def digests_of(shard, block_bytes):
    hasher = BlockHasher(block_bytes)
    hasher.update(shard)
    return hasher.finish()
