"""The destination directory: who may write there, what lies there already, and what may be removed.

Rules:
    * Only partials, and files that a saved plan or a manifest of ours names, are ever removed: nothing that others
      made. What is to be refused is refused before anything is removed.
    * A second ``pack build`` on the same directory is refused while the first is at work. The lock only saves work;
      every file still gets its name by the durable recipe.
    * ``.pack/`` holds the plan and stays after success: it is how a repeated command knows that all is done.
"""

import contextlib
import errno
import fcntl
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from packer.begun import (
    BASE_NAME,
    PLAN_NAME,
    SOURCES_NAME,
    check_same_plan,
    own_names,
    refuse_foreign,
    refuse_unplanned,
)
from packer.plan import PackPlan
from packer.saved import SavedPlan, list_source_differences, read_sources, write_sources
from shards.errors import DestinationError, NoSpaceError, ShardferryError, printable
from shards.files import create_partial, free_bytes, fsync_directory, is_partial_name, make_directory, write_file
from shards.manifest import MANIFEST_NAME, Manifest
from shards.names import STATE_NAME

logger = logging.getLogger(__name__)

LOCK_NAME = "lock"

_NOT_OURS = frozenset({"lost+found"})
"""What an empty filesystem may hold."""

_LOCK_TRIES = 100
"""Each is lost only when another packer is refused at this very moment."""

_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})


class Destination:
    """A destination held by this process; made by :func:`hold_destination`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._state = os.path.join(path, STATE_NAME)

    def read_manifest(self) -> Manifest | None:
        """The manifest, or None when there is none.

        Raises:
            ManifestFormatError: it is damaged.
        """
        path = os.path.join(self.path, MANIFEST_NAME)
        data = _read_or_none(path)
        return None if data is None else Manifest.from_json(data, name=path)

    def is_complete(self, manifest: Manifest) -> bool:
        """Whether all files of a manifest are there with the right sizes."""
        sizes = {
            name: size
            for _, shard in manifest.shards()
            for name, size in ((shard.name, shard.size_bytes), (shard.index_name, shard.index_size_bytes))
        }
        return all(self.size_of(name) == size for name, size in sizes.items())

    def size_of(self, name: str) -> int | None:
        """Size of a file of the dataset, or None when it is not there."""
        try:
            return os.stat(os.path.join(self.path, name)).st_size
        except FileNotFoundError:
            return None

    def check_plan(self, plan: PackPlan, saved: SavedPlan) -> bool:
        """Compare what lies here with a plan.

        Returns:
            True when this very plan was begun here, False when nothing was.

        Raises:
            PlanMismatchError: something else was begun or finished here.
            DestinationError: the directory holds files of others.
        """
        data = _read_or_none(os.path.join(self._state, PLAN_NAME))
        if data is None:
            if self.size_of(MANIFEST_NAME) is not None:
                raise refuse_unplanned(self.path)
            self._refuse_foreign_files(set())
            return False
        check_same_plan(data, saved, self.path, lambda: self._source_differences(plan))
        return True

    def save_plan(self, plan: PackPlan, saved: SavedPlan) -> None:
        """Save a plan; from then on the shards here belong to it."""
        sources = os.path.join(self._state, SOURCES_NAME)
        with create_partial(sources) as partial:
            with open(partial.fd, "wb", closefd=False) as file:
                write_sources(plan.content.files, file)
            partial.commit(os.fstat(partial.fd).st_size)
        write_file(os.path.join(self._state, PLAN_NAME), saved.to_json())

    def clear(self) -> None:
        """Remove the dataset or unfinished work that lies here, the manifest first.

        Raises:
            DestinationError: the directory holds files of others too.
        """
        names = self._own_names()
        self._refuse_foreign_files(names)
        self._remove([MANIFEST_NAME])
        fsync_directory(self.path)
        self._remove(names)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._state, PLAN_NAME))
        self.remove_partials()

    def withdraw_manifest(self) -> None:
        """Remove the manifest: files it names are missing or have another size."""
        self._remove([MANIFEST_NAME])
        fsync_directory(self.path)

    def remove_partials(self) -> int:
        """Remove what killed runs left; returns how many files."""
        removed = 0
        for directory in (self.path, self._state):
            for name in os.listdir(directory):
                if is_partial_name(name):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(directory, name))
                        removed += 1
        return removed

    def check_space(self, needed_bytes: int) -> None:
        """Check that there is room.

        Raises:
            NoSpaceError: there is not.
        """
        if os.statvfs(self.path).f_blocks == 0:  # some network filesystems do not say
            return
        free = free_bytes(self.path)
        if needed_bytes > free:
            raise NoSpaceError(
                self.path, needed_bytes, free, advice="free some space or choose another destination, then run again"
            )

    def _own_names(self) -> set[str]:
        """The manifest, and the shards and indexes that it or the saved plan speaks of.

        Neither of them: the directory is not ours, and a ``manifest.json`` in it is somebody's web application.
        """
        manifests = [
            _read_or_none(os.path.join(self.path, MANIFEST_NAME)),
            _read_or_none(os.path.join(self._state, BASE_NAME)),
        ]
        names = own_names(manifests, _read_or_none(os.path.join(self._state, PLAN_NAME)))
        return {name for name in names if os.path.basename(name) == name}

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.path, name))

    def _refuse_foreign_files(self, ours: set[str]) -> None:
        names = os.listdir(self.path)
        refuse_foreign(
            self.path,
            (name for name in names if not name.startswith(".") and name not in _NOT_OURS and name not in ours),
        )

    def _source_differences(self, plan: PackPlan) -> list[str]:
        try:
            with open(os.path.join(self._state, SOURCES_NAME), "rb") as file:
                return list_source_differences(read_sources(file), plan.content.files)
        except (OSError, ValueError, EOFError):
            return ["the list of the earlier source files cannot be read"]


@contextmanager
def hold_destination(path: str) -> Iterator[Destination]:
    """Make the directory if needed and keep other packers out of it.

    Raises:
        DestinationError: it cannot be made or written, or another ``pack build`` is at work there.
    """
    was_made = not os.path.lexists(path)
    lock = _open_lock(path)
    try:
        yield Destination(path)
    finally:
        _remove_unused_state(path, was_made=was_made)
        os.close(lock)


def refused(path: str, error: OSError) -> ShardferryError:
    """Turn a refused write into an error of ours."""
    return DestinationError(
        f"cannot write to {printable(path)}: {error.strerror}; this process runs as uid {os.geteuid()}, "
        f"gid {os.getegid()}; choose a directory that it may write to"
    )


def _open_lock(path: str) -> int:
    """Make the state directory and give the locked lock file in it."""
    state = os.path.join(path, STATE_NAME)
    lock_path = os.path.join(state, LOCK_NAME)
    for _ in range(_LOCK_TRIES):
        try:
            make_directory(state)
            lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            continue
        except (FileExistsError, NotADirectoryError) as error:
            _refuse_below_a_file(state, error)
            continue  # a directory that was there for a moment only, see below
        except OSError as error:
            raise refused(path, error) from error
        try:
            _lock_or_refuse(lock, path)
            if _is_at(lock, lock_path):
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # a packer that was refused has just removed it with its directory
    raise DestinationError(f"{printable(lock_path)} cannot be made; choose another destination")


def _refuse_below_a_file(path: str, error: OSError) -> None:
    nearest = os.path.abspath(path)
    while not os.path.lexists(nearest):
        nearest = os.path.dirname(nearest)
    if not os.path.isdir(nearest) and os.path.lexists(nearest):
        raise DestinationError(
            f"{printable(path)} cannot be made: {printable(nearest)} is no directory; choose another destination"
        ) from error


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _remove_unused_state(path: str, *, was_made: bool) -> None:
    """Remove the lock and its directory if no plan was saved: a refused start leaves no trace."""
    state = os.path.join(path, STATE_NAME)
    with contextlib.suppress(OSError):
        if os.listdir(state) == [LOCK_NAME]:
            shutil.rmtree(state)
            if was_made:
                os.rmdir(path)


def _lock_or_refuse(lock: int, path: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DestinationError(
            f"another pack build is at work in {printable(path)}; wait for it, or choose another destination"
        ) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        logger.warning("this filesystem has no locks: run only one pack build on it", extra={"destination": path})


def _read_or_none(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
