"""The columns of an index file as bounds-checked views, and the checks over them.

:func:`read_columns` makes only the checks whose cost does not depend on the number of samples; :func:`check_columns`
reads everything. Between the two, a view may hold wrong numbers but can never reach outside the file.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shards.errors import IndexFormatError
from shards.index_schema import IndexHeader, index_schema

Int32s: TypeAlias = npt.NDArray[np.int32]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
UInt64s: TypeAlias = npt.NDArray[np.uint64]

_BAD_DATA = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)
"""What pyarrow raises on a damaged file, depending on where the damage is."""


@dataclass(frozen=True, slots=True)
class IndexColumns:
    """The columns of an open index; every array is a read-only view into the file."""

    batch: "pa.RecordBatch"
    """The same columns for Arrow; keeps the file mapped."""
    is_key_text: bool
    """Whether keys are promised to be UTF-8."""
    is_extension_text: bool
    """Whether extensions are promised to be UTF-8."""
    key_offsets: Int32s
    """[num_samples + 1], into ``key_bytes``."""
    key_bytes: memoryview
    sample_offsets: UInt64s
    """[num_samples]"""
    first_member: Int32s
    """[num_samples + 1], into the columns of members."""
    codes: Int32s
    """[num_members], into the dictionary."""
    member_offsets: UInt64s
    """[num_members]"""
    sizes: UInt32s | UInt64s
    """[num_members]"""
    crcs: UInt32s
    """[num_members]"""
    dictionary_offsets: Int32s
    """[number of extensions + 1], into ``dictionary_bytes``."""
    dictionary_bytes: memoryview


def read_columns(source: "pa.Buffer", name: str) -> tuple[IndexHeader, IndexColumns]:
    """Open an index file that lies in memory or is mapped.

    Args:
        source: the whole file.
        name: what errors call it.

    Raises:
        IndexFormatError: it is no index, or damaged where that shows without reading the columns.
        UnsupportedVersionError: a newer version wrote it.
    """
    try:
        return _read_columns(source, name)
    except _BAD_DATA as error:
        raise IndexFormatError(name, None, f"not a readable Arrow file: {error}") from error


def check_columns(columns: IndexColumns, header: IndexHeader, name: str) -> None:
    """Check every promise of an index that can be checked without its shard, but for the uniqueness of keys.

    Raises:
        IndexFormatError: one is broken.
    """
    try:
        columns.batch.validate(full=True)  # offsets ascend, codes in range, text is UTF-8
    except _BAD_DATA as error:
        raise IndexFormatError(name, None, f"damaged columns: {error}") from error
    end = np.uint64(header.shard_bytes)
    offsets = columns.sample_offsets
    if np.any(offsets[1:] <= offsets[:-1]):
        raise IndexFormatError(name, None, "the offsets of samples do not ascend")
    if len(offsets) and offsets[-1] >= end:
        raise IndexFormatError(name, None, f"a sample starts at {offsets[-1]}, behind the shard's end at {end}")
    outside = (columns.member_offsets > end) | (columns.sizes > end - np.minimum(columns.member_offsets, end))
    if np.any(outside):
        place = int(np.argmax(outside))
        where = f"{columns.member_offsets[place]} + {columns.sizes[place]}"
        raise IndexFormatError(name, None, f"member {place} lies at {where} bytes, outside the shard's {end}")
    num_extensions = len(columns.dictionary_offsets) - 1
    counts = np.diff(columns.first_member)
    pairs = np.repeat(np.arange(len(counts), dtype=np.int64) * num_extensions, counts) + columns.codes
    pairs.sort()
    if np.any(pairs[1:] == pairs[:-1]):
        place = int(pairs[np.argmax(pairs[1:] == pairs[:-1])]) // num_extensions
        raise IndexFormatError(name, None, f"sample {place} has an extension twice")


def _read_columns(source: "pa.Buffer", name: str) -> tuple[IndexHeader, IndexColumns]:
    if source.size == 0:
        raise IndexFormatError(name, None, "the file is empty")
    reader = pa.ipc.open_file(pa.BufferReader(source))
    schema = reader.schema
    header = IndexHeader.from_metadata(schema.metadata, name=name)
    is_key_text, is_extension_text, is_size_small = _form_of(schema, name)
    if reader.num_record_batches != 1:
        raise IndexFormatError(name, None, f"{reader.num_record_batches} record batches instead of one")
    batch = reader.get_batch(0)
    batch.validate()
    num_samples = batch.num_rows
    key, offset, members = batch.columns
    items = members.values
    num_members = len(items)
    dictionary = items.field(0).dictionary
    views = _Views(source, name)
    views.refuse_nulls(key, offset, members, dictionary)
    _, key_offsets, key_bytes = key.buffers()
    _, first_member, _, _, codes, _, member_offsets, _, sizes, _, crcs = members.buffers()
    _, dictionary_offsets, dictionary_bytes = dictionary.buffers()
    columns = IndexColumns(
        batch=batch,
        is_key_text=is_key_text,
        is_extension_text=is_extension_text,
        key_offsets=views.offsets(key_offsets, num_samples),
        key_bytes=views.raw(key_bytes),
        sample_offsets=views.array(offset.buffers()[1], np.uint64, num_samples),
        first_member=views.offsets(first_member, num_samples),
        codes=views.array(codes, np.int32, num_members),
        member_offsets=views.array(member_offsets, np.uint64, num_members),
        sizes=views.array(sizes, np.uint32 if is_size_small else np.uint64, num_members),
        crcs=views.array(crcs, np.uint32, num_members),
        dictionary_offsets=views.offsets(dictionary_offsets, len(dictionary)),
        dictionary_bytes=views.raw(dictionary_bytes),
    )
    if columns.first_member[0] != 0 or columns.first_member[-1] != num_members:
        raise IndexFormatError(name, None, "samples and members do not fit together")
    for text, data in (
        (columns.key_offsets, columns.key_bytes),
        (columns.dictionary_offsets, columns.dictionary_bytes),
    ):
        if text[0] != 0 or text[-1] > len(data):
            raise IndexFormatError(name, None, "a text column lies outside its bytes")
    return header, columns


def _form_of(schema: "pa.Schema", name: str) -> tuple[bool, bool, bool]:
    """Which of the schema's forms this is: text keys, text extensions, small sizes."""
    for is_key_text in (True, False):
        for is_extension_text in (True, False):
            for is_size_small in (True, False):
                form = index_schema(
                    is_key_text=is_key_text, is_extension_text=is_extension_text, is_size_small=is_size_small
                )
                if schema.equals(form, check_metadata=False):
                    return is_key_text, is_extension_text, is_size_small
    raise IndexFormatError(name, None, "the columns are not those of a shard index")


class _Views:
    """Makes views of buffers, after checking that they lie in the file: nothing was decompressed, swapped or copied."""

    def __init__(self, source: "pa.Buffer", name: str) -> None:
        self._start = source.address
        self._end = source.address + source.size
        self._name = name

    def refuse_nulls(self, *arrays: "pa.Array") -> None:
        """Raise unless no array, nor any array below it, has nulls."""
        for array in arrays:
            buffers = array.buffers()
            if array.offset != 0 or any(bitmap is not None for bitmap in _bitmaps(array.type, buffers)):
                raise IndexFormatError(self._name, None, "a column has nulls")

    def raw(self, buffer: "pa.Buffer | None") -> memoryview:
        """All bytes of a buffer."""
        if buffer is None or buffer.size == 0:
            return memoryview(b"")
        if not self._start <= buffer.address <= buffer.address + buffer.size <= self._end:
            raise IndexFormatError(self._name, None, "a column does not lie in the file as it is (compressed?)")
        return memoryview(buffer).cast("B")

    def array(self, buffer: "pa.Buffer | None", dtype: Any, count: int) -> npt.NDArray[Any]:
        """The first ``count`` numbers of a buffer."""
        view = self.raw(buffer)
        if len(view) < count * np.dtype(dtype).itemsize:
            raise IndexFormatError(self._name, None, "a column is shorter than the number of its rows")
        return np.frombuffer(view, dtype=dtype, count=count) if count else np.zeros(0, dtype)

    def offsets(self, buffer: "pa.Buffer | None", count: int) -> Int32s:
        """The ``count + 1`` offsets of a list or text column; one that is empty may lack its buffer."""
        if count == 0:
            return np.zeros(1, np.int32)
        return self.array(buffer, np.int32, count + 1)


def _bitmaps(arrow_type: "pa.DataType", buffers: "list[pa.Buffer | None]") -> "list[pa.Buffer | None]":
    """The validity bitmaps among the buffers of one of our columns."""
    if pa.types.is_list(arrow_type):  # list, struct, and four fields
        return [buffers[place] for place in (0, 2, 3, 5, 7, 9)]
    return buffers[:1]
