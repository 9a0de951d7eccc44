"""Parquet and Arrow files as groups of rows that are read as a whole: row groups, record batches."""

import os
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from shards.errors import FormatError

_ARROW_FILE_MAGIC = b"ARROW1"
_PARQUET_MAGIC = b"PAR1"


class RowGroups(Protocol):
    """One open file."""

    schema: pa.Schema
    num_groups: int

    def read_group(self, number: int) -> pa.Table:
        """Read all columns of a group."""

    def close(self) -> None:
        """Close the file."""


def open_row_groups(path: str) -> RowGroups:
    """Open a file; what it is, its content says.

    Raises:
        FormatError: it is neither Parquet nor Arrow, or damaged.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        head = file.read(8)
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4))
        tail = file.read(4)
    try:
        if head.startswith(_PARQUET_MAGIC) and tail == _PARQUET_MAGIC:
            return _Parquet(path)
        return _ArrowFile(path) if head.startswith(_ARROW_FILE_MAGIC) else _ArrowStream(path)
    except (pa.ArrowException, ValueError) as error:
        raise FormatError(path, None, f"no Parquet or Arrow file that can be read: {error}") from error


def read_group(groups: RowGroups, path: str, number: int) -> pa.Table:
    """Read a group of an open file.

    Raises:
        FormatError: it is damaged.
        OSError: it cannot be read; has an errno.
    """
    try:
        return groups.read_group(number)
    except (pa.ArrowException, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the file, not of what is in it
        raise FormatError(path, None, f"row group {number} cannot be read: {error}") from error


class _Parquet:
    def __init__(self, path: str) -> None:
        self._file = pq.ParquetFile(path)
        self.schema = self._file.schema_arrow
        self.num_groups = self._file.num_row_groups

    def read_group(self, number: int) -> pa.Table:
        return self._file.read_row_group(number)

    def close(self) -> None:
        self._file.close()


class _ArrowFile:
    def __init__(self, path: str) -> None:
        self._map = pa.memory_map(path)
        self._reader = pa.ipc.open_file(self._map)
        self.schema = self._reader.schema
        self.num_groups = self._reader.num_record_batches

    def read_group(self, number: int) -> pa.Table:
        return pa.Table.from_batches([self._reader.get_batch(number)])

    def close(self) -> None:
        self._map.close()


class _ArrowStream:
    """What Hugging Face writes into its cache. Batches that are not compressed stay in the file until they are used."""

    def __init__(self, path: str) -> None:
        self._map = pa.memory_map(path)
        reader = pa.ipc.open_stream(self._map)
        self.schema = reader.schema
        self._batches = list(reader)
        self.num_groups = len(self._batches)

    def read_group(self, number: int) -> pa.Table:
        return pa.Table.from_batches([self._batches[number]])

    def close(self) -> None:
        self._batches.clear()
        self._map.close()
