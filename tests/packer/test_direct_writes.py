"""Shards written past the page cache have the bytes that buffered ones have, wherever they lie."""

import fcntl
import mmap
import os
import random
import shutil
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.sink import ShardSink
from packer.stores.base import ALIGNMENT_BYTES
from packer.stores.directory import DirectoryStore
from shards.digests import BlockHasher
from shards.errors import SizeMismatchError

CONTENT = random.Random(5).randbytes(1024 * 1024)


def is_direct(directory):
    """Whether the only partial in a directory is written past the page cache now."""
    (partial,) = [name for name in os.listdir(directory) if name.endswith(".partial")]
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").endswith(partial):
                return bool(fcntl.fcntl(int(fd), fcntl.F_GETFL) & os.O_DIRECT)
        except FileNotFoundError:
            continue
    raise AssertionError("the partial is not open")


def offers_direct_writes(directory):
    if os.major(os.stat(directory).st_dev) == 0:
        return False
    probe = os.path.join(directory, "probe")
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    finally:
        if os.path.exists(probe):
            os.unlink(probe)
    return True


@pytest.fixture(params=["disk", "memory"])
def directory(request, tmp_path):
    """A directory on the usual disk, and one on a filesystem that has no disk."""
    if request.param == "disk":
        yield str(tmp_path)
        return
    if not os.path.isdir("/dev/shm") or not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    path = tempfile.mkdtemp(dir="/dev/shm")
    yield path
    shutil.rmtree(path)


def aligned(data):
    memory = mmap.mmap(-1, max(len(data), 1))
    memory[: len(data)] = data
    return memoryview(memory)[: len(data)]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(
        st.one_of(
            st.integers(0, 3 * ALIGNMENT_BYTES),
            st.sampled_from([ALIGNMENT_BYTES, 2 * ALIGNMENT_BYTES, 16 * ALIGNMENT_BYTES]),
        ),
        max_size=12,
    ),
    early=st.booleans(),
)
def test_buffers_of_any_size_give_the_file_and_its_digests(tmp_path_factory, sizes, early):
    root = tmp_path_factory.mktemp("direct")
    store, sink = DirectoryStore(str(root)), ShardSink(16 * ALIGNMENT_BYTES)
    try:
        for name in ("a.tar", "b.tar"):  # the second finds what the first left in the buffers
            expected, start = BlockHasher(), 0
            with store.create(name, sum(sizes)) as file:
                sink.begin(file)
                for pair in zip(sizes[::2], sizes[1::2], strict=False) if early else [(size,) for size in sizes]:
                    places = [sink.reserve(size) for size in pair]
                    end = start + sum(pair)
                    expected.update(CONTENT[start:end])
                    for place in reversed(places):  # the order in which they are filled is free
                        place[:] = CONTENT[end - len(place) : end]
                        end -= len(place)
                    for _ in places:
                        sink.flush()
                    start += sum(pair)
                blocks = sink.finish()
                file.commit(start)
            assert (root / name).read_bytes() == CONTENT[:start]
            assert blocks == expected.finish()
    finally:
        sink.close()


def test_aligned_pieces_pass_the_page_cache_by_and_the_last_does_not(tmp_path):
    if not offers_direct_writes(tmp_path):
        pytest.skip("the filesystem of the tests has no direct writes")
    with DirectoryStore(str(tmp_path)).create("a.tar", 0) as file:
        file.write(aligned(CONTENT[: 4 * ALIGNMENT_BYTES]))
        assert is_direct(tmp_path)
        file.write(aligned(CONTENT[4 * ALIGNMENT_BYTES : 4 * ALIGNMENT_BYTES + 100]))
        assert not is_direct(tmp_path)
        file.commit(4 * ALIGNMENT_BYTES + 100)
    assert (tmp_path / "a.tar").read_bytes() == CONTENT[: 4 * ALIGNMENT_BYTES + 100]


def test_memory_that_does_not_begin_at_a_page_is_written_too(directory):
    odd = memoryview(bytearray(CONTENT))[1:]
    with DirectoryStore(directory).create("a.tar", 0) as file:
        file.write(odd[: 2 * ALIGNMENT_BYTES])
        file.write(aligned(CONTENT[: 2 * ALIGNMENT_BYTES]))
        file.write(odd[:3])
        file.commit(4 * ALIGNMENT_BYTES + 3)
    with open(os.path.join(directory, "a.tar"), "rb") as found:
        assert found.read() == odd[: 2 * ALIGNMENT_BYTES].tobytes() + CONTENT[: 2 * ALIGNMENT_BYTES] + bytes(odd[:3])


def test_filesystem_without_a_disk_is_written_through_the_page_cache(directory):
    with DirectoryStore(directory).create("a.tar", 0) as file:
        file.write(aligned(CONTENT))
        assert is_direct(directory) == offers_direct_writes(directory)
        file.commit(len(CONTENT))
    with open(os.path.join(directory, "a.tar"), "rb") as found:
        assert found.read() == CONTENT


def test_size_is_checked_after_direct_writes(tmp_path):
    with DirectoryStore(str(tmp_path)).create("a.tar", 0) as file:
        file.write(aligned(CONTENT))
        with pytest.raises(SizeMismatchError):
            file.commit(len(CONTENT) + 1)
    assert os.listdir(tmp_path) == []
