"""Reads values out of row groups, and keeps those that two windows of the packer need; see :mod:`packer.windows`."""

import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, overload

import pyarrow as pa
import pyarrow.compute as pc

from packer.sources.columns import encode_cell, encode_row
from packer.sources.files import WINDOW_BYTES
from packer.sources.origin import PIECE_BYTES
from packer.sources.persist import explain_errno, persist
from packer.sources.row_groups import RowGroups, open_row_groups, read_group
from shards.digests import crc32c
from shards.errors import FormatError, SourceChangedError, SourceError, printable

LOCATOR = struct.Struct("<IIIH")
"""Number of the file, of its row group, of the row in it, and of the column among :attr:`Cells.members`; one more than
the last is the member of the other columns."""

_KEPT_BYTES = 2 * WINDOW_BYTES
_OPEN_FILES = 16


@dataclass(frozen=True, slots=True)
class Cells:
    """What becomes of the columns."""

    members: tuple[str, ...]
    """Columns that become a member each."""
    others: tuple[str, ...]
    """Columns that become one member together, as JSON."""
    raw: frozenset[str]
    """Columns that hold bytes."""


@dataclass(frozen=True, slots=True)
class InlineFile:
    """One file as it was looked through."""

    path: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class InlineFiles:
    """Where the rows lie; see :class:`packer.sources.origin.Origin`."""

    files: tuple[InlineFile, ...]
    cells: Cells

    def local_paths(self) -> list[bytes]:
        """All files."""
        return [os.fsencode(file.path) for file in self.files]

    def open_reader(self) -> "InlineReader":
        """Files are opened when first read."""
        return InlineReader(self.files, self.cells)


def bytes_of(table: pa.Table, name: str) -> tuple[pa.ChunkedArray, list[str | None] | None]:
    """The bytes of a column, and the paths that came with them if there are any."""
    column = table.column(name)
    if not pa.types.is_struct(column.type):
        return column, None
    has_paths = column.type.get_field_index("path") >= 0
    return pc.struct_field(column, "bytes"), pc.struct_field(column, "path").to_pylist() if has_paths else None


@overload
def cells_of(table: pa.Table, names: tuple[str, ...]) -> list[bytes]: ...
@overload
def cells_of(table: pa.Table, names: tuple[str, ...], *, is_single: Literal[True]) -> list[bytes | None]: ...


def cells_of(table: pa.Table, names: tuple[str, ...], *, is_single: bool = False) -> "list[bytes] | list[bytes | None]":
    """Encode some columns of each row: as one JSON object, or the only column by itself, None where it has no value."""
    if not names:
        return []
    if is_single:
        return [None if value is None else encode_cell(value) for value in table.column(names[0]).to_pylist()]
    return [encode_row(row) for row in table.select(list(names)).to_pylist()]


class _Group:
    """One row group in memory, with what was encoded of it."""

    def __init__(self, table: pa.Table, cells: Cells) -> None:
        self.size_bytes = table.nbytes
        self._table = table
        self._cells = cells
        self._raw = {name: bytes_of(table, name)[0] for name in cells.members if name in cells.raw}
        self._encoded: dict[int, list[bytes] | list[bytes | None]] = {}

    def value(self, row: int, column: int) -> memoryview | None:
        """The bytes of one member; None when the row has no such value."""
        members = self._cells.members
        if column < len(members) and members[column] in self._raw:
            buffer = self._raw[members[column]][row].as_buffer()
            return None if buffer is None else memoryview(buffer).cast("B")
        if column not in self._encoded:
            is_rest = column == len(members)
            self._encoded[column] = (
                cells_of(self._table, self._cells.others)
                if is_rest
                else cells_of(self._table, (members[column],), is_single=True)
            )
        data = self._encoded[column][row]
        return None if data is None else memoryview(data)


class InlineReader:
    """Reads values of rows; see :class:`packer.sources.origin.MemberReader`."""

    def __init__(self, files: tuple[InlineFile, ...], cells: Cells) -> None:
        self.num_groups_read = 0
        """How often a row group was read."""
        self._files = files
        self._cells = cells
        self._lock = threading.Lock()
        self._groups: OrderedDict[tuple[int, int], _Group] = OrderedDict()
        self._open: OrderedDict[int, RowGroups] = OrderedDict()

    def close(self) -> None:
        """Close all files and forget all groups."""
        self._groups.clear()
        while self._open:
            self._open.popitem()[1].close()

    def read_into(self, locator: bytes, size: int, stamp: int, target: memoryview, offset: int) -> int:
        """Copy a value into a place of a buffer."""
        value = self._find(locator, size, stamp)
        target[offset : offset + size] = value
        return crc32c(value)

    def pieces(self, locator: bytes, size: int, stamp: int) -> Iterator[bytes]:
        """Give a value in pieces."""
        value = self._find(locator, size, stamp)
        for start in range(0, size, PIECE_BYTES):
            yield bytes(value[start : start + PIECE_BYTES])

    def _find(self, locator: bytes, size: int, stamp: int) -> memoryview:
        file, number, row, column = LOCATOR.unpack(locator)
        with self._lock:
            try:
                value = self._group(file, number, stamp).value(row, column)
            except IndexError:
                value = None
        if value is None or len(value) != size:
            found = "no such value" if value is None else f"a value of {len(value)} bytes"
            raise SourceChangedError(self._files[file].path, f"row {row} of group {number} with {size} bytes", found)
        return value

    def _group(self, file: int, number: int, stamp: int) -> _Group:
        found = self._groups.get((file, number))
        if found is not None:
            self._groups.move_to_end((file, number))
            return found
        path = self._files[file].path
        try:
            persist(lambda: self._check(file, stamp))
            table = persist(lambda: read_group(self._opened(file), path, number), lambda: self._forget(file))
            persist(lambda: self._check(file, stamp))
        except FormatError:
            self._check(file, stamp)  # damage that comes of a change is a change
            raise
        except OSError as error:
            raise SourceError(
                f"cannot read {printable(path)}: {explain_errno(error)}; "
                "mend that, then run the same command again to go on"
            ) from error
        self.num_groups_read += 1
        group = self._groups[file, number] = _Group(table, self._cells)
        while len(self._groups) > 1 and sum(kept.size_bytes for kept in self._groups.values()) > _KEPT_BYTES:
            self._groups.popitem(last=False)
        return group

    def _opened(self, file: int) -> RowGroups:
        if file not in self._open:
            self._open[file] = open_row_groups(self._files[file].path)
            if len(self._open) > _OPEN_FILES:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(file)
        return self._open[file]

    def _forget(self, file: int) -> None:
        """Let the next read open a file anew."""
        if file in self._open:
            self._open.pop(file).close()

    def _check(self, file: int, stamp: int) -> None:
        planned = self._files[file]
        expected = _describe(planned.size_bytes, stamp)
        try:
            status = os.stat(planned.path)
        except FileNotFoundError as error:
            raise SourceChangedError(planned.path, expected, "no such file") from error
        if status.st_size != planned.size_bytes or status.st_mtime_ns != stamp:
            raise SourceChangedError(planned.path, expected, _describe(status.st_size, status.st_mtime_ns))


def _describe(size: int, mtime_ns: int) -> str:
    return f"a file of {size} bytes modified at {mtime_ns // 10**9}.{mtime_ns % 10**9:09d}"
