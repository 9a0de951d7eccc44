"""What the stager asks of the place where a published dataset lives: how big is a file, give me a range of it.

Rules for every implementation:
    * A call never repeats by itself; :class:`stager.remotes.retry.RetryingRemote` does, when an error is transient.
    * A range is delivered whole or not at all. A short answer is an error, never a success.
    * A range is only taken from the version of the file that the caller names. A file that was replaced meanwhile is
      :class:`shards.errors.RemoteChangedError`, so that bytes of two versions never meet in one shard.
    * No verification: digests are the caller's business.
    * Foreign exceptions do not leave: they become :class:`shards.errors.RemoteError` or one of its kinds.
"""

from dataclasses import dataclass
from typing import Protocol

from shards.errors import ManifestFormatError
from shards.manifest import MAX_MANIFEST_BYTES


@dataclass(frozen=True, slots=True)
class RemoteVersion:
    """One state of a file at the remote."""

    size_bytes: int
    token: str
    """Equal for equal states: an ETag, or inode and mtime. For comparison and messages only."""
    etag: str | None = None
    """What the remote may be asked for by, where there is such a thing."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file that a listing tells of."""

    name: str
    """Relative to the dataset's directory, with ``/``."""
    size_bytes: int
    token: str
    """Equal in two listings for equal states of the file; need not be that of :class:`RemoteVersion`."""


class Remote(Protocol):
    """Reads files by name; names are relative to the dataset's directory, with ``/``."""

    @property
    def url(self) -> str:
        """Where the dataset lies, for messages and reports; carries no secrets."""

    async def stat(self, name: str) -> RemoteVersion:
        """Observe a file.

        Raises:
            RemoteMissingError: there is no such file.
            RemoteDeniedError: it may not be read.
            RemoteError: anything else; ``is_transient`` says whether a repeat may help.
        """

    async def read_range(self, name: str, offset: int, buffer: memoryview, version: RemoteVersion) -> None:
        """Fill ``buffer`` with the bytes ``[offset, offset + len(buffer))`` of a file.

        When this returns, or raises anything, nothing writes into the buffer any more.

        Args:
            name: the file.
            offset: first byte, from the start of the file.
            buffer: writable, one byte per item; filled completely.
            version: what :meth:`stat` said; the bytes are of this version.

        Raises:
            RemoteChangedError: the file is another one now.
            RemoteError: as for :meth:`stat`.
        """

    async def list_files(self) -> list[ListedFile]:
        """List all files below the dataset's directory, by name; without hidden ones and markers of directories.

        Raises:
            RemoteError: as for :meth:`stat`; also when this kind of source cannot list.
        """

    async def close(self) -> None:
        """Give resources back. Does not wait for reads that hang."""


async def read_whole_manifest(remote: Remote, name: str) -> bytes:
    """Read the manifest of a dataset into memory.

    Raises:
        ManifestFormatError: it is too big to be one.
        RemoteError: as for :meth:`Remote.stat`.
    """
    version = await remote.stat(name)
    if version.size_bytes > MAX_MANIFEST_BYTES:
        raise ManifestFormatError(name, None, f"{version.size_bytes} bytes, at most {MAX_MANIFEST_BYTES} are accepted")
    data = bytearray(version.size_bytes)
    await remote.read_range(name, 0, memoryview(data), version)
    return bytes(data)


def is_hidden(name: str) -> bool:
    """Whether a file or directory is none of a dataset: what programs keep for themselves begins with a dot."""
    return any(part.startswith(".") for part in name.split("/"))
