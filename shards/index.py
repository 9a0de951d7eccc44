"""Reads shard indexes: memory-mapped, without copies, safely whatever the bytes are.

Opening costs the same for any number of samples: the file is mapped, its schema and metadata are read, and every
column is checked to lie inside the file and to be long enough. Nothing else is read; :meth:`ShardIndex.validate` reads
it all. Columns are reached only through NumPy arrays and memory views, whose bounds Python checks, so a damaged file
gives an :class:`IndexFormatError`, or a wrong number that the shard's own checks catch, never a crash. Indexes are
written by :class:`IndexBuilder`.

A mapped index must not be cut while it is open (the process would get SIGBUS); committed indexes never change.
"""

import os
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shards.errors import IndexFormatError
from shards.index_builder import IndexBuilder
from shards.index_columns import IndexColumns, Int32s, UInt32s, UInt64s, check_columns, read_columns
from shards.index_schema import INDEX_SUFFIX, IndexHeader, index_name

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

__all__ = ["INDEX_SUFFIX", "IndexBuilder", "IndexHeader", "IndexedMember", "ShardIndex", "index_name"]


class IndexedMember(NamedTuple):
    """Where one member of a sample lies in its shard."""

    extension: str
    offset: int
    """Of the data, in bytes from the start of the shard."""
    size: int
    """In bytes."""
    crc32c: int
    """CRC-32C of the data, not masked."""


class ShardIndex:
    """The index of one shard; a context manager. Pickles as its path (or its bytes), so workers map it themselves.

    Sample numbers ``i`` are 0-based, in shard order. Methods raise ``IndexError`` for a number out of range,
    ``ValueError`` after :meth:`close`, and :class:`IndexFormatError` where they meet damage. Arrays are read-only views
    into the file; those handed out stay valid after :meth:`close`.
    """

    def __init__(self, source: "pa.Buffer", name: str, *, path: str | None = None) -> None:
        self._source: pa.Buffer | None = source
        self._name = name
        self._path = path
        self._header, columns = read_columns(source, name)
        self._open_columns: IndexColumns | None = columns
        self._extensions: tuple[str, ...] | None = None
        self._lookup: _KeyLookup | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "ShardIndex":
        """Map an index file. No descriptor stays open, so thousands of indexes may be.

        Raises:
            OSError: the file cannot be opened.
            IndexFormatError: it is no index, or is damaged.
            UnsupportedVersionError: a newer version wrote it.
        """
        text = os.fspath(path)
        with pa.memory_map(os.fsencode(text)) as file:  # the mapping lives on in the buffer
            source = file.read_buffer()
        return cls(source, text, path=text)

    @classmethod
    def from_bytes(cls, data: "Buffer", *, name: str) -> "ShardIndex":
        """Open an index that lies in memory; ``name`` is what errors call it. The data are not copied."""
        return cls(pa.py_buffer(data), name)

    @property
    def header(self) -> IndexHeader:
        """What the index says about its shard as a whole."""
        return self._header

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return len(self._columns.sample_offsets)

    @property
    def extensions(self) -> tuple[str, ...]:
        """All extensions; :attr:`extension_codes` are places in it."""
        if self._extensions is None:
            columns = self._columns
            self._extensions = tuple(
                self._text(columns.dictionary_bytes, columns.dictionary_offsets, place, columns.is_extension_text)
                for place in range(len(columns.dictionary_offsets) - 1)
            )
        return self._extensions

    @property
    def sample_offsets(self) -> UInt64s:
        """Where each sample starts: uint64 [num_samples], bytes from the start of the shard, ascending."""
        return self._columns.sample_offsets

    @property
    def first_member(self) -> Int32s:
        """int32 [num_samples + 1]; the members of sample i are those from ``[i]`` to ``[i + 1]``, half-open."""
        return self._columns.first_member

    @property
    def extension_codes(self) -> Int32s:
        """int32 [num_members], places in :attr:`extensions`."""
        return self._columns.codes

    @property
    def member_offsets(self) -> UInt64s:
        """uint64 [num_members], where the data of each member start, bytes from the start of the shard."""
        return self._columns.member_offsets

    @property
    def member_sizes(self) -> UInt32s | UInt64s:
        """uint32 or uint64 [num_members], in bytes."""
        return self._columns.sizes

    @property
    def member_crc32cs(self) -> UInt32s:
        """uint32 [num_members], CRC-32C of the data, not masked."""
        return self._columns.crcs

    def key(self, i: int) -> str:
        """Key of sample ``i``; bytes that are not UTF-8 come as lone surrogates."""
        columns = self._columns
        self._check(i)
        return self._text(columns.key_bytes, columns.key_offsets, i, columns.is_key_text)

    def sample_offset(self, i: int) -> int:
        """Where sample ``i`` starts, in bytes from the start of the shard."""
        self._check(i)
        return int(self._columns.sample_offsets[i])

    def members(self, i: int) -> tuple[IndexedMember, ...]:
        """The members of sample ``i``, in shard order."""
        columns = self._columns
        self._check(i)
        start, end = columns.first_member[i : i + 2].tolist()
        if not 0 <= start <= end <= len(columns.codes):
            raise IndexFormatError(self._name, None, f"the members of sample {i} lie outside the index")
        extensions = self.extensions
        codes = columns.codes[start:end].tolist()
        if codes and not 0 <= min(codes) <= max(codes) < len(extensions):
            raise IndexFormatError(self._name, None, f"sample {i} has an extension outside the dictionary")
        return tuple(
            map(
                IndexedMember,
                map(extensions.__getitem__, codes),
                columns.member_offsets[start:end].tolist(),
                columns.sizes[start:end].tolist(),
                columns.crcs[start:end].tolist(),
            )
        )

    def find(self, key: str) -> int | None:
        """Number of the sample with this key, or None.

        The first call reads all keys and keeps 12 bytes a sample (about 0.5 s and 12 MB for a million samples); further
        calls take microseconds.
        """
        try:
            raw = key.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return None
        return self._keys().find(raw)

    def validate(self) -> None:
        """Read everything and check every promise of the format that can be checked without the shard.

        Raises:
            IndexFormatError: a column is damaged, offsets do not ascend or leave the shard, or a key or an extension
                within one sample comes twice.
        """
        check_columns(self._columns, self._header, self._name)
        if len(set(self.extensions)) != len(self.extensions):
            raise IndexFormatError(self._name, None, "the dictionary holds an extension twice")
        twice = self._keys().find_twice()
        if twice is not None:
            first, second = twice
            raise IndexFormatError(self._name, None, f"samples {first} and {second} have the same key")

    def close(self) -> None:
        """Let go of the file; it is unmapped once no array handed out is left."""
        self._source = None
        self._open_columns = None
        self._lookup = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> "tuple[Callable[..., ShardIndex], tuple[Any, ...]]":
        if self._path is not None:
            return ShardIndex.open, (self._path,)
        if self._source is None:
            raise ValueError(f"the index {self._name!r} is closed")
        return _from_bytes, (self._source.to_pybytes(), self._name)

    @property
    def _columns(self) -> IndexColumns:
        if self._open_columns is None:
            raise ValueError(f"the index {self._name!r} is closed")
        return self._open_columns

    def _check(self, i: int) -> None:
        if not 0 <= i < len(self._columns.sample_offsets):
            raise IndexError(f"sample {i} of {self.num_samples}")

    def _text(self, data: memoryview, offsets: Int32s, place: int, is_text: bool) -> str:  # noqa: FBT001
        start, end = offsets[place : place + 2].tolist()
        if not 0 <= start <= end <= len(data):
            raise IndexFormatError(self._name, None, f"entry {place} of a text column lies outside it")
        try:
            return str(data[start:end], "utf-8", "strict" if is_text else "surrogateescape")
        except UnicodeDecodeError as error:
            raise IndexFormatError(self._name, None, f"entry {place} of a text column is not UTF-8") from error

    def _keys(self) -> "_KeyLookup":
        if self._lookup is None:
            columns = self._columns
            offsets = columns.key_offsets
            if np.any(offsets[1:] < offsets[:-1]) or offsets[0] < 0 or offsets[-1] > len(columns.key_bytes):
                raise IndexFormatError(self._name, None, "the keys lie outside their column")
            self._lookup = _KeyLookup(columns.key_bytes, offsets)
        return self._lookup


class _KeyLookup:
    """Finds keys through their sorted hashes: 12 bytes a key, where a dict would take over a hundred."""

    def __init__(self, data: memoryview, offsets: Int32s) -> None:
        self._data = data
        self._offsets = offsets
        ends = iter(offsets[1:].tolist())
        start = 0
        hashes = np.empty(len(offsets) - 1, np.int64)
        for place, end in enumerate(ends):
            hashes[place] = hash(bytes(data[start:end]))  # salted anew in each process: nobody can prepare collisions
            start = end
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._order: npt.NDArray[np.uint32] = order.astype(np.uint32)

    def find(self, raw: bytes) -> int | None:
        """Lowest number of a sample with this key, or None."""
        wanted = hash(raw)
        left = int(np.searchsorted(self._hashes, wanted))
        for place in range(left, len(self._hashes)):
            if self._hashes[place] != wanted:
                return None
            number = int(self._order[place])
            if self._raw(number) == raw:
                return number
        return None

    def find_twice(self) -> tuple[int, int] | None:
        """Two samples with the same key, or None."""
        for place in np.flatnonzero(self._hashes[1:] == self._hashes[:-1]).tolist():
            first, second = int(self._order[place]), int(self._order[place + 1])
            if self._raw(first) == self._raw(second):
                return first, second
        return None

    def _raw(self, number: int) -> bytes:
        start, end = self._offsets[number : number + 2].tolist()
        return bytes(self._data[start:end])


def _from_bytes(data: bytes, name: str) -> ShardIndex:
    return ShardIndex.from_bytes(data, name=name)
