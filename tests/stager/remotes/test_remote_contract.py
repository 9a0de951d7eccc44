"""What every remote must do, run for each implementation on a real server; and what is special about some."""

import asyncio
import os

import pytest

from shards.errors import RemoteChangedError, RemoteDeniedError, RemoteError, RemoteMissingError
from stager.remotes.base import RemoteVersion
from stager.remotes.posix import PosixRemote

CONTENT = bytes(range(256)) * 40
STRANGE = "sub/näme with space%"


class RemoteContract:
    """Subclass it: ``place`` is where files are put, and read from."""

    @pytest.fixture(autouse=True)
    def _files(self, place):
        place.put("file", CONTENT)
        place.put(STRANGE, CONTENT[::-1])
        place.put("empty", b"")

    def read(self, place, name, offset, size, version=None):
        async def work(remote):
            buffer = bytearray(size)
            known = version or await remote.stat(name)
            await remote.read_range(name, offset, memoryview(buffer), known)
            return bytes(buffer)

        return place.run(work)

    def stat(self, place, name):
        return place.run(lambda remote: remote.stat(name))

    @pytest.mark.parametrize(("offset", "size"), [(0, 10), (0, len(CONTENT)), (5000, 1), (len(CONTENT) - 3, 3), (7, 0)])
    def test_a_range_is_delivered_whole(self, place, offset, size):
        assert self.read(place, "file", offset, size) == CONTENT[offset : offset + size]

    def test_an_empty_file_is_read(self, place):
        assert self.read(place, "empty", 0, 0) == b""

    def test_names_are_taken_as_they_are(self, place):
        assert self.read(place, STRANGE, 0, 10) == CONTENT[::-1][:10]

    def test_the_size_is_told(self, place):
        assert self.stat(place, "file").size_bytes == len(CONTENT)
        assert self.stat(place, "empty").size_bytes == 0

    def test_an_unchanged_file_has_an_equal_version(self, place):
        assert self.stat(place, "file") == self.stat(place, "file")

    @pytest.mark.parametrize("name", ["nothing", "sub/nothing"])
    def test_a_missing_file_is_named_and_not_worth_repeating(self, place, name):
        with pytest.raises(RemoteMissingError, match=name) as caught:
            self.stat(place, name)
        assert not caught.value.is_transient

    def test_a_directory_is_no_file(self, place):
        with pytest.raises(RemoteError, match="sub") as caught:
            self.stat(place, "sub")
        assert not caught.value.is_transient

    @pytest.mark.parametrize("content", [CONTENT[::-1], CONTENT[:100], CONTENT + b"more"])
    def test_a_replaced_file_gives_no_bytes(self, place, content):
        version = self.stat(place, "file")
        place.put("file", content)
        with pytest.raises(RemoteChangedError):
            self.read(place, "file", 0, 10, version)

    def test_a_file_that_is_gone_gives_no_bytes(self, place):
        with pytest.raises(RemoteMissingError):
            self.read(place, "gone", 0, 10, self.stat(place, "file"))

    def test_many_ranges_at_once_do_not_mix(self, place):
        async def work(remote):
            version = await remote.stat("file")
            buffers = [bytearray(97) for _ in range(100)]
            await asyncio.gather(
                *(remote.read_range("file", 100 * i, memoryview(buffer), version) for i, buffer in enumerate(buffers))
            )
            return buffers

        assert all(buffer == CONTENT[100 * i : 100 * i + 97] for i, buffer in enumerate(place.run(work)))

    def test_all_files_are_listed(self, place):
        place.put(".hidden", b"x")
        place.put(".pack/state", b"x")

        async def work(remote):
            return await remote.list_files(), [await remote.stat(name) for name in (STRANGE, "empty", "file")]

        listed, versions = place.run(work)
        assert [file.name for file in listed] == sorted(["empty", "file", STRANGE])
        sizes = {file.name: file.size_bytes for file in listed}
        assert [sizes[name] for name in (STRANGE, "empty", "file")] == [version.size_bytes for version in versions]
        again = place.run(lambda remote: remote.list_files())
        assert again == listed
        place.put("file", CONTENT[::-1])
        changed = place.run(lambda remote: remote.list_files())
        assert [a.name for a, b in zip(listed, changed, strict=True) if a.token != b.token] == ["file"]

    def test_the_url_tells_where(self, place):
        assert place.run(lambda remote: asyncio.sleep(0, remote.url)) == place.url


class TestPosix(RemoteContract):
    @pytest.fixture
    def place(self, directory_place):
        return directory_place

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_an_unreadable_file_is_denied(self, place):
        os.chmod(os.path.join(place.url, "file"), 0)
        with pytest.raises(RemoteDeniedError):
            self.read(place, "file", 0, 1)

    def test_what_stands_below_a_file_is_missing(self, place):
        with pytest.raises(RemoteMissingError):
            self.stat(place, "file/nothing")

    def test_no_descriptor_stays_open(self, place):
        async def work():
            remote = PosixRemote(place.url, 3)
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(20):
                await remote.read_range("file", 0, memoryview(bytearray(10)), await remote.stat("file"))
            with pytest.raises(RemoteMissingError):
                await remote.read_range("nothing", 0, memoryview(bytearray(10)), RemoteVersion(10, ""))
            assert len(os.listdir("/proc/self/fd")) <= before
            await remote.close()

        asyncio.run(work())


class TestS3ThroughObstore(RemoteContract):
    @pytest.fixture
    def place(self, s3_place):
        pytest.importorskip("obstore")
        return s3_place(s3_driver="obstore")


class TestS3ThroughS3fs(RemoteContract):
    @pytest.fixture
    def place(self, s3_place):
        pytest.importorskip("s3fs")
        return s3_place(s3_driver="s3fs")


class TestHttp(RemoteContract):
    @pytest.fixture
    def place(self, http_place):
        return http_place

    def test_all_files_are_listed(self, place):
        """Not offered, and said so."""
        with pytest.raises(RemoteError, match="web servers list no files") as caught:
            place.run(lambda remote: remote.list_files())
        assert not caught.value.is_transient


class TestSftpThroughFsspec(RemoteContract):
    @pytest.fixture
    def place(self, sftp_place):
        return sftp_place


class TestMemoryThroughFsspec(RemoteContract):
    @pytest.fixture
    def place(self, memory_place):
        return memory_place


def test_a_driver_that_is_not_installed_is_named(directory_place):
    directory_place.url = "abfs://container/set"
    with pytest.raises(RemoteError, match="adlfs"):
        directory_place.run(lambda remote: remote.stat("file"))


def test_a_scheme_that_nobody_knows_is_refused(directory_place):
    directory_place.url = "foo://container/set"
    with pytest.raises(RemoteError, match="foo") as caught:
        directory_place.run(lambda remote: remote.stat("file"))
    assert not caught.value.is_transient
