"""What every remote must do, run for each implementation; and what is special about each."""

import asyncio
import os

import pytest

from shards.errors import (
    ManifestFormatError,
    RemoteChangedError,
    RemoteDeniedError,
    RemoteError,
    RemoteMissingError,
)
from shards.manifest import MAX_MANIFEST_BYTES
from stager.remotes.base import RemoteVersion, read_whole_manifest
from stager.remotes.posix import PosixRemote
from stager.remotes.retry import RetryingRemote, backoff_delays

CONTENT = bytes(range(256)) * 40


class RemoteContract:
    """Subclass it: ``remote`` reads what lies in ``place``."""

    @pytest.fixture
    def place(self, tmp_path):
        (tmp_path / "sub").mkdir()
        (tmp_path / "file").write_bytes(CONTENT)
        (tmp_path / "sub" / "näme with space%").write_bytes(CONTENT[::-1])
        (tmp_path / "empty").write_bytes(b"")
        return tmp_path

    def read(self, remote, name, offset, size, version=None):
        async def run():
            buffer = bytearray(size)
            known = version or await remote.stat(name)
            await remote.read_range(name, offset, memoryview(buffer), known)
            return bytes(buffer)

        return asyncio.run(run())

    def stat(self, remote, name):
        return asyncio.run(remote.stat(name))

    @pytest.mark.parametrize(("offset", "size"), [(0, 10), (0, len(CONTENT)), (5000, 1), (len(CONTENT) - 3, 3), (7, 0)])
    def test_a_range_is_delivered_whole(self, remote, offset, size):
        assert self.read(remote, "file", offset, size) == CONTENT[offset : offset + size]

    def test_names_are_taken_as_they_are(self, remote):
        assert self.read(remote, "sub/näme with space%", 0, 10) == CONTENT[::-1][:10]

    def test_the_size_is_told(self, remote):
        assert self.stat(remote, "file").size_bytes == len(CONTENT)
        assert self.stat(remote, "empty").size_bytes == 0

    def test_an_unchanged_file_has_an_equal_version(self, remote):
        assert self.stat(remote, "file") == self.stat(remote, "file")

    @pytest.mark.parametrize("name", ["nothing", "sub/nothing", "file/nothing", "sub"])
    def test_a_missing_file_is_named_and_not_worth_repeating(self, remote, name):
        with pytest.raises(RemoteMissingError, match=name) as caught:
            self.stat(remote, name)
        assert not caught.value.is_transient

    def test_a_replaced_file_gives_no_bytes(self, remote, place):
        version = self.stat(remote, "file")
        (place / "new").write_bytes(CONTENT[::-1])
        (place / "new").rename(place / "file")
        with pytest.raises(RemoteChangedError):
            self.read(remote, "file", 0, 10, version)

    def test_a_cut_file_gives_no_bytes(self, remote, place):
        version = self.stat(remote, "file")
        os.truncate(place / "file", 100)
        with pytest.raises(RemoteChangedError):
            self.read(remote, "file", 0, 200, version)

    def test_many_ranges_at_once_do_not_mix(self, remote):
        async def run():
            version = await remote.stat("file")
            buffers = [bytearray(97) for _ in range(100)]
            await asyncio.gather(
                *(remote.read_range("file", 100 * i, memoryview(buffer), version) for i, buffer in enumerate(buffers))
            )
            return buffers

        assert all(buffer == CONTENT[100 * i : 100 * i + 97] for i, buffer in enumerate(asyncio.run(run())))

    def test_the_url_tells_where(self, remote, place):
        assert str(place) in remote.url


class TestPosix(RemoteContract):
    @pytest.fixture
    def remote(self, place):
        remote = PosixRemote(str(place), 3)
        yield remote
        asyncio.run(remote.close())

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_an_unreadable_file_is_denied(self, remote, place):
        (place / "file").chmod(0)
        with pytest.raises(RemoteDeniedError):
            self.read(remote, "file", 0, 1)

    def test_no_descriptor_stays_open(self, remote):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            self.read(remote, "file", 0, 10)
        with pytest.raises(RemoteMissingError):
            self.read(remote, "nothing", 0, 10, RemoteVersion(10, ""))
        assert len(os.listdir("/proc/self/fd")) <= before


class FlakyRemote:
    """Fails a number of times before each answer."""

    url = "flaky"

    def __init__(self, num_failures, *, is_transient=True):
        self.num_failures = self.left = num_failures
        self.is_transient = is_transient
        self.num_calls = 0

    def answer(self):
        self.num_calls += 1
        if self.left:
            self.left -= 1
            raise RemoteError("stale file handle", is_transient=self.is_transient)
        self.left = self.num_failures

    async def stat(self, name):
        self.answer()
        return RemoteVersion(3, "v")

    async def read_range(self, name, offset, buffer, version):
        self.answer()
        buffer[:] = b"abc"

    async def close(self):
        self.left = -1


def retrying(inner, num_retries):
    return RetryingRemote(
        inner, lambda: backoff_delays(num_retries, first_seconds=0.001, limit_seconds=0.002), lambda: 1
    )


def test_transient_failures_are_repeated_a_bounded_number_of_times():
    inner = FlakyRemote(3)
    remote = retrying(inner, 3)
    assert asyncio.run(read_whole_manifest(remote, "m")) == b"abc"
    assert remote.num_retries == 6
    with pytest.raises(RemoteError, match="stale"):
        asyncio.run(retrying(FlakyRemote(3), 2).stat("m"))


def test_permanent_failures_are_not_repeated():
    inner = FlakyRemote(1, is_transient=False)
    with pytest.raises(RemoteError, match="stale"):
        asyncio.run(retrying(inner, 5).stat("m"))
    assert inner.num_calls == 1


def test_waits_double_up_to_a_limit():
    assert list(backoff_delays(5, first_seconds=1, limit_seconds=5)) == [1, 2, 4, 5, 5]
    assert list(backoff_delays(0, first_seconds=1, limit_seconds=5)) == []


def test_an_enormous_manifest_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(MAX_MANIFEST_BYTES + 1)
    remote = PosixRemote(str(tmp_path), 1)
    with pytest.raises(ManifestFormatError, match="at most"):
        asyncio.run(read_whole_manifest(remote, "manifest.json"))
    asyncio.run(remote.close())
