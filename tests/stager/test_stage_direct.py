"""Blocks are written and read past the page cache on a local disk, and in the usual way everywhere else."""

import asyncio
import mmap
import os
import random

import pytest

from shards.digests import block_digest
from shards.direct import ALIGNMENT_BYTES, reopen_direct
from stager.blocks import BlockWriter
from stager.page_cache import is_cached
from stager.remotes.posix import PosixRemote

BLOCK_BYTES = 64 * 1024
SIZES = [0, 1, ALIGNMENT_BYTES - 1, ALIGNMENT_BYTES, BLOCK_BYTES, 3 * BLOCK_BYTES + 5000]


def cached_pages(path):
    """How many pages of a file the page cache has."""
    with open(path, "rb") as file:
        starts = range(0, os.path.getsize(path), mmap.PAGESIZE)
        return sum(
            is_cached(file.fileno(), start, min(mmap.PAGESIZE, os.path.getsize(path) - start)) for start in starts
        )


def evict(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def on_local_disk(path):
    with open(path, "rb") as file:
        fd = reopen_direct(file.fileno(), os.O_RDONLY)
        if fd is None:
            pytest.skip("the tests' directory is not on a disk of this machine")
        os.close(fd)


def write_blocks(path, content):
    buffer = memoryview(mmap.mmap(-1, BLOCK_BYTES))
    with open(path, "w+b") as file:
        os.ftruncate(file.fileno(), len(content))
        with BlockWriter(file.fileno()) as writer:
            starts = list(range(0, len(content), BLOCK_BYTES))
            random.Random(1).shuffle(starts)
            for start in starts:
                piece = content[start : start + BLOCK_BYTES]
                buffer[: len(piece)] = piece
                assert writer.write_verified(start, buffer[: len(piece)], block_digest(piece)) == block_digest(piece)


@pytest.mark.parametrize("size", SIZES)
def test_blocks_of_any_length_are_written(tmp_path, size):
    content = random.Random(size).randbytes(size)
    write_blocks(tmp_path / "shard", content)
    assert (tmp_path / "shard").read_bytes() == content


def test_whole_pages_do_not_go_through_the_page_cache(tmp_path):
    write_blocks(tmp_path / "shard", bytes(4 * BLOCK_BYTES) + b"tail")
    on_local_disk(tmp_path / "shard")
    assert cached_pages(tmp_path / "shard") <= 1


def test_a_block_with_another_digest_is_not_written(tmp_path):
    with open(tmp_path / "shard", "w+b") as file, BlockWriter(file.fileno()) as writer:
        actual = writer.write_verified(0, memoryview(b"abc"), block_digest(b"abd"))
        assert actual == block_digest(b"abc")
        assert os.fstat(file.fileno()).st_size == 0


def test_memory_that_is_not_aligned_is_written_all_the_same(tmp_path):
    content = random.Random(2).randbytes(2 * BLOCK_BYTES)
    with open(tmp_path / "shard", "w+b") as file, BlockWriter(file.fileno()) as writer:
        view = memoryview(bytearray(1) + content)[1:]
        writer.write_verified(0, view, block_digest(content))
    assert (tmp_path / "shard").read_bytes() == content


def read_file(path, size):
    async def work():
        remote = PosixRemote(str(path.parent), 2)
        version = await remote.stat(path.name)
        buffer = memoryview(mmap.mmap(-1, max(size, 1)))[:size]
        await remote.read_range(path.name, 0, buffer, version)
        await remote.close()
        return bytes(buffer)

    return asyncio.run(work())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_warm", [True, False])
def test_a_source_is_left_as_warm_as_it_was(tmp_path, size, is_warm):
    path, content = tmp_path / "shard", random.Random(size).randbytes(size)
    path.write_bytes(content)
    on_local_disk(path)
    if not is_warm:
        evict(path)
    before = cached_pages(path)
    assert read_file(path, size) == content
    assert before == (-(-size // mmap.PAGESIZE) if is_warm else 0)
    assert cached_pages(path) == before


@pytest.mark.parametrize("num_warm", [1, 5, 12])
def test_a_source_that_is_partly_in_the_page_cache_is_read_right(tmp_path, num_warm):
    path, content = tmp_path / "shard", random.Random(3).randbytes(16 * ALIGNMENT_BYTES)
    path.write_bytes(content)
    evict(path)
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.read(num_warm * ALIGNMENT_BYTES)
    assert read_file(path, len(content)) == content
