"""A shard or index that this process works on: its partial, open and locked; everything here blocks."""

import os
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Self

from shards.files import PartialFile, commit_open_file, create_partial, is_partial_of
from stager.local import is_at, observe_file


class ClaimState(Enum):
    """Why a shard could not be claimed."""

    BUSY = "busy"
    """Another process works on it."""
    DONE = "done"
    """Another process has committed it."""


class Claim:
    """A shard's partial, open and locked by this process; a context manager that lets go of it.

    Args:
        fd: the partial, open for reading and writing, with the lock on it.
        name: of the shard.
        size_bytes: of the shard.
        partial_path: where it lies.
        final_path: where it will lie.
        on_commit: told when it has its final name.
    """

    def __init__(
        self,
        fd: int,
        *,
        name: str,
        size_bytes: int,
        partial_path: str,
        final_path: str,
        on_commit: Callable[[], None],
    ) -> None:
        self.fd = fd
        self.name = name
        self.size_bytes = size_bytes
        self.final_path = final_path
        self._partial_path = partial_path
        self._on_commit = on_commit

    def commit(self) -> None:
        """Make the shard durable under its final name. Every block of it must be right."""
        try:
            commit_open_file(self.fd, self._partial_path, self.final_path, self.size_bytes)
        except FileNotFoundError:
            # where locks do not exclude, another stager may have renamed this very file already
            committed = observe_file(self.final_path)
            if committed is None or committed.inode != os.fstat(self.fd).st_ino:
                raise
        self._on_commit()

    def give_room_back(self) -> None:
        """Empty the partial, on a disk that is full. What is promised to it stays promised, to others who stage it."""
        if is_at(self.fd, self._partial_path):  # else it is committed, and only the last step failed
            os.ftruncate(self.fd, 0)
            os.ftruncate(self.fd, self.size_bytes)

    def remove(self) -> None:
        """Remove the partial: another process has committed the shard."""
        with suppress(FileNotFoundError):
            os.unlink(self._partial_path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.fd)


class IndexClaim:
    """A partial that this process writes an index into, and the lock that keeps others from doing so.

    The lock is on the index's promise, a file of the index's size in which nothing is ever written: where locks do not
    exclude, two writers still write files of their own. While somebody writes, the promise is one byte longer; so what
    a writer that was killed left is looked for only where there was one.

    Args:
        fd: the promise, with the lock on it; closed at the end.
        promise_path: where it lies; it goes when the index is committed.
        final_path: where the index will lie.
        size_bytes: of the index.
    """

    def __init__(self, fd: int, promise_path: str, final_path: str, size_bytes: int) -> None:
        self._promise_fd = fd
        self._promise_path = promise_path
        self._size_bytes = size_bytes
        if os.fstat(fd).st_size > size_bytes:
            _remove_partials_of(final_path)
        os.ftruncate(fd, size_bytes + 1)
        self._partial: PartialFile = create_partial(final_path)
        self._is_committed = False

    @property
    def fd(self) -> int:
        """The partial, open for reading and writing."""
        return self._partial.fd

    @property
    def path(self) -> str:
        """Where the partial lies."""
        return self._partial.path

    def commit(self) -> None:
        """Make the index durable under its final name. Its digest must be right."""
        self._partial.commit(self._size_bytes)
        self._is_committed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._partial.__exit__(kind, error, trace)
            if self._is_committed:
                if is_at(self._promise_fd, self._promise_path):
                    os.unlink(self._promise_path)
            else:
                os.ftruncate(self._promise_fd, self._size_bytes)
        finally:
            os.close(self._promise_fd)


def _remove_partials_of(final_path: str) -> None:
    """Remove what writers that were killed left of one file."""
    directory, final_name = os.path.split(final_path)
    for name in os.listdir(directory):
        if is_partial_of(name, final_name):
            with suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(os.path.join(directory, name))
