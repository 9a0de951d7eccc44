"""A table as a source: a column of paths names the files, the other columns become members beside them.

Rules:
    * Paths are relative to the table's directory, or to ``--root``. They may go up and down, and be absolute, as long
      as they end below that directory: a table from elsewhere must not make other files of this machine part of a
      dataset. Symbolic links below it are followed.
    * Keys follow from the files' paths by the key rule. Each file is in the table once.
    * Missing files are named, all of them. Rows without a path are left out and counted.
    * The other columns become one member ``json``, with their types; or members of their own, by ``--column``.
"""

import os
import stat
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from packer.sources.columns import encode_cell, encode_row
from packer.sources.files import INLINE, FoundFiles, SkipReason, Skips, SourceFiles
from packer.sources.rows import Table, read_table
from packer.sources.tree import ReadRight
from packer.sources.tree_read import TreeRoot
from shards.errors import DuplicateKeyError, SourceError, list_offenders, printable
from shards.keys import FIRST_DOT, Keyless, KeyRule, split_name

JSON_EXTENSION = "json"

_GUESSED_ROWS = 100
"""Values of a column that are looked at to see whether they are paths."""

_STAT_THREADS = 16
_STAT_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """How a table is read."""

    path_column: str | None = None
    root: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    """(column, extension of the member it becomes)."""
    key_rule: KeyRule = FIRST_DOT
    skips_unreadable: bool = False
    """Leave out and count rows whose file cannot be read, instead of an error."""


@dataclass(frozen=True, slots=True)
class TableSource:
    """Tables of paths; see :class:`packer.sources.source.Source`."""

    paths: tuple[str, ...]
    options: TableOptions
    kind = "table"

    def scan(self, check: Callable[[], None]) -> FoundFiles:
        """Read the tables and look at each file they name."""
        directories = {os.path.dirname(os.path.abspath(path)) for path in self.paths}
        if self.options.root is None and len(directories) > 1:
            raise SourceError("the tables lie in several directories; say with --root where their paths begin")
        root = os.path.abspath(self.options.root) if self.options.root is not None else directories.pop()
        if not os.path.isdir(root):
            raise SourceError(f"there is no directory {printable(root)} for the table's paths; check --root")
        scan = _Scan(root, self.options, check)
        for path in self.paths:
            check()
            scan.take_table(read_table(path))
        return scan.finish()


@dataclass(slots=True)
class _Complaints:
    """Offenders by kind."""

    missing: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)

    def raise_any(self, root: str) -> None:
        root = printable(root)
        if self.outside:
            raise SourceError(
                f"{len(self.outside)} path(s) of the table lead outside of {root}:\n{list_offenders(self.outside)}\n"
                "say with --root which directory holds all files"
            )
        if self.missing:
            raise SourceError(
                f"{len(self.missing)} file(s) that the table names cannot be packed:\n{list_offenders(self.missing)}\n"
                f"paths begin at {root}; another place is given by --root, another column by --path-column"
            )
        if self.twice:
            raise DuplicateKeyError(
                f"{len(self.twice)} file(s) are named more than once, or give the same key:\n"
                f"{list_offenders(self.twice)}\n"
                "a sample has one row; join rows first, for instance into a list in one column"
            )


class _Scan:
    """Gathers the members of tables."""

    def __init__(self, root: str, options: TableOptions, check: Callable[[], None]) -> None:
        self._root = root
        self._options = options
        self._check = check
        self._files = SourceFiles()
        self._locators: list[bytes] = []
        self._dots = array("l")
        self._rows: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._right = ReadRight()
        self._skips = Skips()
        self._complaints = _Complaints()

    def take_table(self, table: Table) -> None:
        """Take all rows of a table."""
        path_column = self._find_path_column(table)
        named = [name for name, _ in self._options.columns]
        _require_columns(table, named)
        others = [name for name in table.columns if name not in {path_column, *named}]
        if others and JSON_EXTENSION in {extension for _, extension in self._options.columns}:
            raise SourceError("--column makes a member json, and the columns that are left do too; name them all")
        rows = list(self._wanted_rows(table, path_column))
        for (number, path), status in zip(rows, self._look(path for _, path in rows), strict=True):
            if isinstance(status, str) and self._options.skips_unreadable:
                self._skips.add(SkipReason.UNREADABLE, path.encode("utf-8", "surrogateescape"))
                continue
            if isinstance(status, str):
                self._complaints.missing.append(f"{printable(path)}: {status}")
                continue
            key, dot = self._key_of(path)
            if (others or named) and (other := self._keys.setdefault(key, path)) != path:
                self._complaints.twice.append(f"{printable(path)} and {printable(other)}: rows of the same key")
                continue
            self._add(path, dot, status.st_size, status.st_mtime_ns, path.encode("utf-8", "surrogateescape"))
            if others:
                self._add_inline(key, JSON_EXTENSION, encode_row(table.row(number, others)))
            for name, extension in self._options.columns:
                value = table.columns[name][number]
                if value is not None:
                    self._add_inline(key, extension, encode_cell(value))

    def finish(self) -> FoundFiles:
        """Sort what was found.

        Raises:
            SourceError: files are missing, or lie elsewhere.
            DuplicateKeyError: files are named twice.
        """
        self._complaints.raise_any(self._root)
        self._files.locators, self._files.dots = self._locators, self._dots
        self._files.sort()
        return FoundFiles(self._files, self._skips, 0, TreeRoot(os.fsencode(self._root), follows_symlinks=True))

    def _wanted_rows(self, table: Table, path_column: str) -> Iterator[tuple[int, str]]:
        """(row, path relative to the root) of each row that names a file."""
        for number, value in enumerate(table.columns[path_column]):
            where = f"{table.path}, row {number + 1}"
            if value is None or value == "":
                self._skips.add(SkipReason.NO_VALUE, where.encode("utf-8", "surrogateescape"))
                continue
            path = _relative(str(value), self._root)
            if path is None:
                self._complaints.outside.append(printable(str(value)))
            elif path in self._rows:
                self._complaints.twice.append(
                    f"{printable(path)}: {printable(self._rows[path])} and {printable(where)}"
                )
            else:
                self._rows[path] = where
                yield number, path

    def _look(self, paths: Iterator[str]) -> Iterator[os.stat_result | str]:
        """Status of each file, or what is wrong with it; with threads, for network filesystems."""
        every = list(paths)
        with ThreadPoolExecutor(_STAT_THREADS) as pool:
            batches = [every[start : start + _STAT_BATCH] for start in range(0, len(every), _STAT_BATCH)]
            for found in pool.map(self._look_at, batches):
                self._check()
                yield from found

    def _look_at(self, paths: Sequence[str]) -> list[os.stat_result | str]:
        return [_status_of(f"{self._root}/{path}", self._right) for path in paths]

    def _key_of(self, path: str) -> tuple[str, int]:
        """Key of a file and where the dot behind it lies; -1 leaves it to grouping, which refuses keyless files."""
        found = split_name(path, self._options.key_rule)
        if isinstance(found, Keyless):
            return path, -1
        return found.key, len(found.key) if path.startswith(f"{found.key}.") else -1

    def _add_inline(self, key: str, extension: str, data: bytes) -> None:
        self._add(f"{key}.{extension}", len(key), len(data), INLINE, data)

    def _add(self, path: str, dot: int, size: int, stamp: int, locator: bytes) -> None:
        self._files.append(path.encode("utf-8", "surrogateescape"), size, stamp)
        self._locators.append(locator)
        self._dots.append(dot)

    def _find_path_column(self, table: Table) -> str:
        """The column that was named, or the only one whose values are files."""
        if self._options.path_column is not None:
            _require_columns(table, [self._options.path_column])
            return self._options.path_column
        fitting = [name for name, column in table.columns.items() if self._are_files(column)]
        if len(fitting) == 1:
            return fitting[0]
        names = ", ".join(map(printable, fitting or table.columns))
        what = "several columns name files" if fitting else "no column names files"
        raise SourceError(
            f"{what} below {printable(self._root)} in {printable(table.path)}: {names}; "
            "say which with --path-column, and where the files are with --root"
        )

    def _are_files(self, column: Sequence[object]) -> bool:
        values = [value for value in column if value not in {None, ""}] if _is_text(column) else []
        paths = [_relative(str(value), self._root) for value in values[:_GUESSED_ROWS]]
        # most, not all: that some are missing has to be said of the column that is meant
        found = sum(path is not None and os.path.isfile(f"{self._root}/{path}") for path in paths)
        return found * 2 > len(paths)


def _is_text(column: Sequence[object]) -> bool:
    return all(value is None or isinstance(value, str) for value in column)


def _require_columns(table: Table, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise SourceError(
            f"{printable(table.path)} has no column {', '.join(map(printable, missing))}; "
            f"it has: {', '.join(map(printable, table.columns))}"
        )


def _relative(path: str, root: str) -> str | None:
    """A path relative to the root in its shortest form; None when it does not lie below."""
    full = os.path.normpath(os.path.join(root, path))
    prefix = root.rstrip("/") + "/"
    return full[len(prefix) :] if full.startswith(prefix) and "\0" not in full else None


def _status_of(path: str, right: ReadRight) -> os.stat_result | str:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.strerror or "cannot be read"
    if not stat.S_ISREG(status.st_mode):
        return "is a directory" if stat.S_ISDIR(status.st_mode) else "is no regular file"
    return status if right.may_read(status, os.fsencode(path)) else "Permission denied"
