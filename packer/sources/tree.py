"""A directory tree as a source: one deterministic walk that drops nothing silently and opens nothing.

Rules:
    * The order is that of the bytes of the relative paths, whatever the filesystem or the locale says.
    * Paths are bytes from end to end, so that any name can be opened again.
    * Everything left out is counted and named by reason; what cannot be read is an error before a byte is written.
    * What the user's globs leave out is not looked at, and a directory they leave out is not entered.
    * Only regular files become source files. Fifos, sockets and devices are never opened, not even for a look.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from packer.sources.files import FoundFiles, SkipReason, Skips, SourceFiles, display_path
from packer.sources.names import EVERYTHING, Globs, NameFilter, leftover_reason
from packer.sources.persist import explain_errno, persist
from packer.sources.tree_read import TreeRoot
from shards.errors import SourceError, list_offenders, printable

_name_of = attrgetter("name")


class SymlinkPolicy(StrEnum):
    """What to do with symbolic links in the tree."""

    FOLLOW = "follow"
    SKIP = "skip"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOptions:
    """How a tree is walked."""

    symlinks: SymlinkPolicy = SymlinkPolicy.FOLLOW
    globs: Globs = EVERYTHING
    skips_unreadable: bool = False
    """Leave out and count what cannot be read, instead of an error. The kernel is then asked about every file, not only
    about those whose mode seems to refuse."""


@dataclass(frozen=True, slots=True)
class TreeSource:
    """A directory tree; see :class:`packer.sources.source.Source`."""

    root: str
    options: TreeOptions
    excluded: str | None = None
    """The destination, which must not be met in the walk."""
    kind = "tree"

    def scan(self, check: Callable[[], None]) -> FoundFiles:
        """Walk the tree."""
        return scan_tree(self.root, self.options, excluded=self.excluded, check=check)


def scan_tree(
    root: str, options: TreeOptions, *, excluded: str | None = None, check: Callable[[], None] = lambda: None
) -> FoundFiles:
    """Walk a tree.

    Args:
        root: directory to walk.
        options: how.
        excluded: a directory that must not be met in the walk (the destination).
        check: called once per directory; raises to stop the walk.

    Raises:
        SourceError: the root is missing or no directory, something below cannot be read, or a link is refused.
    """
    walk = _Walk(os.fsencode(root), options, _identity_or_none(excluded), check)
    walk.run()
    origin = TreeRoot(os.fsencode(os.path.abspath(root)), options.symlinks is SymlinkPolicy.FOLLOW)
    return FoundFiles(walk.files, walk.skips, walk.num_directories, origin)


class _Walk:
    """State of one walk: a stack of open levels instead of recursion, for trees deeper than Python's stack."""

    def __init__(
        self, root: bytes, options: TreeOptions, excluded: tuple[int, int] | None, check: Callable[[], None]
    ) -> None:
        self.files = SourceFiles()
        self.skips = Skips()
        self.num_directories = 0
        self._root = root
        self._policy = options.symlinks
        self._filter = NameFilter(options.globs)
        self._skips_unreadable = options.skips_unreadable
        self._excluded = excluded
        self._check = check
        self._unreadable: list[str] = []
        self._refused_links: list[bytes] = []
        self._reader = ReadRight()

    def run(self) -> None:
        """Walk the whole tree, then raise if anything in it was unreadable or refused."""
        try:
            identity = _identity(os.stat(self._root))
            entries = self._list_directory(self._root, b"")
        except OSError as error:
            name = printable(display_path(self._root))
            raise SourceError(f"cannot read the source {name}: {explain_errno(error)}") from error
        # (identity of the directory, its entries still to visit in reverse order)
        stack = [(identity, entries)]
        while stack:
            _, entries = stack[-1]
            if not entries:
                stack.pop()
                continue
            sort_key, entry, prefix = entries.pop()
            path = prefix + entry.name
            if sort_key.endswith(b"/"):
                identities = [level for level, _ in stack]
                below = self._enter_directory(entry, path, identities)
                if below is not None:
                    stack.append(below)
            else:
                self._visit_file(entry, path)
        self._raise_complaints()
        self._filter.raise_unused()

    def _list_directory(self, directory: bytes, prefix: bytes) -> "list[tuple[bytes, os.DirEntry[bytes], bytes]]":
        """List what may be packed, in reverse order, skipping and counting the rest."""
        self._check()
        self.num_directories += 1
        kept = []
        is_open = self._filter.is_open
        for entry in persist(lambda: _sorted_entries(directory)):
            name = entry.name
            reason = leftover_reason(name)
            if reason is not None:
                self.skips.add(reason, prefix + name)
                continue
            if self._policy is not SymlinkPolicy.FOLLOW and entry.is_symlink():
                self._leave_link(prefix + name)
                continue
            try:
                is_directory = persist(entry.is_dir)
            except OSError as error:  # a link that leads to itself, or through a directory that is closed to us
                self._complain(prefix + name, explain_errno(error))
                continue
            if not is_open and not self._is_wanted(prefix + name, is_directory=is_directory):
                self.skips.add(SkipReason.EXCLUDED, prefix + name)
                continue
            # a directory sorts as if its name ended in "/", which gives the byte order of whole paths
            kept.append((name + b"/" if is_directory else name, entry, prefix))
        kept.sort(key=_first, reverse=True)
        return kept

    def _is_wanted(self, path: bytes, *, is_directory: bool) -> bool:
        return not self._filter.excludes_directory(path) if is_directory else self._filter.admits(path)

    def _leave_link(self, path: bytes) -> None:
        if self._policy is SymlinkPolicy.ERROR:
            self._refused_links.append(path)
        else:
            self.skips.add(SkipReason.SYMLINK, path)

    def _enter_directory(
        self, entry: "os.DirEntry[bytes]", path: bytes, above: list[tuple[int, int]]
    ) -> "tuple[tuple[int, int], list[tuple[bytes, os.DirEntry[bytes], bytes]]] | None":
        try:
            identity = _identity(entry.stat())
            if identity == self._excluded:
                raise SourceError(
                    f"the destination lies inside the source, at {printable(display_path(path))}; "
                    "choose a destination outside the source"
                )
            if identity in above:
                self.skips.add(SkipReason.SYMLINK_LOOP, path)
                return None
            return identity, self._list_directory(entry.path, path + b"/")
        except OSError as error:
            self._complain(path, explain_errno(error))
            return None

    def _visit_file(self, entry: "os.DirEntry[bytes]", path: bytes) -> None:
        try:
            status = persist(entry.stat)
        except OSError as error:
            reason = "dangling symbolic link" if entry.is_symlink() else explain_errno(error)
            self._complain(path, reason)
            return
        if not stat.S_ISREG(status.st_mode):
            self.skips.add(SkipReason.SPECIAL_FILE, path)
            return
        may_read = _kernel_grants(entry.path) if self._skips_unreadable else self._reader.may_read(status, entry.path)
        if not may_read:
            self._complain(path, "Permission denied")
            return
        self.files.append(path, status.st_size, status.st_mtime_ns)

    def _complain(self, path: bytes, reason: str) -> None:
        if self._skips_unreadable:
            self.skips.add(SkipReason.UNREADABLE, path)
        else:
            self._unreadable.append(f"{printable(display_path(path))}: {reason}")

    def _raise_complaints(self) -> None:
        if self._refused_links:
            links = [printable(display_path(path)) for path in self._refused_links]
            raise SourceError(
                f"{len(links)} symbolic link(s) in the source, and --symlinks error was given:\n"
                f"{list_offenders(links)}\n"
                "pack what they point to with --symlinks follow, or leave them out with --symlinks skip"
            )
        if self._unreadable:
            raise SourceError(
                f"{len(self._unreadable)} file(s) or directories cannot be read by uid {os.geteuid()}, "
                f"nothing was written:\n{list_offenders(self._unreadable)}\n"
                "give read access to them or remove them (dangling links: --symlinks skip leaves all links out), "
                "then run the same command again; or leave them out with --on-unreadable skip"
            )


class ReadRight:
    """Tells from a file's mode whether this process may read it.

    Asking the kernel costs a system call per file, and a round trip on network filesystems. So only a mode that
    seems to refuse is asked about (access lists may grant what the mode does not show). A mode that seems to
    grant is believed; should the server refuse after all, reading fails with an error that names the file.
    """

    def __init__(self) -> None:
        self._uid = os.geteuid()
        self._groups = frozenset({os.getegid(), *os.getgroups()})

    def may_read(self, status: os.stat_result, path: bytes) -> bool:
        """Whether a file of this status may be read."""
        mode = status.st_mode
        if self._uid == 0 or mode & 0o444 == 0o444:
            return True
        if status.st_uid == self._uid:
            granted = mode & stat.S_IRUSR
        elif status.st_gid in self._groups:
            granted = mode & stat.S_IRGRP
        else:
            granted = mode & stat.S_IROTH
        return bool(granted) or _kernel_grants(path)


def _kernel_grants(path: bytes) -> bool:
    return os.access(path, os.R_OK, effective_ids=True)


def _sorted_entries(directory: bytes) -> "list[os.DirEntry[bytes]]":
    """What lies in a directory; sorted, so that what is left out or refused is listed in the same order everywhere."""
    with os.scandir(directory) as found:
        return sorted(found, key=_name_of)


def _first(entry: "tuple[bytes, os.DirEntry[bytes], bytes]") -> bytes:
    return entry[0]


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _identity_or_none(path: str | None) -> tuple[int, int] | None:
    if path is None:
        return None
    try:
        return _identity(os.stat(path))
    except (FileNotFoundError, NotADirectoryError):  # the latter: a file where a directory above it should be
        return None
