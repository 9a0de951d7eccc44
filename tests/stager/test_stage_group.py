"""A cache that several users of a group share: modes, and what one user can do with another's files."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

GROUP = 54321
FIRST, SECOND = 54001, 54002

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")


def as_user(uid):
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={GROUP}")


@pytest.fixture
def world():
    """A directory that every user can reach, and in which the group may make a cache."""
    if subprocess.run([*as_user(FIRST), sys.executable, "-c", "import stager"], check=False).returncode:
        pytest.skip("another user cannot run this Python")
    path = Path(tempfile.mkdtemp(prefix="shardferry-test-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_users_of_a_group_share_a_cache_whatever_their_umask(publish, world, stage, umask):
    first, second = (publish(world / name, [100_000, 70_000], seed=seed) for seed, name in enumerate(["one", "two"]))
    cache = world / "cache"
    options = ("--cache-dir", cache, "--group", GROUP, "--lease-ttl", "0", "--min-idle", "0s")
    before = os.umask(umask)
    try:
        ended = stage("run", first.path, *options, prefix=as_user(FIRST))
        assert ended.code == 0, ended.stderr
        staged = first.staged_in(cache)
        for directory in (cache, cache / "datasets", staged, staged / ".stage"):
            assert mode(directory) == 0o2775, directory
            assert directory.stat().st_gid == GROUP
        assert mode(staged / "train-000000.tar") == 0o444
        # the other user mends what the first one lost, goes on where a kill left it, and evicts it
        (staged / "train-000000.tar").rename(staged / ".stage" / "train-000000.tar.partial")
        (staged / ".stage" / "train-000000.tar.partial").chmod(0o660)
        ended = stage("run", first.path, *options, prefix=as_user(SECOND))
        assert ended.code == 0, ended.stderr
        assert first.is_staged(cache)
        ended = stage("run", second.path, *options, "--quota", "1400KiB", prefix=as_user(SECOND))
        assert ended.code == 0, ended.stderr
        assert second.is_staged(cache)
        assert not staged.exists()
    finally:
        os.umask(before)


def test_without_the_group_a_second_user_is_told_what_to_do(publish, world, stage):
    dataset = publish(world / "one", [100_000])
    cache = world / "cache"
    assert stage("run", dataset.path, "--cache-dir", cache, prefix=as_user(FIRST)).code == 0
    (dataset.staged_in(cache) / "train-000000.tar").unlink()
    ended = stage("run", dataset.path, "--cache-dir", cache, prefix=as_user(SECOND))
    assert ended.code == 73
    assert f"uid {SECOND}" in ended.message


def test_a_cache_that_an_administrator_shares_with_a_group_needs_no_option(publish, world, stage):
    cache = world / "cache"
    cache.mkdir()
    os.chown(cache, 0, GROUP)
    cache.chmod(0o2775)
    for seed, user in enumerate((FIRST, SECOND)):
        dataset = publish(world / f"dataset-{user}", [100_000], seed=seed)
        ended = stage("run", dataset.path, "--cache-dir", cache, prefix=as_user(user))
        assert ended.code == 0, ended.stderr
        assert dataset.is_staged(cache)
    assert {mode(path) for path in (cache / "progress", cache / "metrics", cache / "datasets")} == {0o2775}
