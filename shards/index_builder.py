"""Builds the index of one shard, sample by sample; the same samples give the same bytes.

It holds what the file will hold, about 40 bytes a sample with one member plus the key, in growing arrays of machine
numbers, so that adding a sample costs a microsecond or two and building the file is a handful of copies.
"""

from array import array
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from shards.digests import BlockDigests
from shards.index_schema import MAX_ROWS, IndexHeader, index_schema

_UINT32_MAX = 2**32 - 1


class IndexBuilder:
    """Takes samples in shard order, gives the index file."""

    def __init__(self) -> None:
        self._keys = bytearray()
        self._key_ends = array("q", [0])
        self._sample_offsets = array("Q")
        self._member_ends = array("q", [0])
        self._codes = array("i")
        self._member_offsets = array("Q")
        self._sizes = array("Q")
        self._crcs = array("I")
        self._extensions: dict[str, int] = {}
        self._is_key_text = True

    @property
    def num_samples(self) -> int:
        """Samples added so far."""
        return len(self._sample_offsets)

    def add(self, key: str, offset: int, members: Sequence[tuple[str, int, int, int]]) -> None:
        """Append a sample.

        Args:
            key: the sample's key; bytes that are not UTF-8 as ``surrogateescape`` gives them.
            offset: where the sample starts in the shard; higher than that of the sample before.
            members: (extension, offset of the data in the shard, size in bytes, CRC-32C of the data) of each, in
                shard order, no extension twice.

        Raises:
            ValueError: the key is neither text nor escaped bytes.
            OverflowError: a number is negative or does not fit its column.
        """
        try:
            raw = key.encode()
        except UnicodeEncodeError:
            raw = key.encode("utf-8", "surrogateescape")
            self._is_key_text = False
        self._keys += raw
        self._key_ends.append(len(self._keys))
        self._sample_offsets.append(offset)
        extensions = self._extensions
        for extension, member_offset, size, crc32c in members:
            self._codes.append(extensions.setdefault(extension, len(extensions)))
            self._member_offsets.append(member_offset)
            self._sizes.append(size)
            self._crcs.append(crc32c)
        self._member_ends.append(len(self._codes))

    def finish(self, *, shard_name: str, format_name: str, blocks: BlockDigests) -> bytes:
        """Give the index file.

        Args:
            shard_name: name of the shard in its dataset.
            format_name: ``"tar"`` or ``"tfrecord"``.
            blocks: size and block digests of the finished shard.

        Raises:
            ValueError: more keys or members than one index can hold.
        """
        num_samples, num_members = len(self._sample_offsets), len(self._codes)
        if max(len(self._keys), num_members, num_samples) > MAX_ROWS:
            raise ValueError(
                f"an index holds at most {MAX_ROWS} samples, members and bytes of keys; make smaller shards"
            )
        dictionary, is_extension_text = _encode_extensions(self._extensions)
        sizes = np.frombuffer(self._sizes, np.uint64) if num_members else np.zeros(0, np.uint64)
        is_size_small = num_members == 0 or int(sizes.max()) <= _UINT32_MAX
        schema = index_schema(
            is_key_text=self._is_key_text, is_extension_text=is_extension_text, is_size_small=is_size_small
        )
        item = schema.field("members").type.value_field
        members = pa.StructArray.from_arrays(
            [
                pa.DictionaryArray.from_arrays(_column(self._codes, pa.int32()), dictionary),
                _column(self._member_offsets, pa.uint64()),
                pa.array(sizes.astype(np.uint32) if is_size_small else sizes),
                _column(self._crcs, pa.uint32()),
            ],
            fields=list(item.type),
        )
        header = IndexHeader(shard_name, format_name, blocks.size_bytes, blocks.block_bytes, blocks.digests)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.Array.from_buffers(
                    schema.field("key").type,
                    num_samples,
                    [None, pa.py_buffer(_offsets(self._key_ends)), pa.py_buffer(bytes(self._keys))],
                ),
                _column(self._sample_offsets, pa.uint64()),
                pa.Array.from_buffers(
                    schema.field("members").type,
                    num_samples,
                    [None, pa.py_buffer(_offsets(self._member_ends))],
                    children=[members],
                ),
            ],
            schema=schema.with_metadata(header.to_metadata()),
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue())


def _column(values: "array[int]", arrow_type: "pa.DataType") -> "pa.Array":
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(values)])


def _offsets(ends: "array[int]") -> bytes:
    return np.frombuffer(ends, np.int64).astype(np.int32).tobytes()


def _encode_extensions(extensions: dict[str, int]) -> tuple["pa.Array", bool]:
    """The dictionary of extensions in the order in which they were first seen, and whether all are text."""
    try:
        for extension in extensions:
            extension.encode()
    except UnicodeEncodeError:
        raw = [extension.encode("utf-8", "surrogateescape") for extension in extensions]
        return pa.array(raw, pa.binary()), False
    return pa.array(list(extensions), pa.utf8()), True
