"""Parquet and Arrow files with bytes in their columns as a source: each row is a sample, each column of bytes a member.

Rules:
    * A column of bytes, or of Hugging Face's ``{bytes, path}``, becomes a member. Its extension is that of
      ``--column``, else of the path that came with the value, else it is told by how the bytes begin. When nothing
      tells, that is an error.
    * The other columns become one member ``json`` with their types, or members of their own, by ``--column``.
    * The key is the value of ``--key-column``, else made of the file's name and the row's number in it.
    * A value that is missing makes no member. A row without any bytes is left out and counted.
    * Parquet does not say how long its values are. So each row group is read once here, and once more to be packed.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from packer.sources.columns import holds_bytes
from packer.sources.files import FoundFiles, SkipReason, Skips, SourceFiles, SourcePart, display_path
from packer.sources.inline_read import LOCATOR, Cells, InlineFile, InlineFiles, bytes_of, cells_of
from packer.sources.media import LOOKED_AT_BYTES, guess_extension
from packer.sources.names import is_plain_path, raise_odd_paths
from packer.sources.persist import explain_errno, persist
from packer.sources.row_groups import open_row_groups, read_group
from shards.errors import DuplicateKeyError, SourceError, list_offenders, printable

JSON_EXTENSION = "json"
_KEY_DIGITS = 8


@dataclass(frozen=True, slots=True)
class InlineSource:
    """Rows with bytes; see :class:`packer.sources.source.Source`."""

    paths: tuple[str, ...]
    key_column: str | None
    columns: tuple[tuple[str, str], ...]
    """(column, extension of the member it becomes)."""
    kind = "inline"

    def scan(self, check: Callable[[], None]) -> FoundFiles:
        """Read all row groups once, for the sizes."""
        cells = self._choose_cells()
        scan = _Scan(self, cells, check)
        for number, path in enumerate(self.paths):
            try:
                scan.take_file(number, path)
            except OSError as error:
                raise _unreadable(path, error) from error
        return scan.finish()

    def _choose_cells(self) -> Cells:
        """Say what becomes of each column, by the first file."""
        try:
            groups = persist(lambda: open_row_groups(self.paths[0]))
        except OSError as error:
            raise _unreadable(self.paths[0], error) from error
        schema: pa.Schema = groups.schema
        groups.close()
        wanted = [name for name, _ in self.columns]
        asked = [*wanted, self.key_column] if self.key_column else wanted
        missing = [name for name in asked if name not in schema.names]
        if missing:
            raise SourceError(
                f"{printable(self.paths[0])} has no column {', '.join(map(printable, missing))}; "
                f"it has: {', '.join(map(printable, schema.names))}"
            )
        raw = [field.name for field in schema if holds_bytes(field.type)]
        members = (*wanted, *(name for name in raw if name not in wanted and name != self.key_column))
        others = tuple(name for name in schema.names if name not in members and name != self.key_column)
        if not raw:
            raise SourceError(f"{printable(self.paths[0])} has no column of bytes; is it a table of paths?")
        return Cells(members, others, frozenset(raw))


def _unreadable(path: str, error: OSError) -> SourceError:
    return SourceError(f"cannot read {printable(path)}: {explain_errno(error)}")


class _Scan:
    """Gathers the members of rows."""

    def __init__(self, source: InlineSource, cells: Cells, check: Callable[[], None]) -> None:
        self._source = source
        self._cells = cells
        self._check = check
        self._extensions = dict(source.columns)
        self._stems = _stems(source.paths)
        self._files = SourceFiles()
        self._locators: list[bytes] = []
        self._dots = array("l")
        self._batches = array("L")
        self._skips = Skips()
        self._inputs: list[InlineFile] = []
        self._odd: list[str] = []
        self._keyless: list[str] = []
        self._unknown: dict[str, str] = {}
        self._only_paths: list[str] = []
        self._row = 0

    def take_file(self, number: int, path: str) -> None:
        """Take all rows of a file."""
        status = persist(lambda: os.stat(path))
        groups = persist(lambda: open_row_groups(path))

        def reopen() -> None:
            nonlocal groups
            groups.close()
            groups = open_row_groups(path)

        self._row = 0
        columns = {*self._cells.members, *self._cells.others}
        absent = sorted(columns - set(groups.schema.names))
        if absent:
            raise SourceError(
                f"{printable(path)} has no column {', '.join(map(printable, absent))}, "
                f"which {printable(self._source.paths[0])} has; pack files of different columns each for itself"
            )
        for group in range(groups.num_groups):
            self._check()
            table = persist(lambda group=group: read_group(groups, path, group), reopen)  # type: ignore[misc]
            self._files.parts.append(SourcePart(table.nbytes, len(self._files.parts)))
            self._take_group(table, (number, group), status.st_mtime_ns)
        groups.close()
        self._inputs.append(InlineFile(os.path.abspath(path), status.st_size, status.st_mtime_ns))

    def finish(self) -> FoundFiles:
        """Sort what was found.

        Raises:
            SourceError: values whose kind cannot be told, rows without a key, or keys that cannot be names.
            DuplicateKeyError: two rows have the same key, or two columns the same extension.
        """
        self._raise_complaints()
        files = self._files
        files.locators, files.dots, files.batches = self._locators, self._dots, self._batches
        files.sort()
        self._raise_same_names()
        return FoundFiles(files, self._skips, 0, InlineFiles(tuple(self._inputs), self._cells))

    def _take_group(self, table: pa.Table, place: tuple[int, int], stamp: int) -> None:
        names = self._cells.members
        columns = [list(self._measure(table, name)) for name in names]
        others = cells_of(table, self._cells.others)
        keys = table.column(self._source.key_column).to_pylist() if self._source.key_column else None
        for row in range(table.num_rows):
            key = self._key_of(None if keys is None else keys[row], place[0], is_given=keys is not None)
            found = [(column, *cell) for column, cells in enumerate(columns) if (cell := cells[row]) is not None]
            self._row += 1
            if not any(names[column] in self._cells.raw for column, _, _ in found):
                self._skips.add(SkipReason.NO_VALUE, f"{self._stems[place[0]]}, row {self._row - 1}".encode())
                continue
            if key is None:
                continue
            for column, extension, size in found:
                self._add(key, extension, size, LOCATOR.pack(*place, row, column), stamp)
            if self._cells.others:
                self._add(key, JSON_EXTENSION, len(others[row]), LOCATOR.pack(*place, row, len(names)), stamp)

    def _measure(self, table: pa.Table, name: str) -> Iterator[tuple[str, int] | None]:
        """(extension, size) of each value of a column, None where there is none."""
        given = self._extensions.get(name)
        if name not in self._cells.raw:
            for cell in cells_of(table, (name,), is_single=True):
                yield None if cell is None else (given or "txt", len(cell))
            return
        values, paths = bytes_of(table, name)
        sizes = pc.binary_length(values).to_pylist()
        heads = pc.binary_slice(values.cast(pa.large_binary()), 0, LOOKED_AT_BYTES).to_pylist()
        for row, (size, head, path) in enumerate(zip(sizes, heads, paths or [None] * len(sizes), strict=True)):
            if size is None:
                if path:
                    self._only_paths.append(f"row {self._row + row}: {printable(path)}")
                yield None
                continue
            extension = given or guess_extension(head, path)
            if extension is None:
                self._unknown.setdefault(name, f"row {self._row + row} begins with {head!r}")
            yield extension or "bin", size

    def _key_of(self, value: object, file: int, *, is_given: bool) -> str | None:
        if not is_given:
            return f"{self._stems[file]}-{self._row:0{_KEY_DIGITS}d}"
        key = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
        if value is None or key == "":
            self._keyless.append(f"{printable(self._source.paths[file])}, row {self._row}")
            return None
        if not is_plain_path(key.encode("utf-8", "surrogateescape")):
            self._odd.append(key)
            return None
        return key

    def _add(self, key: str, extension: str, size: int, locator: bytes, stamp: int) -> None:
        self._files.append(f"{key}.{extension}".encode("utf-8", "surrogateescape"), size, stamp)
        self._locators.append(locator)
        self._dots.append(len(key))
        self._batches.append(len(self._files.parts) - 1)

    def _raise_complaints(self) -> None:
        if self._unknown:
            lines = [f"{printable(name)}: {reason}" for name, reason in self._unknown.items()]
            raise SourceError(
                f"nothing tells what the bytes in {len(lines)} column(s) are:\n{list_offenders(lines)}\n"
                "say so with --column NAME=EXTENSION"
            )
        if self._only_paths:
            raise SourceError(
                f"{len(self._only_paths)} row(s) have a path and no bytes:\n{list_offenders(self._only_paths)}\n"
                "save the data set with its files embedded, or pack the files with a table of paths"
            )
        if self._keyless:
            raise SourceError(
                f"{len(self._keyless)} row(s) have no key in {self._source.key_column}:\n"
                f"{list_offenders(self._keyless)}\nfill it, or leave --key-column out to number the rows"
            )
        raise_odd_paths(self._odd, f"column {self._source.key_column}")

    def _raise_same_names(self) -> None:
        files = self._files
        assert files.locators is not None  # noqa: S101 (set before)
        same = []
        for left, right in files.same_paths():
            first, second = (self._describe(files.locators[number]) for number in (left, right))
            same.append(f"{printable(display_path(files.paths[left]))}: {first} and {second}")
        if same:
            raise DuplicateKeyError(
                f"{len(same)} member(s) would have the same name:\n{list_offenders(same)}\n"
                "keys have to differ (--key-column), and so have the extensions of a row's columns (--column NAME=EXT)"
            )

    def _describe(self, locator: bytes) -> str:
        file, group, row, column = LOCATOR.unpack(locator)
        name = (*self._cells.members, JSON_EXTENSION)[column]
        return f"{printable(self._source.paths[file])}, group {group}, row {row}, column {printable(name)}"


def _stems(paths: Iterable[str]) -> list[str]:
    """What keys of each file begin with: its path without the suffix, below what is common to all, without dots."""
    full = [os.path.abspath(path) for path in paths]
    common = os.path.commonpath([os.path.dirname(path) for path in full])
    stems = []
    for path in full:
        directory, base = os.path.split(os.path.relpath(path, common))
        stem = base.rpartition(".")[0].replace(".", "_") or base
        stems.append(f"{directory}/{stem}" if directory else stem)
    return stems
