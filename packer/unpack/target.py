"""The directory that members are extracted into: nothing is ever written outside of it.

Every component is opened relative to its parent's descriptor and without following links, so neither a name nor a link
that somebody puts there meanwhile leads elsewhere. A file gets its name when it is complete, and takes the place of
another only if that was asked for.
"""

import errno
import os
import secrets
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Self

from shards.errors import DestinationError, printable
from shards.files import make_directory, write_all

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755
"""Whatever the umask: the same files for everybody."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class Existing(StrEnum):
    """What to do with a file that is there already."""

    ERROR = "error"
    SKIP = "skip"
    OVERWRITE = "overwrite"


class TargetDirectory:
    """Writes files below one directory; a context manager."""

    def __init__(self, path: str, existing: Existing) -> None:
        self.path = path
        self._existing = existing
        try:
            make_directory(path)
            self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise DestinationError(
                f"cannot extract into {printable(path)}: {error.strerror}; choose a directory, it is made if missing"
            ) from error
        self._levels: list[tuple[str, int]] = []
        """Name and descriptor of each open directory, from the top down: files of a directory come together."""
        self.was_empty = not os.listdir(self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_below(0)
        os.close(self._root)

    def has(self, parts: Sequence[str]) -> bool:
        """Whether something has that name, a link included. Links on the way are not followed."""
        fd = os.dup(self._root)
        try:
            for part in parts[:-1]:
                try:
                    below = _open_directory(part, fd)
                except FileNotFoundError:
                    return False
                except OSError as error:
                    raise self._refuse(parts, error) from error
                os.close(fd)
                fd = below
            return _exists(parts[-1], fd)
        finally:
            os.close(fd)

    def write(self, parts: Sequence[str], pieces: Iterable[bytes]) -> bool:
        """Write a file.

        Args:
            parts: components of its path, checked to be plain.
            pieces: its content; an error they raise leaves no file.

        Returns:
            False when the file was there and stays.

        Raises:
            DestinationError: something else is in the way.
        """
        try:
            directory = self._enter(parts[:-1])
            if self._existing is Existing.SKIP and _exists(parts[-1], directory):
                return False
        except OSError as error:
            raise self._refuse(parts, error) from error
        partial = f".{secrets.token_hex(8)}.partial"
        fd = os.open(
            partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory
        )
        is_there = True
        try:
            for piece in pieces:
                write_all(fd, piece, path=f"{self.path}/{'/'.join(parts)}")
            os.fchmod(fd, FILE_MODE)
            is_there = self._give_name(partial, parts, directory)
        finally:
            os.close(fd)
            if is_there:
                os.unlink(partial, dir_fd=directory)
        return True

    def _give_name(self, partial: str, parts: Sequence[str], directory: int) -> bool:
        """Give a complete file its name; returns whether the partial's name is still there."""
        name = parts[-1]
        try:
            if self._existing is Existing.OVERWRITE:
                os.replace(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
                return False
            try:
                os.link(partial, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                # no hard links here: reserve the name, then replace what is ours
                os.close(os.open(name, _CREATE, 0o600, dir_fd=directory))
                os.replace(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
                return False
        except OSError as error:
            raise self._refuse(parts, error) from error
        return True

    def _enter(self, parts: Sequence[str]) -> int:
        """Open a directory below the root, making what is missing."""
        depth = 0
        while depth < min(len(parts), len(self._levels)) and self._levels[depth][0] == parts[depth]:
            depth += 1
        self._close_below(depth)
        for part in parts[depth:]:
            above = self._levels[-1][1] if self._levels else self._root
            try:
                fd = _open_directory(part, above)
            except FileNotFoundError:
                os.mkdir(part, 0o700, dir_fd=above)
                fd = _open_directory(part, above)
                os.fchmod(fd, DIRECTORY_MODE)
            self._levels.append((part, fd))
        return self._levels[-1][1] if self._levels else self._root

    def _close_below(self, depth: int) -> None:
        while len(self._levels) > depth:
            os.close(self._levels.pop()[1])

    def _refuse(self, parts: Sequence[str], error: OSError) -> DestinationError | OSError:
        path = printable("/".join((self.path, *parts)))
        if error.errno == errno.EEXIST:
            return DestinationError(
                f"{path} exists already; choose an empty directory, or give --existing skip or --existing overwrite"
            )
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EISDIR}:
            return DestinationError(
                f"cannot write {path}: a symbolic link, a file or a directory is in the way, and links are not "
                "followed; choose an empty directory"
            )
        error.filename = path
        return error


def _open_directory(name: str, above: int) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
