"""The benchmark runs to its end on a tiny input, and its slow mount is a true mirror."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

needs_fuse = pytest.mark.skipif(
    shutil.which("fusermount3") is None or not os.access("/dev/fuse", os.R_OK | os.W_OK),
    reason="needs fusermount3 and /dev/fuse",
)


def _environment() -> dict[str, str]:
    # the scripts lie beside the modules they import
    return {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}


def _bench(work: Path, *arguments: str) -> dict:
    result = work / "result.json"
    command = [sys.executable, BENCHMARKS / "pack.py", "--pairs", "1", "--work", work / "work", "--json", result]
    subprocess.run([*command, *arguments], check=True, env=_environment(), capture_output=True, timeout=120)
    return json.loads(result.read_text())


def test_benchmark_compares_and_records_on_a_tiny_input(tmp_path):
    found = _bench(tmp_path, "--files", "40", "--only", "tar", "--only", "webdataset", "--only", "memory")
    assert [row["against"] for row in found["comparisons"]] == ["webdataset ShardWriter", "GNU tar"]
    for row in found["comparisons"]:
        assert row["num_files"] == 40
        assert len(row["base_runs"]) == len(row["ours_runs"]) == 1
        assert row["speedup"]["median"] > 0
    assert all(row["main_bytes"] > 2**20 for row in found["memory"])
    assert not (tmp_path / "work" / "out").exists()
    assert not (tmp_path / "work" / "out.tar").exists()


@needs_fuse
def test_benchmark_runs_on_the_slow_mount_and_unmounts_it(tmp_path):
    found = _bench(tmp_path, "--files", "40", "--only", "slow-tar")
    [row] = found["comparisons"]
    assert row["base_runs"][0]["seconds"] > 40 * 0.002
    assert not os.path.ismount(tmp_path / "work" / "slow")


@pytest.fixture
def slow_mount(tmp_path):
    source, mountpoint = tmp_path / "source", tmp_path / "mount"
    (source / "inner" / "deep").mkdir(parents=True)
    mountpoint.mkdir()
    (source / "empty").touch()
    (source / "inner" / "big").write_bytes(os.urandom(700_001))
    (source / "inner" / "deep" / "ä b").write_bytes(b"name")
    (source / "link").symlink_to("inner/big")
    for number in range(300):
        (source / "inner" / "deep" / f"{number:0100d}").write_bytes(b"%d" % number)
    command = [sys.executable, BENCHMARKS / "latencyfs.py", source, mountpoint, "--open-ms", "20"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment())
    try:
        assert server.stdout.readline() == b"ready\n"
        yield source, mountpoint
    finally:
        server.terminate()
        assert server.wait(30) == 0
        server.stdout.close()
        assert not os.path.ismount(mountpoint)


@needs_fuse
def test_slow_mount_mirrors_names_sizes_times_and_contents(slow_mount):
    source, mountpoint = slow_mount
    names = sorted(path.relative_to(source) for path in source.rglob("*"))
    assert sorted(path.relative_to(mountpoint) for path in mountpoint.rglob("*")) == names
    for name in names:
        expected, found = (source / name).lstat(), (mountpoint / name).lstat()
        assert (found.st_mode, found.st_size, found.st_mtime_ns) == (
            expected.st_mode,
            expected.st_size,
            expected.st_mtime_ns,
        )
    for name in ("empty", "link", "inner/big", "inner/deep/ä b"):
        assert (mountpoint / name).read_bytes() == (source / name).read_bytes()
    assert (mountpoint / "link").readlink() == Path("inner/big")
    with pytest.raises(FileNotFoundError):
        (mountpoint / "missing").read_bytes()
    with pytest.raises(OSError, match="Read-only file system"):
        (mountpoint / "new").write_bytes(b"")


@needs_fuse
def test_every_open_on_the_slow_mount_takes_its_time_again(slow_mount):
    _, mountpoint = slow_mount
    for _ in range(3):
        started = time.perf_counter()
        os.close(os.open(mountpoint / "inner" / "big", os.O_RDONLY))
        assert time.perf_counter() - started >= 0.02
