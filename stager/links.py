"""Symbolic links that give a staged dataset a stable path for training code."""

import errno
import os
import secrets

from shards.errors import CacheNotWritableError, printable
from shards.files import make_directory

_MAX_NAME_BYTES = 255


def check_link(path: str) -> None:
    """Check, before anything is fetched, that a link may be made here.

    Raises:
        CacheNotWritableError: something that is no symbolic link has the name, or the name is too long.
    """
    path = os.path.abspath(path)  # without a slash at the end, which would mean what the link points at
    if len(os.fsencode(os.path.basename(path))) > _MAX_NAME_BYTES:
        raise CacheNotWritableError(
            f"cannot make the link {printable(path)}: its name is too long; give another --link"
        )
    if os.path.lexists(path) and not os.path.islink(path):
        raise CacheNotWritableError(
            f"cannot make the link {printable(path)}: something that is no symbolic link is there and stays untouched; "
            "give another --link"
        )


def point_link(path: str, target: str) -> None:
    """Make a symbolic link, or let an existing one point elsewhere, in one step for its readers.

    Args:
        path: the link.
        target: where it leads, absolute.

    Raises:
        CacheNotWritableError: its directory cannot be written, or something else has the name.
    """
    path = os.path.abspath(path)
    check_link(path)
    directory = os.path.dirname(path)
    partial_path = os.path.join(directory, f".link.{secrets.token_hex(8)}.partial")
    try:
        make_directory(directory)
        os.symlink(target, partial_path)
        try:
            os.replace(partial_path, path)
        except BaseException:
            os.unlink(partial_path)
            raise
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}:
            raise
        raise CacheNotWritableError(
            f"cannot make the link {printable(path)}: {error.strerror}; this process runs as uid {os.geteuid()}, "
            f"gid {os.getegid()}"
        ) from error
