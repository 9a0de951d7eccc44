"""The growing shard: buffers that are filled, one or two at a time, while another is hashed and written in a thread."""

import contextlib
import mmap
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from packer.stores.base import ALIGNMENT_BYTES, GrowingFile
from shards.digests import BlockDigests, BlockHasher

BUFFER_BYTES = 16 * 1024 * 1024
"""Two blocks of the format. Bigger buffers do not write quicker, and all of it is touched once per batch."""

NUM_BUFFERS = 3
"""One is written, one is being filled, and the next may be begun, which keeps a slow server busy. The third takes no
memory as long as nobody begins two."""


@dataclass(frozen=True, slots=True)
class _Reserved:
    """A place in the shard, and in a buffer, for bytes to come."""

    buffer: memoryview
    start: int
    """Where in the buffer. What comes before is left for the end of the buffer before."""
    end: int


class ShardSink:
    """Takes a shard's bytes in order, through buffers; :meth:`close` ends its thread.

    One sink serves one shard after another: :meth:`begin`, then :meth:`reserve` some bytes, fill them and :meth:`flush`
    them, as often as needed, then :meth:`finish`. Two reservations may be open; they are flushed in their order.

    Args:
        buffer_bytes: most that can be reserved at once.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        self.buffer_bytes = buffer_bytes
        self._free = [_make_buffer(buffer_bytes + ALIGNMENT_BYTES) for _ in range(NUM_BUFFERS)]
        self._reserved: deque[_Reserved] = deque()
        self._rest = b""
        """Of the bytes that were flushed, those after the last multiple of :data:`ALIGNMENT_BYTES`."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shard-sink")
        self._pending: tuple[Future[None], memoryview] | None = None
        self._file: GrowingFile | None = None
        self._hasher = BlockHasher()
        self.offset = 0
        """Offset in the shard of the byte that is reserved next."""

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def begin(self, file: GrowingFile) -> None:
        """Start a shard."""
        self.abandon()
        self._file = file
        self._hasher = BlockHasher()
        self._rest = b""
        self.offset = 0

    def reserve(self, num_bytes: int) -> memoryview:
        """Give the place for the next bytes of the shard. It holds old bytes; all of them must be written.

        Raises:
            OSError: an earlier buffer could not be written.
        """
        if num_bytes > self.buffer_bytes:
            raise ValueError(f"{num_bytes} bytes are more than a buffer of {self.buffer_bytes}")
        if not self._free:
            self._wait()
        place = _Reserved(self._free.pop(), start := self.offset % ALIGNMENT_BYTES, start + num_bytes)
        self._reserved.append(place)
        self.offset += num_bytes
        return place.buffer[place.start : place.end]

    def flush(self) -> None:
        """Hand the oldest reservation, which was filled, over to be hashed and written.

        Bytes after the last multiple of :data:`packer.stores.base.ALIGNMENT_BYTES` are hashed now and written with
        the next ones.

        Raises:
            OSError: an earlier buffer could not be written.
        """
        self._wait()
        if self._file is None:
            raise ValueError("begin() comes first")
        place = self._reserved.popleft()
        buffer, end = place.buffer, place.end
        buffer[: place.start] = self._rest
        kept = end % ALIGNMENT_BYTES
        self._rest = bytes(buffer[end - kept : end])
        written = self._thread.submit(_put, self._file, self._hasher, buffer[: end - kept], buffer[place.start : end])
        self._pending = written, buffer

    def finish(self) -> BlockDigests:
        """Wait until all is written, and give the digests of the blocks."""
        self._wait()
        if self._file is not None and self._rest:
            self._file.write(self._rest)
            self._rest = b""
        return self._hasher.finish()

    def abandon(self) -> None:
        """Wait for the thread and forget what it did; after an error, before the file is closed.

        Nobody may write into what was reserved any more.
        """
        if self._pending is not None:
            written, buffer = self._pending
            written.exception()
            self._free.append(buffer)
            self._pending = None
        self._free += [place.buffer for place in self._reserved]
        self._reserved.clear()

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            written, buffer = pending
            self._free.append(buffer)
            written.result()


def _make_buffer(num_bytes: int) -> memoryview:
    """Memory that begins at a page, a huge one if there are any.

    A device takes a request of some hundred pieces at most: 1 MiB of small pages. With huge pages direct writes went
    from 1.6 to 2.6 GB/s.
    """
    buffer = mmap.mmap(-1, num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        buffer.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(buffer)


def _put(file: GrowingFile, hasher: BlockHasher, aligned: memoryview, new: memoryview) -> None:
    if aligned:
        file.write(aligned)
    hasher.update(new)
