"""How often, how long and with what pauses failed calls are repeated."""

import asyncio

import pytest

from shards.errors import ManifestFormatError, RemoteBusyError, RemoteError, RemoteUnreachableError
from shards.manifest import MAX_MANIFEST_BYTES
from stager.remotes.base import RemoteVersion, read_whole_manifest
from stager.remotes.posix import PosixRemote
from stager.remotes.retry import RetryingRemote, RetryPolicy


class FlakyRemote:
    """Fails a number of times before each answer."""

    url = "flaky"

    def __init__(self, num_failures, error=None):
        self.num_failures = self.left = num_failures
        self.error = error or RemoteError("stale file handle")
        self.num_calls = 0

    def answer(self):
        self.num_calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        self.left = self.num_failures

    async def stat(self, name):
        self.answer()
        return RemoteVersion(3, "v")

    async def read_range(self, name, offset, buffer, version):
        self.answer()
        buffer[:] = b"abc"

    async def close(self):
        self.left = -1


def retrying(inner, budget_seconds=5.0, jitter=lambda: 1.0):
    policy = RetryPolicy(
        budget_seconds=budget_seconds, unreached_seconds=0.02, first_seconds=0.001, limit_seconds=0.002
    )
    return RetryingRemote(inner, policy, jitter)


def test_transient_failures_are_repeated_until_they_are_over():
    inner = FlakyRemote(3)
    remote = retrying(inner)
    assert asyncio.run(read_whole_manifest(remote, "m")) == b"abc"
    assert remote.num_retries == 6


def test_time_for_repeats_is_bounded_and_the_message_says_how_much_was_spent():
    inner = FlakyRemote(10**9)
    with pytest.raises(RemoteError, match=r"stale file handle; given up after \d+ repeats in 0 s"):
        asyncio.run(retrying(inner, 0.02).stat("m"))
    assert inner.num_calls >= 2


def test_permanent_failures_are_not_repeated():
    inner = FlakyRemote(1, RemoteError("stale file handle", is_transient=False))
    with pytest.raises(RemoteError, match="stale"):
        asyncio.run(retrying(inner).stat("m"))
    assert inner.num_calls == 1


def test_a_source_that_was_never_reached_gets_less_time_than_one_that_was():
    policy = RetryPolicy(budget_seconds=100.0, unreached_seconds=0.0, first_seconds=0.001, limit_seconds=0.002)
    error = RemoteUnreachableError("nothing listens there")
    inner = FlakyRemote(3, error)
    with pytest.raises(RemoteUnreachableError):
        asyncio.run(RetryingRemote(inner, policy, lambda: 1.0).stat("m"))
    assert inner.num_calls == 1

    async def reached_before():
        inner.left = 0
        remote = RetryingRemote(inner, policy, lambda: 1.0)
        await remote.stat("m")
        return await remote.stat("m")

    assert asyncio.run(reached_before()).size_bytes == 3


def test_a_server_that_says_how_long_to_wait_is_obeyed():
    remote = retrying(FlakyRemote(1, RemoteBusyError("slow down", retry_after_seconds=3600.0)), budget_seconds=10.0)
    with pytest.raises(RemoteBusyError, match="given up after 0 repeats"):
        asyncio.run(remote.stat("m"))
    remote = retrying(FlakyRemote(1, RemoteBusyError("slow down", retry_after_seconds=0.01)))
    assert asyncio.run(remote.stat("m")).size_bytes == 3


def test_longest_waits_double_up_to_a_limit():
    policy = RetryPolicy(budget_seconds=0, first_seconds=1, limit_seconds=5)
    assert [policy.longest_wait(attempt) for attempt in (0, 1, 2, 3, 4, 10**6)] == [1, 2, 4, 5, 5, 5]


def test_an_enormous_manifest_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(MAX_MANIFEST_BYTES + 1)
    remote = PosixRemote(str(tmp_path), 1)
    with pytest.raises(ManifestFormatError, match="at most"):
        asyncio.run(read_whole_manifest(remote, "manifest.json"))
    asyncio.run(remote.close())
