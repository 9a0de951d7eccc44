"""Leases: what keeps a staged dataset from being evicted while somebody needs it.

Two kinds, because an init container is dead before the training starts:

* A **live** lease is a shared ``flock`` on the dataset's *directory*. The kernel releases it when its holder ends,
  however it ends; it works across mount and PID namespaces, and through read-only mounts since a directory is opened
  for reading. Forked children (loader workers) share it and keep it as long as they live, programs started with exec
  do not.
* A **grace** lease is a :class:`LeaseRecord` in a file: it counts until a deadline on ``CLOCK_BOOTTIME`` (which no
  clock correction moves) of the boot with its ``boot_id`` (so that a reboot ends it).

Who evicts takes the exclusive lock without waiting, looks at the grace leases, and renames the directory into the
trash before it lets go. A directory may thus vanish between open and lock: after the lock, the path is looked at again,
and when it is another directory, or none, everything starts over. Correctness of the *data* never rests on a lock.
"""

import errno
import fcntl
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from shards.cache import check_holder, directory_name
from shards.errors import FormatError, UnsupportedEnvironmentError
from shards.strict_json import JsonError, JsonFields, JsonValue, check_count, check_json, parse_json, render_json

LOCK_WAIT_SECONDS = 60.0
"""How long :func:`hold_dataset` waits while somebody excludes it: evicting holds the lock for one rename only."""

BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"

_MAX_DEADLINE_SECONDS = 2.0**53
_POLL_SECONDS = (0.001, 0.1)  # first and longest pause between two tries
_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF})
_RECORD_FIELDS = ("holder", "dataset_id", "boot_id", "boottime_deadline_seconds", "reserved_bytes", "is_done")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """What one holder writes about its claim on a dataset. Raises ``ValueError`` on a value that is not allowed."""

    holder: str
    """Name of the claim, unique per dataset: a pod's uid, a job's id."""
    dataset_id: str
    boot_id: str
    """Which boot of the node :attr:`boottime_deadline_seconds` belongs to."""
    boottime_deadline_seconds: float
    """``CLOCK_BOOTTIME`` at which the grace lease ends."""
    reserved_bytes: int = 0
    """What the holder still meant to write into the cache when it wrote this record."""
    is_done: bool = False
    """Whether staging has finished, so that nothing is reserved any more. The lease itself goes on."""
    extra: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)
    """Fields that this release does not know."""

    def __post_init__(self) -> None:
        try:
            check_holder(self.holder)
            directory_name(self.dataset_id)
        except ValueError as error:
            raise JsonError("", str(error)) from error
        if _BOOT_ID.fullmatch(self.boot_id) is None:
            raise JsonError("boot_id", f"expected a UUID in lower case, found {self.boot_id[:80]!r}")
        if not 0 <= self.boottime_deadline_seconds <= _MAX_DEADLINE_SECONDS:
            raise JsonError("boottime_deadline_seconds", f"is {self.boottime_deadline_seconds}")
        check_count(self.reserved_bytes, "reserved_bytes")
        if any(name in self.extra for name in _RECORD_FIELDS):
            raise JsonError("extra", "holds a known field")
        check_json(self.extra, "extra")

    def to_json(self) -> bytes:
        """The file."""
        value = {**{name: getattr(self, name) for name in _RECORD_FIELDS}, **self.extra}
        return render_json(value).encode("ascii") + b"\n"

    @classmethod
    def from_json(cls, data: bytes, *, name: str) -> "LeaseRecord":
        """Read the file; ``name`` is what errors call it.

        Raises:
            FormatError: it is damaged, cut, or no lease record.
        """
        try:
            fields = JsonFields(parse_json(data), "")
            return cls(
                holder=fields.string("holder"),
                dataset_id=fields.string("dataset_id"),
                boot_id=fields.string("boot_id"),
                boottime_deadline_seconds=fields.number("boottime_deadline_seconds"),
                reserved_bytes=fields.count("reserved_bytes"),
                is_done=fields.boolean("is_done"),
                extra=fields.rest(),
            )
        except JsonError as error:
            raise FormatError(name, None, str(error)) from error


def is_live(record: LeaseRecord, *, boot_id: str, boottime_seconds: float) -> bool:
    """Whether a grace lease still counts, on the boot and at the time given (``CLOCK_BOOTTIME``); pure."""
    return record.boot_id == boot_id and boottime_seconds < record.boottime_deadline_seconds


def read_boot_id(path: str = BOOT_ID_PATH) -> str:
    """The id of this boot of the node: the same in every container on it.

    Raises:
        UnsupportedEnvironmentError: the kernel does not tell.
    """
    try:
        with open(path, encoding="ascii") as file:
            text = file.read(100).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UnsupportedEnvironmentError(f"cannot read the boot id of this node from {path}: {error}") from error
    if _BOOT_ID.fullmatch(text) is None:
        raise UnsupportedEnvironmentError(f"{path} holds {text!r} instead of a boot id")
    return text


def boottime_seconds() -> float:
    """Seconds since the boot of the node, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class HeldDataset:
    """A locked dataset directory; a context manager that lets go at its end."""

    def __init__(self, fd: int, path: str, *, is_exclusive: bool) -> None:
        self.fd = fd
        """The directory, open for reading. The lock belongs to it."""
        self.path = path
        self.is_exclusive = is_exclusive
        self._is_open = True

    def close(self) -> None:
        """Let go. Forked children that have the descriptor keep the lock until they end: they still read."""
        if self._is_open:
            self._is_open = False
            os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def hold_dataset(dataset_dir: str, *, wait_seconds: float = LOCK_WAIT_SECONDS) -> HeldDataset:
    """Take a live lease: a shared lock on a dataset directory. Works on a read-only mount.

    Args:
        dataset_dir: the directory.
        wait_seconds: how long to wait while somebody has the exclusive lock.

    Raises:
        FileNotFoundError: the directory is not there (any more).
        TimeoutError: somebody kept the exclusive lock for ``wait_seconds``.
        UnsupportedEnvironmentError: this filesystem has no locks.
    """
    deadline = time.monotonic() + wait_seconds
    pause = _POLL_SECONDS[0]
    while True:
        held = _try_hold(dataset_dir, is_exclusive=False)
        if held is not None:
            return held
        if time.monotonic() >= deadline:
            raise TimeoutError(
                errno.ETIMEDOUT,
                f"somebody has kept the exclusive lock for {wait_seconds:g} seconds; look for a stopped stage process",
                dataset_dir,
            )
        time.sleep(pause)
        pause = min(2 * pause, _POLL_SECONDS[1])


def try_exclude(dataset_dir: str) -> HeldDataset | None:
    """Take the exclusive lock on a dataset directory, without waiting. None when anybody holds it.

    Raises:
        FileNotFoundError: the directory is not there (any more).
        UnsupportedEnvironmentError: this filesystem has no locks.
    """
    return _try_hold(dataset_dir, is_exclusive=True)


def try_lock(fd: int, *, is_exclusive: bool = True) -> bool:
    """Take a ``flock`` on an open file or directory without waiting; whether it was got.

    Raises:
        UnsupportedEnvironmentError: this filesystem has no locks.
    """
    try:
        fcntl.flock(fd, (fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise UnsupportedEnvironmentError(
                f"this filesystem cannot lock files ({error.strerror}); put the cache on a local disk (ext4, xfs)"
            ) from error
        raise
    return True


def release_locks_below(directory: str) -> None:
    """Release every ``flock`` that this process has on files and directories below ``directory``.

    For an end that leaves a thread behind which hangs in the kernel: the files stay open until it is free. Works on
    names only, since a file elsewhere may be the one that hangs.
    """
    prefix = f"{os.path.realpath(directory)}/"
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # of the listing itself, or just closed
            if os.readlink(f"/proc/self/fd/{name}").startswith(prefix):
                fcntl.flock(int(name), fcntl.LOCK_UN)


def probe_locking(directory: str) -> bool:
    """Whether locks on ``directory`` exclude: of two descriptors, only one may have the exclusive lock.

    Some shared and virtual filesystems grant every lock. Somebody else's lock on the directory proves that they work.
    """
    first = _open_directory(directory)
    try:
        second = _open_directory(directory)
        try:
            return not (try_lock(first) and try_lock(second))
        except UnsupportedEnvironmentError:
            return False
        finally:
            os.close(second)
    finally:
        os.close(first)


def _try_hold(dataset_dir: str, *, is_exclusive: bool) -> HeldDataset | None:
    while True:
        held = HeldDataset(_open_directory(dataset_dir), dataset_dir, is_exclusive=is_exclusive)
        is_kept = False
        try:
            if not try_lock(held.fd, is_exclusive=is_exclusive):
                return None
            is_kept = _is_still(held.fd, dataset_dir)
            if is_kept:
                return held
        finally:
            if not is_kept:
                held.close()


def _open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _is_still(fd: int, path: str) -> bool:
    """Whether ``path`` still is the directory that ``fd`` has open."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
