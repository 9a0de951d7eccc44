import errno
import os
import subprocess
import tarfile
from array import array
from contextlib import contextmanager
from pathlib import Path

import pytest

from packer.fill import HoleFiller
from packer.plan import ShardPlan
from packer.sink import ShardSink
from packer.sources.files import INLINE
from packer.sources.origin import PIECE_BYTES
from packer.sources.tree_read import TreeReader, TreeRoot
from packer.write import ShardWriter
from shards.digests import crc32c
from shards.errors import SizeMismatchError, SourceChangedError
from shards.formats import FORMATS
from shards.index import ShardIndex

FORMAT_NAMES = ["tar", "tfrecord"]


def plan_of(root, samples, *, format_name="tar", name="train-000000.tar", extra_bytes=0):
    """Plan a shard of samples: key → extension → file name below the root, or bytes."""
    shard_format = FORMATS[format_name]
    keys, counts, extensions, sources, sizes, stamps = [], array("L"), [], [], array("Q"), array("q")
    size_bytes = len(shard_format.end_marker)
    for key, members in samples.items():
        keys.append(key)
        counts.append(len(members))
        described = []
        for extension, source in members.items():
            extensions.append(extension)
            if isinstance(source, bytes):
                sources.append(source)
                sizes.append(len(source))
                stamps.append(INLINE)
            else:
                status = os.stat(f"{root}/{source}")
                sources.append(source.encode())
                sizes.append(status.st_size)
                stamps.append(status.st_mtime_ns)
            described.append((extension, sizes[-1]))
        size_bytes += shard_format.layout_sample(key, described).size
    return ShardPlan(
        name=name,
        format_name=format_name,
        size_bytes=size_bytes + extra_bytes,
        keys=tuple(keys),
        num_members=counts,
        extensions=tuple(extensions),
        sources=tuple(sources),
        sizes=sizes,
        stamps=stamps,
    )


def write(root, plan, directory, *, buffer_bytes=1024 * 1024, read_threads=1, follows_symlinks=True):
    os.makedirs(directory, exist_ok=True)
    tree = TreeRoot(os.fsencode(root), follows_symlinks)
    with ShardWriter(tree, read_threads, lambda *_: None, ShardSink(buffer_bytes)) as writer:
        return writer.write(plan, str(directory))


@pytest.fixture
def source(make_tree):
    sizes = [0, 1, 511, 512, 513, 5000, 70_000, 3, 0, 40_000]
    return make_tree({f"{n}.bin": bytes((n + i) % 256 for i in range(size)) for n, size in enumerate(sizes)})


@pytest.fixture
def samples():
    return {
        "a": {"bin": "0.bin", "cls": b"17", "x": "1.bin"},
        "dir/b": {"big": "6.bin", "bin": "2.bin"},
        "c": {"bin": "3.bin"},
        "d": {"bin": "4.bin", "empty": b""},
        "e": {"bin": "5.bin", "zero": "8.bin", "zz": "9.bin"},
    }


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@pytest.mark.parametrize("buffer_bytes", [1500, 2048, 50_000, 120_000])
def test_buffer_size_never_changes_a_byte(tmp_path, source, samples, format_name, buffer_bytes):
    plan = plan_of(source, samples, format_name=format_name)
    whole = write(source, plan, tmp_path / "whole")
    pieces = write(source, plan, tmp_path / "pieces", buffer_bytes=buffer_bytes)
    assert whole == pieces
    for name in os.listdir(tmp_path / "whole"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "pieces" / name).read_bytes()


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@pytest.mark.parametrize("read_threads", [None, 4])
def test_threads_never_change_a_byte(tmp_path, source, samples, format_name, read_threads):
    plan = plan_of(source, samples, format_name=format_name)
    inline = write(source, plan, tmp_path / "inline")
    assert write(source, plan, tmp_path / "threads", read_threads=read_threads) == inline


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@pytest.mark.parametrize("buffer_bytes", [1500, 1024 * 1024])
def test_index_says_what_a_strict_scan_finds(tmp_path, source, samples, format_name, buffer_bytes):
    result = write(
        source, plan_of(source, samples, format_name=format_name), tmp_path / "out", buffer_bytes=buffer_bytes
    )
    path = tmp_path / "out" / result.name
    with open(path, "rb") as shard, ShardIndex.open(f"{path}.index.arrow") as index:
        index.validate()
        scanned = list(FORMATS[format_name].scan_samples(shard, "shard"))
        assert [sample.key for sample in scanned] == list(samples)
        for number, sample in enumerate(scanned):
            assert index.key(number) == sample.key
            assert index.sample_offset(number) == sample.offset
            found = [(m.extension, m.offset, m.size, m.crc32c) for m in sample.members]
            assert [tuple(member) for member in index.members(number)] == found
        assert index.header.blocks.shard_digest == result.digest
        assert index.header.shard_bytes == result.size_bytes == path.stat().st_size


def test_tar_shard_is_what_python_reads(tmp_path, source, samples):
    write(source, plan_of(source, samples), tmp_path / "out")
    with tarfile.open(tmp_path / "out" / "train-000000.tar") as shard:
        found = {member.name: shard.extractfile(member).read() for member in shard}
    expected = {}
    for key, members in samples.items():
        for extension, item in members.items():
            data = item if isinstance(item, bytes) else Path(source, item).read_bytes()
            expected[f"{key}.{extension}"] = data
    assert found == expected


def test_mode_and_partials_are_right_whatever_the_umask(tmp_path, source, samples):
    before = os.umask(0o077)
    try:
        write(source, plan_of(source, samples), tmp_path / "out")
    finally:
        os.umask(before)
    assert sorted(os.listdir(tmp_path / "out")) == ["train-000000.tar", "train-000000.tar.index.arrow"]
    assert {os.stat(tmp_path / "out" / name).st_mode & 0o777 for name in os.listdir(tmp_path / "out")} == {0o444}


def grow(path):
    with open(path, "ab") as file:
        file.write(b"more")


def shrink(path):
    os.truncate(path, 100)


def touch(path):
    os.utime(path, ns=(0, 12345))


def rewrite_keeping_the_time(path):
    status = os.stat(path)
    with open(path, "wb") as file:
        file.write(b"x")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def become_a_fifo(path):
    os.unlink(path)
    os.mkfifo(path)


def become_a_directory(path):
    os.unlink(path)
    os.mkdir(path)


def become_a_link(path):
    os.rename(path, f"{path}.moved")
    os.symlink(f"{path}.moved", path)


CHANGES = [grow, shrink, os.unlink, touch, rewrite_keeping_the_time, become_a_fifo, become_a_directory]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("size", [5000, 3 * PIECE_BYTES // 2])
@pytest.mark.parametrize("read_threads", [1, 4])
def test_file_that_changed_since_the_plan_is_named_and_nothing_is_left(tmp_path, make_tree, change, size, read_threads):
    root = make_tree({"a.bin": bytes(10), "b\n.bin": bytes(size)})
    plan = plan_of(root, {"a": {"bin": "a.bin"}, "b": {"bin": "b\n.bin"}})
    change(f"{root}/b\n.bin")
    with pytest.raises(SourceChangedError, match=r"source file b\\n\.bin changed while packing: planned \d+ bytes"):
        write(root, plan, tmp_path / "out", read_threads=read_threads)
    assert os.listdir(tmp_path / "out") == []


def test_file_that_became_a_link_is_refused_unless_links_are_followed(tmp_path, make_tree):
    root = make_tree({"a.bin": bytes(10)})
    plan = plan_of(root, {"a": {"bin": "a.bin"}})
    become_a_link(f"{root}/a.bin")
    with pytest.raises(SourceChangedError, match="found a symbolic link"):
        write(root, plan, tmp_path / "out", follows_symlinks=False)
    assert write(root, plan, tmp_path / "out").num_samples == 1


def test_file_that_changes_while_it_is_read_is_noticed(tmp_path, make_tree):
    root = make_tree({"a.bin": bytes(4 * PIECE_BYTES)})
    status = os.stat(f"{root}/a.bin")
    reader = TreeReader(TreeRoot(os.fsencode(root), True))
    pieces = reader.pieces(b"a.bin", status.st_size, status.st_mtime_ns)
    next(pieces)
    with open(f"{root}/a.bin", "r+b") as file:
        file.seek(3 * PIECE_BYTES)
        file.write(b"changed")
    with pytest.raises(SourceChangedError):
        list(pieces)


def test_plan_that_does_not_add_up_is_never_committed(tmp_path, source, samples):
    with pytest.raises(SizeMismatchError):
        write(source, plan_of(source, samples, extra_bytes=1), tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


def test_filler_takes_threads_when_opening_is_slow(tmp_path, make_tree):
    class SlowReader(TreeReader):
        def read_into(self, *args):
            import time

            time.sleep(0.002)
            return super().read_into(*args)

    root = make_tree({f"{number}.bin": b"%d" % number for number in range(200)})
    plan = plan_of(root, {f"{number}": {"bin": f"{number}.bin"} for number in range(200)})
    for reader, expected in (
        (SlowReader(TreeRoot(os.fsencode(root), True)), True),
        (TreeReader(TreeRoot(os.fsencode(root), True)), False),
    ):
        filler = HoleFiller(reader)
        target = memoryview(bytearray(2000))
        crcs = filler.fill(plan, [(number, number * 10) for number in range(200)], target)
        assert filler.uses_threads is expected
        assert crcs == [crc32c(b"%d" % number) for number in range(200)]
        filler.close()


@contextmanager
def small_disk(path, size):
    os.makedirs(path)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_full_disk_leaves_no_partial(tmp_path, make_tree):
    root = make_tree({f"{number}.bin": bytes(100_000) for number in range(30)})
    plan = plan_of(root, {f"{number}": {"bin": f"{number}.bin"} for number in range(30)})
    with small_disk(tmp_path / "disk", 1024 * 1024):
        with pytest.raises(OSError, match="No space left") as failure:
            write(root, plan, tmp_path / "disk")
        assert failure.value.errno == errno.ENOSPC
        assert os.listdir(tmp_path / "disk") == []


@pytest.mark.parametrize("read_threads", [1, 4])
@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_shard_of_many_small_buffers_is_the_same_with_buffers_begun_early(
    tmp_path, make_tree, format_name, read_threads
):
    root = make_tree({f"{number:03d}.bin": bytes([number]) * (number * 97 % 5000) for number in range(100)})
    samples = {f"{number:03d}": {"bin": f"{number:03d}.bin"} for number in range(100)}
    plan = plan_of(root, samples, format_name=format_name)
    written = []
    for out, threads, sink in (("one", 1, ShardSink()), ("many", read_threads, ShardSink(8192))):
        (tmp_path / out).mkdir()
        origin = TreeRoot(os.fsencode(root), True)
        with ShardWriter(origin, threads, lambda *_: None, sink) as writer:
            written.append(writer.write(plan, str(tmp_path / out)))
    assert written[0] == written[1]


def test_failure_with_a_buffer_begun_early_leaves_nothing_and_the_writer_goes_on(tmp_path, make_tree):
    root = make_tree({f"{number:03d}.bin": bytes([number]) * 3000 for number in range(100)})
    samples = {f"{number:03d}": {"bin": f"{number:03d}.bin"} for number in range(100)}
    plan = plan_of(root, samples)
    os.truncate(f"{root}/020.bin", 7)
    good = plan_of(root, samples)
    with ShardWriter(TreeRoot(os.fsencode(root), True), 4, lambda *_: None, ShardSink(8192)) as writer:
        for _ in range(5):
            with pytest.raises(SourceChangedError, match=r"020\.bin"):
                writer.write(plan, str(tmp_path))
            assert not [name for name in os.listdir(tmp_path) if "tar" in name]
        assert writer.write(good, str(tmp_path)).num_samples == 100
