"""Random access to compressed archives for readers that go forward on the whole: streams, and the last chunks of them.

The packer orders samples so that those of a shard lie close together (:mod:`packer.windows`). So a process streams each
archive once, and keeps what two windows need. A read from further back starts a stream anew: slow, never wrong.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from packer.sources.files import WINDOW_BYTES
from shards.compression import open_decoded
from shards.errors import FormatError, TarFormatError
from shards.tar.header import is_header

CHUNK_BYTES = 4 * 1024 * 1024
"""What is decompressed and kept at a time."""

_KEPT_CHUNKS = 2 * (WINDOW_BYTES // CHUNK_BYTES) + 2
_KEPT_STREAMS = _KEPT_CHUNKS
"""Two windows of archives that are no bigger than a chunk."""


class ChunkedStreams:
    """The decompressed bytes of some archives. Safe to use from several threads."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.num_starts = 0
        """How often a stream was begun."""
        self._paths = paths
        self._lock = threading.Lock()
        self._chunks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._streams: OrderedDict[int, tuple[int, Iterator[bytes]]] = OrderedDict()
        """Archive → (number of the next chunk, the rest of the chunks)."""

    def read_at(self, archive: int, offset: int, size: int) -> bytes:
        """Give the bytes at an offset of an archive; fewer only at its end.

        Raises:
            FormatError: the compressed stream is damaged.
            OSError: the archive cannot be read.
        """
        first, last = offset // CHUNK_BYTES, (offset + max(size, 1) - 1) // CHUNK_BYTES
        with self._lock:
            data = b"".join(self._chunk(archive, number) for number in range(first, last + 1))
        start = offset - first * CHUNK_BYTES
        return data[start : start + size]

    def _chunk(self, archive: int, number: int) -> bytes:
        found = self._chunks.get((archive, number))
        if found is not None:
            self._chunks.move_to_end((archive, number))
            return found
        here, stream = self._streams.pop(archive, (number + 1, iter(())))
        if here > number:
            here, stream = 0, self._decompress(self._paths[archive])
            self.num_starts += 1
        while True:
            chunk = next(stream, b"")
            self._chunks[archive, here] = chunk
            if len(self._chunks) > _KEPT_CHUNKS:
                self._chunks.popitem(last=False)
            here += 1
            if here > number:
                break
            if not chunk:
                raise FormatError(self._paths[archive], None, "it ends before the members that were planned")
        self._streams[archive] = (here, stream)
        if len(self._streams) > _KEPT_STREAMS:
            self._streams.popitem(last=False)
        return chunk

    def _decompress(self, path: str) -> Iterator[bytes]:
        with open(path, "rb") as file:
            stream = open_decoded(file, path, TarFormatError, is_plain=is_header)
            while chunk := stream.read_exactly(CHUNK_BYTES):
                yield chunk
