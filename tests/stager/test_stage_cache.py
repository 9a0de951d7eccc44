"""The cache directory itself: who may write it, its version, its locks, links out of it."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from shards.errors import CacheNotWritableError

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(*inner):
    return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *inner)


@pytest.fixture
def world():
    """A directory that every user can reach, which pytest's own ones are not."""
    if subprocess.run(as_nobody(sys.executable, "-c", "import stager"), check=False, capture_output=True).returncode:
        pytest.skip("another user cannot run this Python")
    path = Path(tempfile.mkdtemp(prefix="shardferry-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def open_dataset(publish, world):
    return publish(world / "published", [5 * 65536, 100_000])


@as_root
def test_a_cache_of_another_user_is_exit_73_with_what_an_administrator_has_to_run(open_dataset, world, stage):
    cache = world / "cache"
    cache.mkdir(mode=0o755)
    ended = stage("run", open_dataset.path, "--cache-dir", cache, prefix=as_nobody())
    assert ended.code == 73
    assert "runs as uid 65534, gid 65534" in ended.message
    assert f"{cache} has mode 0755 and belongs to uid 0 (root), gid 0" in ended.message
    assert f"chown -R 65534:65534 {cache}" in ended.message
    assert "Traceback" not in ended.stderr


@as_root
def test_a_cache_that_cannot_be_made_is_exit_73_with_the_command_that_makes_it(open_dataset, world, stage):
    cache = world / "deep" / "cache"
    ended = stage("run", open_dataset.path, "--cache-dir", cache, prefix=as_nobody())
    assert ended.code == 73
    assert f"install -d -m 0755 -o 65534 -g 65534 {cache}" in ended.message
    assert f"{world} has mode" in ended.message


@as_root
def test_a_dataset_directory_of_another_user_is_exit_73(open_dataset, world, stage):
    cache = world / "cache"
    assert stage("run", open_dataset.path, "--cache-dir", cache).code == 0
    cache.chmod(0o777)
    (open_dataset.staged_in(cache) / "train-000000.tar").unlink()
    ended = stage("run", open_dataset.path, "--cache-dir", cache, prefix=as_nobody())
    assert ended.code == 73
    assert "An administrator can run" in ended.message


@as_root
def test_an_unprivileged_user_stages_and_mends_a_commit_that_was_killed_half_way(open_dataset, world, stage):
    cache = world / "cache"
    cache.mkdir()
    os.chown(cache, NOBODY, NOBODY)
    assert stage("run", open_dataset.path, "--cache-dir", cache, prefix=as_nobody()).code == 0
    assert open_dataset.is_staged(cache)
    # between the change of the mode and the rename: complete, read-only, not committed
    staged = open_dataset.staged_in(cache)
    (staged / "train-000000.tar").rename(staged / ".stage" / "train-000000.tar.partial")
    ended = stage("run", open_dataset.path, "--cache-dir", cache, "--json", prefix=as_nobody())
    assert ended.code == 0, ended.stderr
    assert ended.report["resumed_bytes"] == 5 * 65536
    assert open_dataset.is_staged(cache)


@as_root
def test_a_source_that_may_not_be_read_is_exit_77(open_dataset, world, stage):
    cache = world / "cache"
    cache.mkdir()
    os.chown(cache, NOBODY, NOBODY)
    (open_dataset.path / "train-000001.tar").chmod(0o600)
    ended = stage("run", open_dataset.path, "--cache-dir", cache, prefix=as_nobody())
    assert ended.code == 77
    assert str(open_dataset.path / "train-000001.tar") in ended.message
    assert "uid 65534" in ended.message


@as_root
def test_a_read_only_filesystem_is_exit_73(dataset, tmp_path, stage):
    cache = tmp_path / "mount"
    cache.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(cache)], check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        ended = stage("run", dataset.path, "--cache-dir", cache)
    finally:
        subprocess.run(["umount", str(cache)], check=True)
    assert ended.code == 73
    assert "mount it writable" in ended.message


def test_a_file_where_the_cache_should_be_is_exit_73(dataset, tmp_path, stage_here):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CacheNotWritableError, match="a file is in the way"):
        stage_here(dataset, tmp_path / "file" / "cache")
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize(("content", "said"), [("2\n", "version 2"), ("7", "version 7"), ("hello", "not a Shardferry")])
def test_a_cache_of_a_newer_release_is_exit_78_and_stays_as_it_is(dataset, cache, stage, content, said):
    cache.mkdir()
    (cache / "VERSION").write_text(content)
    for command in (("run", dataset.path), ("status",)):
        ended = stage(*command, "--cache-dir", cache)
        assert ended.code == 78
        assert said in ended.message
    assert os.listdir(cache) == ["VERSION"]


@pytest.fixture
def inject():
    """Let the kernel answer a system call of the program with something else, where tracing is allowed."""

    def prefix(fault):
        name = fault.partition(":")[0]
        strace = ("strace", "-f", "-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={fault}")
        if shutil.which("strace") is None:
            pytest.skip("strace is not installed")
        if subprocess.run([*strace, sys.executable, "-c", ""], check=False, capture_output=True).returncode:
            pytest.skip("tracing is not allowed here")
        return strace

    return prefix


def test_where_locks_do_not_exclude_the_run_ends_with_78_and_advice(dataset, cache, stage, inject):
    # "success" without a lock is what Lustre without -o flock and some network filesystems answer
    ended = stage("run", dataset.path, "--cache-dir", cache, prefix=inject("flock:retval=0"))
    assert ended.code == 78, ended.stderr
    assert "do not exclude" in ended.message
    assert "--cache-dir on a local disk" in ended.message


def test_where_there_are_no_locks_the_run_ends_with_78(dataset, cache, stage, inject):
    ended = stage("run", dataset.path, "--cache-dir", cache, prefix=inject("flock:error=ENOLCK"))
    assert ended.code == 78, ended.stderr


def test_a_local_disk_that_fails_is_exit_74_and_names_the_file(dataset, cache, stage, inject):
    ended = stage("run", dataset.path, "--cache-dir", cache, prefix=inject("pwrite64:error=EIO:when=3+"))
    assert ended.code == 74, ended.stderr
    assert str(dataset.staged_in(cache)) in ended.message
    assert dataset.wrong_files(cache) == []


def test_a_file_handle_of_the_source_that_is_stale_now_and_then_costs_a_repeat(dataset, cache, stage, inject):
    command = ("run", dataset.path, "--cache-dir", cache, "--connections", "1", "--json")
    ended = stage(*command, prefix=inject("preadv,preadv2:error=ESTALE:when=2+6"))
    assert ended.code == 0, ended.stderr
    assert ended.report["retries"] >= 2
    assert "Stale file handle" in ended.stderr
    assert dataset.is_staged(cache)


def test_a_link_never_replaces_what_is_no_link(dataset, cache, tmp_path, stage_here):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("mine")
    with pytest.raises(CacheNotWritableError, match="stays untouched"):
        stage_here(dataset, cache, links=(str(tmp_path / "data"),))
    assert (tmp_path / "data" / "x").read_text() == "mine"
    assert not cache.exists()


def test_a_cache_that_vanishes_while_waiting_is_made_again(dataset, cache, stage_here):
    stage_here(dataset, cache)
    shutil.rmtree(dataset.staged_in(cache))  # what an eviction leaves
    stage_here(dataset, cache)
    assert dataset.is_staged(cache)
