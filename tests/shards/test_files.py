import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shards.errors import FormatError, SizeMismatchError
from shards.files import (
    commit_open_file,
    create_partial,
    free_bytes,
    fsync_directory,
    is_partial_name,
    make_directory,
    read_regular_file,
    write_all,
    write_file,
)


@pytest.fixture
def umask() -> Iterator:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other users can reach, unlike those of pytest."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    for directory, _, _ in os.walk(path):
        os.chmod(directory, 0o755)
    shutil.rmtree(path)


def run_child(code: str, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_committed_file_has_its_name_its_content_and_nothing_beside_it(tmp_path: Path) -> None:
    final = tmp_path / "train-000000.tar"
    with create_partial(str(final)) as partial:
        assert os.path.dirname(partial.path) == str(tmp_path)
        assert is_partial_name(os.path.basename(partial.path))
        assert mode_of(Path(partial.path)) == 0o600
        partial.write(b"abc")
        os.pwrite(partial.fd, b"X", 1)
        assert not final.exists()
        partial.commit(3)
        assert final.read_bytes() == b"aXc"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(partial.fd)
    assert os.listdir(tmp_path) == [final.name]


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask, mask: int) -> None:
    umask(mask)
    make_directory(str(tmp_path / "a/b"))
    make_directory(str(tmp_path / "a/c"), 0o2775)
    write_file(str(tmp_path / "a/b/x"), b"x")
    assert mode_of(tmp_path / "a") == mode_of(tmp_path / "a/b") == 0o755
    assert mode_of(tmp_path / "a/c") == 0o2775
    assert mode_of(tmp_path / "a/b/x") == 0o444


def test_a_group_directory_hands_its_bit_on(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    make_directory(str(tmp_path / "a"))
    assert mode_of(tmp_path / "a") == 0o2755


@pytest.mark.parametrize("expected", [0, 2, 4, -1, 2**63])
def test_a_file_of_another_size_is_not_committed(tmp_path: Path, expected: int) -> None:
    final = tmp_path / "x"
    with create_partial(str(final)) as partial:
        partial.write(b"abc")
        with pytest.raises(SizeMismatchError) as caught:
            partial.commit(expected)
    assert (caught.value.name, caught.value.expected_bytes, caught.value.actual_bytes) == (str(final), expected, 3)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(1)])
def test_leaving_without_commit_removes_the_partial(tmp_path: Path, error: BaseException) -> None:
    def write_and_fail() -> None:
        with create_partial(str(tmp_path / "x")) as partial:
            partial.write(b"abc")
            raise error

    with pytest.raises(type(error)):
        write_and_fail()
    with create_partial(str(tmp_path / "x")) as partial:
        partial.write(b"abc")
    with create_partial(str(tmp_path / "x")) as partial:
        os.unlink(partial.path)  # somebody cleaned up
    assert os.listdir(tmp_path) == []


def test_a_commit_replaces_the_old_file_for_new_readers_only(tmp_path: Path) -> None:
    final = tmp_path / "x"
    write_file(str(final), b"old")
    with final.open("rb") as reader:
        write_file(str(final), b"new and longer")
        assert reader.read() == b"old"
    assert final.read_bytes() == b"new and longer"


def test_a_directory_under_the_final_name_stays(tmp_path: Path) -> None:
    (tmp_path / "x" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="x"):
        write_file(str(tmp_path / "x"), b"data")
    assert os.listdir(tmp_path) == ["x"]


def test_two_writers_of_one_name_do_not_meet(tmp_path: Path) -> None:
    final = str(tmp_path / "x")
    with create_partial(final) as first, create_partial(final) as second:
        assert first.path != second.path
        first.write(b"first")
        second.write(b"second")
        second.commit(6)
        first.commit(5)
    assert (tmp_path / "x").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["x"]


def test_the_recipe_keeps_its_order(tmp_path: Path) -> None:
    watched = {os.fstat, os.fchmod, os.fsync, os.replace}
    calls = []

    def note(_frame: object, event: str, function: object) -> None:
        if event == "c_call" and function in watched:
            calls.append(function.__name__)

    with create_partial(str(tmp_path / "x")) as partial:
        partial.write(b"x")
        sys.setprofile(note)
        try:
            partial.commit(1)
        finally:
            sys.setprofile(None)
    assert calls == ["fstat", "fchmod", "fsync", os.replace.__name__, "fsync"]


def test_a_resumable_partial_is_committed_by_the_same_recipe(tmp_path: Path) -> None:
    (tmp_path / ".stage").mkdir()
    partial = tmp_path / ".stage" / "x.partial"
    partial.write_bytes(b"first half, ")
    fd = os.open(partial, os.O_RDWR | os.O_APPEND)
    write_all(fd, b"second half", path=str(partial))
    commit_open_file(fd, str(partial), str(tmp_path / "x"), 23)
    os.close(fd)
    assert (tmp_path / "x").read_bytes() == b"first half, second half"
    assert mode_of(tmp_path / "x") == 0o444
    assert os.listdir(tmp_path / ".stage") == []


@pytest.mark.parametrize(
    "name", ["x", "n" * 255, "é" * 127, "\udcff" * 255, "a.partial", "new\nline", "-rf", ".hidden"]
)
def test_any_file_name_has_a_partial(tmp_path: Path, name: str) -> None:
    final = os.path.join(str(tmp_path), name)
    with create_partial(final) as partial:
        assert is_partial_name(os.path.basename(partial.path))
        assert not is_partial_name(name)
        partial.commit(0)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x.partial",
        ".partial",
        ".x.partial",
        ".x.0123456789abcde.partial",
        "x.0123456789abcdef.partial",
        ".x.0123456789abcdef.partial.tar",
        ".x.0123456789ABCDEF.partial",
        ".0123456789abcdef.partial",
        ".stage",
    ],
)
def test_other_names_are_no_partials(name: str) -> None:
    assert not is_partial_name(name)


def test_a_relative_name_lies_in_the_working_directory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_file("x", b"1")
    make_directory("a/b")
    assert sorted(os.listdir(tmp_path)) == ["a", "x"]
    assert free_bytes("a/none") == pytest.approx(free_bytes(str(tmp_path)), rel=0.1)
    with pytest.raises(ValueError, match="no file name"):
        create_partial("a/")


@pytest.mark.parametrize("data", [b"", bytearray(b"abcdefgh"), memoryview(b"abcdefgh"), np.arange(9, dtype=np.uint64)])
def test_every_kind_of_buffer_is_written(tmp_path: Path, data) -> None:
    write_file(str(tmp_path / "x"), data)
    assert (tmp_path / "x").read_bytes() == bytes(memoryview(data).cast("B"))


def test_a_pipe_that_takes_little_at_once_gets_all() -> None:
    code = "import sys, time; from shards.files import write_all; write_all(1, bytes(3_000_000), path='pipe')"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    size = 0
    while piece := child.stdout.read1(70_000):
        size += len(piece)
    assert (child.wait(), size) == (0, 3_000_000)
    child.stdout.close()


def test_make_directory_leaves_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    make_directory(str(tmp_path / "a"))
    make_directory(str(tmp_path / "a/b/c/"))
    assert mode_of(tmp_path / "a") == 0o700
    (tmp_path / "link").symlink_to("a")
    make_directory(str(tmp_path / "link"))
    (tmp_path / "file").write_bytes(b"")
    for path in ("file", "file/below"):
        with pytest.raises(OSError, match="file"):
            make_directory(str(tmp_path / path))


def test_free_bytes_is_what_the_filesystem_offers(tmp_path: Path) -> None:
    assert 0 < free_bytes(str(tmp_path / "not/yet/there")) <= shutil.disk_usage(tmp_path).total
    fsync_directory(str(tmp_path))


AS_ANOTHER_USER = """
import os, sys
from shards.files import make_directory, write_file
if os.geteuid() == 0:
    os.setegid(65534); os.seteuid(65534)
"""


def test_a_directory_that_may_not_be_written_is_named_and_stays_as_it_was(open_directory: Path) -> None:
    (open_directory / "x").write_bytes(b"old")
    (open_directory / "closed").mkdir(mode=0o500)
    open_directory.chmod(0o555)
    code = AS_ANOTHER_USER + (
        "for call, path in ((write_file, 'new'), (write_file, 'x'), (make_directory, 'd')):\n"
        "    try: call(sys.argv[1] + '/' + path, *([b'data'] if call is write_file else []))\n"
        "    except PermissionError as error: print(error.filename)\n"
    )
    result = run_child(code, str(open_directory))
    lines = result.stdout.splitlines()
    assert len(lines) == 3, result.stderr
    assert all(line.startswith(str(open_directory)) for line in lines)
    assert sorted(os.listdir(open_directory)) == ["closed", "x"]
    assert (open_directory / "x").read_bytes() == b"old"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_another_user_can_read_a_committed_file_and_not_change_it(open_directory: Path, umask) -> None:
    umask(0o077)
    make_directory(str(open_directory / "d"))
    write_file(str(open_directory / "d/x"), b"data")
    code = AS_ANOTHER_USER + (
        "print(open(sys.argv[1], 'rb').read())\ntry: open(sys.argv[1], 'ab')\nexcept PermissionError: print('no')"
    )
    assert run_child(code, str(open_directory / "d/x")).stdout == "b'data'\nno\n"


FULL = """
import errno, os, sys
from shards.files import create_partial, free_bytes, write_file
directory = sys.argv[1]
write_file(directory + "/old", b"old")
try:
    with create_partial(directory + "/big") as partial:
        for _ in range(64):
            partial.write(bytes(1 << 16))
        partial.commit(64 << 16)
except OSError as error:
    print(errno.errorcode[error.errno], error.filename == directory + "/big")
print(sorted(os.listdir(directory)), open(directory + "/old").read())
write_file(directory + "/after", b"room again")
"""


def test_a_full_disk_leaves_no_trace_but_the_error(tmp_path: Path) -> None:
    mount = f'mount -t tmpfs -o size=1m tmpfs {tmp_path} && exec "$@"'
    namespace = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount")
    in_small_tmpfs = (*namespace, "sh", "-c", mount, "sh")
    if shutil.which("unshare") is None or run_child("pass", prefix=in_small_tmpfs).returncode:
        pytest.skip("no filesystem can be mounted here")
    result = run_child(FULL, str(tmp_path), prefix=in_small_tmpfs)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["ENOSPC True", "['old'] old"]


def test_a_file_that_may_not_grow_leaves_no_trace_but_the_error(tmp_path: Path) -> None:
    limit = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    )
    result = run_child(limit + FULL, str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["EFBIG True", "['old'] old"]


WRITE_FOR_EVER = """
import os, sys
from shards.files import create_partial, write_file
print("ready", flush=True)
number = 0
while True:
    number += 1
    body = (b"%08d" % number) * (number % 40 * 500 + 1)
    name = f"{sys.argv[1]}/{number % 9}"
    if number % 2:
        write_file(name, len(body).to_bytes(8, "big") + body)
    else:
        with create_partial(name) as partial:
            partial.write(len(body).to_bytes(8, "big"))
            for start in range(0, len(body), 10_000):
                partial.write(body[start : start + 10_000])
            partial.commit(8 + len(body))
"""


def test_a_writer_killed_at_any_moment_leaves_no_final_name_incomplete(tmp_path: Path) -> None:
    r = random.Random(7)
    num_partials = 0
    for _ in range(15):
        with subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path)], stdout=subprocess.PIPE) as child:
            assert child.stdout.readline() == b"ready\n"
            time.sleep(r.uniform(0, 0.12))
            child.send_signal(signal.SIGKILL)
        for path in tmp_path.iterdir():
            if is_partial_name(path.name):
                num_partials += 1
                path.unlink()
                continue
            data = path.read_bytes()
            assert len(data) == 8 + int.from_bytes(data[:8], "big")
            assert data[8:] == data[8:16] * (len(data) // 8 - 1)
            assert mode_of(path) == 0o444
    assert num_partials > 0  # otherwise no kill came in the middle of anything
    assert len(list(tmp_path.iterdir())) > 0


def test_a_small_file_is_read_whole_and_anything_else_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, 1000):
        path.write_bytes(b"x" * size)
        assert read_regular_file(str(path), max_bytes=1000) == b"x" * size
    path.write_bytes(b"x" * 1001)
    with pytest.raises(FormatError, match="1001 bytes, at most 1000 are accepted"):
        read_regular_file(str(path), max_bytes=1000)
    os.truncate(path, 10 * 1024**4)
    with pytest.raises(FormatError, match="at most 1000"):
        read_regular_file(str(path), max_bytes=1000)
    os.mkfifo(tmp_path / "fifo")
    for other in (tmp_path, tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(FormatError, match="not a regular file"):
            read_regular_file(str(other), max_bytes=1000)
    with pytest.raises(FileNotFoundError):
        read_regular_file(str(tmp_path / "nothing"), max_bytes=1000)
