"""Source files whose reads fail: repeated when that may help, else an error with the file and the errno.

The kernel's answers are changed by strace, so that everything between the system call and the user is the real thing.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packer.sources.persist import PAUSES_SECONDS

NUM_SAMPLES = 6
NUM_TRIES = 1 + len(PAUSES_SECONDS)
BIG_BYTES = 17 * 1024 * 1024
"""More than the writer's buffer, so read in pieces."""


@pytest.fixture(scope="module", autouse=True)
def _strace_works():
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    if subprocess.run(
        ["strace", "-o", "/dev/null", sys.executable, "-c", ""], check=False, capture_output=True
    ).returncode:
        pytest.skip("strace may not trace here")


def contents():
    return {f"{number}.bin": bytes([number]) * (BIG_BYTES if number == 3 else 500) for number in range(NUM_SAMPLES)}


def make_source(kind, root: Path):
    """Give the source, and the file whose reads fail."""
    root.mkdir()
    if kind == "tree":
        for name, data in contents().items():
            (root / name).write_bytes(data)
        return root, root / "2.bin"
    if kind == "big file":
        source, _ = make_source("tree", root / "tree")
        return source, source / "3.bin"
    if kind == "table":
        source, victim = make_source("tree", root / "tree")
        (source / "table.csv").write_text("path\n" + "".join(f"{name}\n" for name in contents()))
        return source / "table.csv", victim
    if kind == "parquet":
        path = root / "rows.parquet"
        names, data = zip(*contents().items(), strict=True)
        keys = [name.partition(".")[0] for name in names]
        pq.write_table(pa.table({"name": keys, "bin": data}), path, row_group_size=2)
        return path, path
    if kind == "zip":
        path = root / "a.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in contents().items():
                archive.writestr(name, data)
        return path, path
    path = root / ("a.tar.gz" if kind == "compressed tar" else "a.tar")
    with tarfile.open(path, "w:gz" if kind == "compressed tar" else "w") as archive:
        source, _ = make_source("tree", root / "tree")
        for name in contents():
            archive.add(source / name, name)
    return path, path


FILES = ("tree", "big file", "table")
"""Kinds whose files are only looked at for the plan, and read while packing."""
CALLS = {"big file": "read"}
"""System calls that read them, where it is another one than for small files."""
CONTAINERS = {"tar": "pread64", "zip": "pread64", "compressed tar": "read", "parquet": "pread64"}
"""Kinds whose files are read for the plan, too; and the system call that reads members."""
OPTIONS = {"parquet": ("--column", "bin=bin", "--key-column", "name")}


@pytest.fixture
def pack_with_fault(tmp_path):
    """Pack while a system call on one file fails."""

    def run(source, victim, out, call, fault, *options):
        log = tmp_path / "calls"
        command = [
            *("strace", "-f", "-qq", "-o", str(log), "-P", str(victim)),
            *("-e", f"trace={call}", *(("-e", f"inject={call}:{fault}") if fault else ())),
            *(sys.executable, "-m", "packer", "build", str(source), str(tmp_path / out), "--jobs", "1", "--quiet"),
            *("--read-threads", "1"),  # which thread reads what is otherwise chosen by time
            *options,
        ]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}  # Arrow's, so that one thread reads all columns
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)

    return run


@pytest.fixture
def pack_well(pack, tmp_path, read_dataset):
    def run(source, *options):
        done = pack("build", str(source), str(tmp_path / "well"), "--quiet", *options)
        assert done.returncode == 0, done.stderr
        return read_dataset(tmp_path / "well").file_bytes()

    return run


@pytest.mark.parametrize(
    ("kind", "error"), [("tree", "EIO"), ("tree", "ESTALE"), ("big file", "ETIMEDOUT"), ("table", "ESTALE")]
)
def test_read_that_fails_for_a_moment_is_repeated(tmp_path, kind, error, pack_with_fault, pack_well, read_dataset):
    source, victim = make_source(kind, tmp_path / "source")
    expected = pack_well(source)
    done = pack_with_fault(source, victim, "out", CALLS.get(kind, "readv"), f"error={error}:when=1..2")
    assert done.returncode == 0, done.stderr
    assert read_dataset(tmp_path / "out").file_bytes() == expected


@pytest.mark.parametrize("kind", FILES)
def test_read_that_fails_for_good_names_the_file_and_the_errno(tmp_path, kind, pack_with_fault, pack):
    source, victim = make_source(kind, tmp_path / "source")
    done = pack_with_fault(source, victim, "out", CALLS.get(kind, "readv"), "error=EIO")
    assert done.returncode == 66, done.stderr
    assert f"{victim.name}: Input/output error (EIO, after {NUM_TRIES} tries)" in done.stderr
    assert "Traceback" not in done.stderr
    assert pack("build", str(source), str(tmp_path / "out"), "--quiet").returncode == 0, "the same command goes on"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "call"), CONTAINERS.items())
def test_container_is_read_again_while_planning_and_while_packing(
    tmp_path, kind, call, pack_with_fault, pack, pack_well, read_dataset
):
    source, victim = make_source(kind, tmp_path / "source")
    options = OPTIONS.get(kind, ())
    expected = pack_well(source, *options)
    assert pack_with_fault(source, victim, "counted", call, "", *options).returncode == 0
    threads = [line.split()[0] for line in (tmp_path / "calls").read_text().splitlines() if f"{call}(" in line]
    last = threads.count(threads[-1])  # the calls of each thread are counted for themselves
    for out, when in (("first", "1"), ("last", f"{last}")):
        done = pack_with_fault(source, victim, out, call, f"error=EIO:when={when}", *options)
        assert done.returncode == 0, done.stderr
        assert read_dataset(tmp_path / out).file_bytes() == expected
    done = pack_with_fault(source, victim, "out", call, f"error=EIO:when={last}+", *options)
    assert done.returncode == 66, done.stderr
    assert victim.name in done.stderr
    assert f"EIO, after {NUM_TRIES} tries" in done.stderr
    assert pack("build", str(source), str(tmp_path / "out"), "--quiet", *options).returncode == 0


def test_file_that_cannot_be_opened_for_a_moment_is_opened_again(tmp_path, pack_with_fault, pack_well, read_dataset):
    source, victim = make_source("tree", tmp_path / "source")
    expected = pack_well(source)
    done = pack_with_fault(source, victim, "out", "openat", "error=ESTALE:when=1..3")
    assert done.returncode == 0, done.stderr
    assert read_dataset(tmp_path / "out").file_bytes() == expected


def test_middle_of_a_big_file_is_read_again_from_there(tmp_path, pack_with_fault, pack_well, read_dataset):
    source, victim = make_source("big file", tmp_path / "source")
    expected = pack_well(source)
    done = pack_with_fault(source, victim, "out", "read", "error=EIO:when=7..8")
    assert done.returncode == 0, done.stderr
    assert read_dataset(tmp_path / "out").file_bytes() == expected


def test_directory_and_status_that_fail_for_a_moment_are_asked_again(
    tmp_path, pack_with_fault, pack_well, read_dataset
):
    source, victim = make_source("tree", tmp_path / "source")
    expected = pack_well(source)
    for number, (path, call) in enumerate([(source, "getdents64"), (victim, "newfstatat")]):
        done = pack_with_fault(source, path, f"out{number}", call, "error=EIO:when=1..2")
        assert done.returncode == 0, done.stderr
        assert read_dataset(tmp_path / f"out{number}").file_bytes() == expected


def test_directory_that_stays_unreadable_is_named_before_anything_is_written(tmp_path, pack_with_fault):
    source, _ = make_source("tree", tmp_path / "source")
    below = source / "below"
    below.mkdir()
    done = pack_with_fault(source, below, "out", "getdents64", "error=EIO")
    assert done.returncode == 66
    assert "below: Input/output error (EIO" in done.stderr
    assert not (tmp_path / "out").exists()


def test_file_that_is_unreadable_only_when_read_stops_even_a_build_that_skips_unreadable_files(
    tmp_path, pack_with_fault, pack, read_dataset
):
    """What is in a dataset must not depend on the weather: the plan has to be made anew, without the file."""
    source, victim = make_source("tree", tmp_path / "source")
    skip = ("--on-unreadable", "skip", "--max-skipped", "50%")
    done = pack_with_fault(source, victim, "out", "readv", "error=EIO", *skip)
    assert done.returncode == 66
    assert "--exclude" in done.stderr
    assert "--overwrite" in done.stderr
    done = pack("build", str(source), str(tmp_path / "out"), *skip, "--exclude", victim.name, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert read_dataset(tmp_path / "out").manifest.num_samples == NUM_SAMPLES - 1
