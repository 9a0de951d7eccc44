"""The growing shard: two buffers, one being filled while the other is hashed and written in a thread."""

import mmap
from concurrent.futures import Future, ThreadPoolExecutor

from packer.stores.base import ALIGNMENT_BYTES, GrowingFile
from shards.digests import BlockDigests, BlockHasher

BUFFER_BYTES = 16 * 1024 * 1024
"""Two blocks of the format. Bigger buffers do not write quicker, and all of it is touched once per batch."""


class ShardSink:
    """Takes a shard's bytes in order, through a buffer; :meth:`close` ends its thread.

    One sink serves one shard after another: :meth:`begin`, then fill :attr:`view` and :meth:`flush` it as often as
    needed, then :meth:`finish`.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._buffer_bytes = buffer_bytes
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # such a map begins at a page
        self._buffers = [memoryview(mmap.mmap(-1, buffer_bytes + ALIGNMENT_BYTES, flags)) for _ in range(2)]
        self._carried = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shard-sink")
        self._pending: Future[None] | None = None
        self._file: GrowingFile | None = None
        self._hasher = BlockHasher()
        self.offset = 0
        """Offset in the shard of the first byte of :attr:`view`."""

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    @property
    def view(self) -> memoryview:
        """The buffer to fill. It holds old bytes; all that is flushed must have been written."""
        return self._buffers[0][self._carried : self._carried + self._buffer_bytes]

    def begin(self, file: GrowingFile) -> None:
        """Start a shard."""
        self.abandon()
        self._file = file
        self._hasher = BlockHasher()
        self._carried = 0
        self.offset = 0

    def flush(self, num_bytes: int) -> None:
        """Hand the first bytes of the view over to be hashed and written, and go on with the other buffer.

        Bytes after the last multiple of :data:`packer.stores.base.ALIGNMENT_BYTES` are hashed now, and move to the
        other buffer to be written with it.

        Raises:
            OSError: an earlier buffer could not be written.
        """
        self._wait()
        if self._file is None:
            raise ValueError("begin() comes first")
        full, other = self._buffers
        end = self._carried + num_bytes
        kept = end % ALIGNMENT_BYTES
        other[:kept] = full[end - kept : end]
        self._pending = self._thread.submit(
            _put, self._file, self._hasher, full[: end - kept], full[self._carried : end]
        )
        self._carried = kept
        self._buffers.reverse()
        self.offset += num_bytes

    def finish(self) -> BlockDigests:
        """Wait until all is written, and give the digests of the blocks."""
        self._wait()
        if self._file is not None and self._carried:
            self._file.write(self._buffers[0][: self._carried])
            self._carried = 0
        return self._hasher.finish()

    def abandon(self) -> None:
        """Wait for the thread and forget what it did; after an error, before the file is closed."""
        if self._pending is not None:
            self._pending.exception()
            self._pending = None

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def _put(file: GrowingFile, hasher: BlockHasher, aligned: memoryview, new: memoryview) -> None:
    if aligned:
        file.write(aligned)
    hasher.update(new)
