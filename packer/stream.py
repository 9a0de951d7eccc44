"""Writes a sample that is bigger than the buffer: the same bytes as in one piece, passed through in pieces."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from packer.sink import ShardSink
from shards.digests import crc32c, mask_crc
from shards.layout import SampleLayout


def stream_sample(
    sink: ShardSink, layout: SampleLayout, members: Sequence[Iterable[bytes]], report: Callable[[int, int], None]
) -> list[int]:
    """Write one sample piece by piece.

    Args:
        sink: takes the bytes; nothing is reserved before and after.
        layout: of the sample.
        members: the data of each member in pieces, as many bytes as its hole is long.
        report: called with (0, bytes) for each buffer.

    Returns:
        CRC-32C of each member.
    """
    stream = _Stream(sink, layout, report)
    crcs = [0] * len(members)
    # literals before holes at the same offset: only a hole of no bytes shares its offset
    parts = sorted(
        [(offset, 0, literal, 0) for offset, literal in layout.literals]
        + [(offset, 1, b"", place) for place, (offset, _) in enumerate(layout.holes)]
    )
    for _, is_hole, literal, place in parts:
        if not is_hole:
            stream.put(literal)
            continue
        for piece in members[place]:
            stream.put(piece)
            crcs[place] = crc32c(piece, crcs[place])
    stream.finish()
    return crcs


class _Stream:
    """Copies pieces into what it reserves of the sink, flushes what is full, and inserts the sum where it belongs."""

    def __init__(self, sink: ShardSink, layout: SampleLayout, report: Callable[[int, int], None]) -> None:
        self._sink = sink
        self._checksum = layout.checksum
        self._report = report
        self._position = 0
        self._left = layout.size
        """Bytes of the sample that are not reserved yet."""
        self._room = memoryview(b"")
        self._used = 0
        self._crc = 0

    def put(self, data: bytes) -> None:
        """Take the next bytes of the sample."""
        for piece in self._with_sum(data):
            start = 0
            while start < len(piece):
                if self._used == len(self._room):
                    self._flush()
                if not self._room:
                    raise ValueError("there are more bytes than the layout has room for")
                part = piece[start : start + len(self._room) - self._used]
                self._room[self._used : self._used + len(part)] = part
                self._used += len(part)
                start += len(part)

    def finish(self) -> None:
        """Hand over what is left."""
        self.put(b"")
        self._flush()

    def _flush(self) -> None:
        """Hand over what was reserved, and reserve the next bytes of the sample."""
        if self._used:
            self._sink.flush()
            self._report(0, self._used)
        self._room = self._sink.reserve(min(self._left, self._sink.buffer_bytes)) if self._left else memoryview(b"")
        self._left -= len(self._room)
        self._used = 0

    def _with_sum(self, data: bytes) -> Iterator[bytes]:
        """The data, with the sum where the covered range ends. That is always at the end of a part of the layout."""
        checksum = self._checksum
        start = self._position
        self._position += len(data)
        if checksum is None:
            yield data
            return
        if self._position > checksum.start and start < checksum.end:
            covered = data[max(checksum.start - start, 0) : checksum.end - start]
            self._crc = crc32c(covered, self._crc)
        yield data
        if self._position == checksum.end:
            self._checksum = None
            self._position += 4
            yield mask_crc(self._crc).to_bytes(4, "little")
