"""Makes the cache ready for one run: directories, layout version, and errors that tell an administrator what to do."""

import errno
import logging
import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shards.cache import MAX_VERSION_BYTES, CacheLayout, check_version, encode_version
from shards.errors import CacheNotWritableError, FormatError, UnsupportedEnvironmentError, printable
from shards.files import read_regular_file, write_file
from stager.doctor.mounts import Mount, mount_of, nearest_existing, read_mounts
from stager.local import make_cache_directory

logger = logging.getLogger(__name__)

_NOT_WRITABLE_ERRNOS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})

_GROUP_MODE = 0o2775


def open_cache(root: str, group_id: int | None = None) -> CacheLayout:
    """Make the root of a cache if it is not there, and check that its layout is one that this release knows.

    Args:
        root: of the cache.
        group_id: group whose members share it; directories made below then belong to it and it may write them.

    Raises:
        CacheNotWritableError: it cannot be made or written.
        UnsupportedEnvironmentError: its layout is newer, or it is something else.
    """
    layout = CacheLayout(root)
    with explain_not_writable(root):
        make_cache_directory(root)
        if group_id is not None:
            _share_with_group(root, group_id)
            for directory in (layout.datasets_dir, layout.all_leases_dir, layout.progress_dir, layout.metrics_dir):
                make_cache_directory(directory)
        if not os.path.lexists(layout.version_path):
            write_file(layout.version_path, encode_version())
    check_cache_version(layout)
    warn_of_network(root, read_mounts())
    return layout


def warn_of_network(root: str, mounts: Sequence[Mount]) -> None:
    """Say so when a cache lies on a filesystem that is no disk of this node."""
    mount = mount_of(nearest_existing(root), mounts)
    if mount is not None and mount.is_network:
        logger.warning(
            "the cache is not on a disk of this node: nothing is gained, and locks may not exclude; use a local one",
            extra={"path": root, "filesystem": mount.filesystem, "mount_point": mount.point},
        )


def _share_with_group(root: str, group_id: int) -> None:
    """Give a directory to a group.

    Raises:
        PermissionError: it belongs to another user, or this one is not in the group.
    """
    facts = os.stat(root)
    if facts.st_gid != group_id:
        os.chown(root, -1, group_id)
    if stat.S_IMODE(facts.st_mode) != _GROUP_MODE or facts.st_gid != group_id:
        os.chmod(root, _GROUP_MODE)  # after the change of the group, which takes the bit away


def check_cache_version(layout: CacheLayout) -> None:
    """Check that a cache has a layout that this release knows.

    Raises:
        UnsupportedEnvironmentError: it has not.
        FileNotFoundError: it has no version file.
    """
    try:
        data = read_regular_file(layout.version_path, max_bytes=MAX_VERSION_BYTES)
    except FormatError as error:
        raise UnsupportedEnvironmentError(f"{error}; choose another cache directory or remove that file") from error
    check_version(data, path=layout.version_path)


@contextmanager
def explain_not_writable(root: str) -> Iterator[None]:
    """Turn the refusal of a write in the cache into an error that says who may change it, and how.

    Raises:
        CacheNotWritableError: instead of the ``OSError``.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_WRITABLE_ERRNOS:
            raise
        raise CacheNotWritableError(_describe_refusal(root, error)) from error


def _describe_refusal(root: str, error: OSError) -> str:
    refused = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else root
    text = f"cannot write to the cache {printable(root)}: {printable(refused)}: {error.strerror}"
    if error.errno == errno.EROFS:
        return f"{text}; mount it writable for the stager (readers may have it read-only)"
    if error.errno in {errno.ENOTDIR, errno.EEXIST}:
        return f"{text}; a file is in the way, give another --cache-dir"
    uid, gid = os.geteuid(), os.getegid()
    text += f"; this process runs as uid {uid}, gid {gid}"
    place = refused
    while not os.path.lexists(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    try:
        status = os.stat(place)
    except OSError:
        return text
    text += (
        f"; {printable(place)} has mode {stat.S_IMODE(status.st_mode):04o} and belongs to uid {status.st_uid}"
        f"{_user_name(status.st_uid)}, gid {status.st_gid}"
    )
    command = f"install -d -m 0755 -o {uid} -g {gid} {_quote(root)}"
    if os.path.lexists(root):
        command = f"chown -R {uid}:{gid} {_quote(root)}"
    return (
        f"{text}. An administrator can run: {command}   (or let every stager of this node run as the user that the "
        "cache belongs to; on Kubernetes, fsGroup does nothing for a hostPath volume)"
    )


def _user_name(uid: int) -> str:
    try:
        return f" ({pwd.getpwuid(uid).pw_name})"
    except KeyError:
        return ""


def _quote(path: str) -> str:
    import shlex  # noqa: PLC0415 (only for a message)

    return shlex.quote(printable(path))
