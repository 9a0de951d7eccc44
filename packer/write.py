"""Writes one shard and its index from its plan: the only writer, for every format.

Samples are laid out in a buffer by the format's ``layout_sample``; their literal bytes are put in place, the holes are
read from the source files, sums are filled in, and the buffer goes to the sink in one piece. While threads read, the
next buffer is laid out and begun, so that a slow server always has something to do. A sample that is bigger than the
buffer passes through it in pieces.

Commit: the index gets its final name first, the shard second. So a shard under its final name always has its index, and
the shard's own name is what says "done"; an index alone is a leftover that the next run replaces.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Self

from packer.fill import Filling, HoleFiller
from packer.plan import ShardPlan
from packer.sink import ShardSink
from packer.sources.files import INLINE
from packer.sources.origin import Origin
from packer.stores.open import open_store
from packer.stream import stream_sample
from packer.transform import Transformed, account
from packer.transforming import transform_pieces
from shards.digests import crc32c, hash_bytes, mask_crc
from shards.errors import SizeMismatchError
from shards.formats import ShardFormat, find_format
from shards.index import IndexBuilder
from shards.index_schema import index_name
from shards.layout import SampleLayout

ReportProgress = Callable[[int, int], None]
"""Called with (samples, bytes) that were added since the last call. May raise to stop the work cleanly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResult:
    """A shard that lies under its final name."""

    name: str
    size_bytes: int
    digest: str
    num_samples: int
    index_size_bytes: int
    index_digest: str
    is_kept: bool = False
    """Whether it was there already."""
    transformed: Transformed | None = None
    """What a transform made of the planned samples. If nothing, there is no shard, and all sizes are 0."""


_Placed = tuple[int, SampleLayout, int, int]
"""(number of the sample, its layout, its offset in the buffer, number of its first member)."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A batch whose members are being read."""

    plan: ShardPlan
    batch: list[_Placed]
    index: IndexBuilder
    start: int
    """Of the batch in the shard."""
    view: memoryview
    filling: Filling


_Output = tuple[str, list[tuple[str, int]]]
"""(key, [(extension, size in bytes)]) of a transformed sample."""


class ShardWriter:
    """Writes shard after shard with the same buffers and threads; a context manager.

    Args:
        origin: where the members' bytes lie.
        read_threads: fixed number of reading threads; None measures.
        report: called once per buffer.
        sink: only tests need another than the default.
    """

    def __init__(
        self, origin: Origin, read_threads: int | None, report: ReportProgress, sink: ShardSink | None = None
    ) -> None:
        self._reader = origin.open_reader()
        self._filler = HoleFiller(self._reader, read_threads)
        self._sink = ShardSink() if sink is None else sink
        self._report = report
        self._begun: deque[_Begun] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._filler.close()
        self._reader.close()
        self._sink.close()

    def write(self, plan: ShardPlan, directory: str) -> ShardResult:
        """Write a shard and its index under their final names.

        Args:
            plan: of the shard.
            directory: of the dataset, or its URL.

        Raises:
            SourceChangedError: a source file is not as planned.
            SourceError: a source file cannot be read.
            OSError, RemoteError: the shard cannot be written. As after every error, its partial is gone.
        """
        store = open_store(directory)
        shard_format = find_format(plan.format_name, where=plan.name)
        index = IndexBuilder()
        outputs: list[_Output] = []
        with store.create(plan.name, plan.size_bytes) as file:
            self._sink.begin(file)
            try:
                for piece in self._pieces_of(plan):
                    for batch in _batches(piece, shard_format, self._sink.buffer_bytes):
                        self._write_batch(piece, batch, index)
                    if plan.transform is not None:
                        outputs += _list_outputs(piece)
                self._end_batches(0)
                marker = shard_format.end_marker
                self._sink.reserve(len(marker))[:] = marker
                self._sink.flush()
                self._report(0, len(marker))
                blocks = self._sink.finish()
            finally:
                while self._begun:
                    self._begun.popleft().filling.abandon()
                self._sink.abandon()
            transformed = None if plan.transform is None else account(plan.keys, iter(outputs))
            if transformed is not None and not outputs:
                return _nothing(plan, transformed)
            if transformed is None and blocks.size_bytes != plan.size_bytes:
                raise SizeMismatchError(plan.name, plan.size_bytes, blocks.size_bytes, "nothing was committed")
            index_bytes = index.finish(shard_name=plan.name, format_name=plan.format_name, blocks=blocks)
            store.put(index_name(plan.name), index_bytes)
            file.commit(blocks.size_bytes)
        return ShardResult(
            name=plan.name,
            size_bytes=blocks.size_bytes,
            digest=blocks.shard_digest,
            num_samples=len(plan.keys) if transformed is None else len(outputs),
            index_size_bytes=len(index_bytes),
            index_digest=hash_bytes(index_bytes),
            transformed=transformed,
        )

    def _pieces_of(self, plan: ShardPlan) -> Iterator[ShardPlan]:
        return iter((plan,)) if plan.transform is None else transform_pieces(plan, self._filler)

    def _write_batch(self, plan: ShardPlan, batch: list[_Placed], index: IndexBuilder) -> None:
        """Begin a batch, and end the one before; without threads that read ahead, end this one too."""
        number, layout, _, first = batch[0]
        if layout.size > self._sink.buffer_bytes:
            self._end_batches(0)
            self._stream_sample(plan, number, layout, first, index)
            return
        _, last, base, _ = batch[-1]
        start = self._sink.offset
        view = self._sink.reserve(base + last.size)
        holes = []
        for _, layout, base, first in batch:
            for offset, literal in layout.literals:
                place = base + offset
                view[place : place + len(literal)] = literal
            for member, (offset, _) in enumerate(layout.holes, first):
                holes.append((member, base + offset))
        self._begun.append(_Begun(plan, batch, index, start, view, self._filler.begin(plan, holes, view)))
        self._end_batches(1 if self._filler.uses_threads else 0)

    def _end_batches(self, num_left: int) -> None:
        """Finish what was begun and hand it to the sink, all but the last batches."""
        while len(self._begun) > num_left:
            begun = self._begun[0]
            crcs = self._filler.finish(begun.filling)
            self._begun.popleft()
            _index_batch(begun, crcs)
            self._sink.flush()
            self._report(len(begun.batch), len(begun.view))

    def _stream_sample(
        self, plan: ShardPlan, number: int, layout: SampleLayout, first: int, index: IndexBuilder
    ) -> None:
        """Write a sample that is bigger than the buffer."""
        origin = self._sink.offset
        crcs = stream_sample(
            self._sink, layout, [self._pieces(plan, first + place) for place in range(len(layout.holes))], self._report
        )
        members = [
            (plan.extensions[first + place], origin + offset, size, crcs[place])
            for place, (offset, size) in enumerate(layout.holes)
        ]
        index.add(plan.keys[number], origin, members)
        self._report(1, 0)

    def _pieces(self, plan: ShardPlan, member: int) -> Iterator[bytes]:
        if plan.stamps[member] == INLINE:
            return iter((plan.sources[member],))
        return self._reader.pieces(plan.sources[member], plan.sizes[member], plan.stamps[member])


def _index_batch(begun: _Begun, crcs: list[int]) -> None:
    """Fill in sums that cover whole records, and add the samples to the index."""
    view, start = begun.view, begun.start
    keys, extensions = begun.plan.keys, begun.plan.extensions
    crc_of = iter(crcs)
    for number, layout, base, first in begun.batch:
        if layout.checksum is not None:
            end = base + layout.checksum.end
            view[end : end + 4] = mask_crc(crc32c(view[base + layout.checksum.start : end])).to_bytes(4, "little")
        origin = start + base
        members = [
            (extensions[member], origin + offset, size, next(crc_of))
            for member, (offset, size) in enumerate(layout.holes, first)
        ]
        begun.index.add(keys[number], origin, members)


def _nothing(plan: ShardPlan, transformed: Transformed) -> ShardResult:
    return ShardResult(
        name=plan.name,
        size_bytes=0,
        digest="",
        num_samples=0,
        index_size_bytes=0,
        index_digest="",
        transformed=transformed,
    )


def _list_outputs(piece: ShardPlan) -> Iterator[_Output]:
    members = iter(zip(piece.extensions, piece.sizes, strict=True))
    for key, count in zip(piece.keys, piece.num_members, strict=True):
        yield key, list(islice(members, count))


def _batches(plan: ShardPlan, shard_format: ShardFormat, buffer_bytes: int) -> Iterator[list[_Placed]]:
    """Lay samples out one behind the other, as many as the buffer holds; one that it cannot hold comes alone."""
    batch: list[_Placed] = []
    used = first = 0
    extensions, sizes, layout_sample = plan.extensions, plan.sizes, shard_format.layout_sample
    for number, (key, count) in enumerate(zip(plan.keys, plan.num_members, strict=True)):
        end = first + count
        layout = layout_sample(key, list(zip(extensions[first:end], sizes[first:end], strict=True)))
        if batch and used + layout.size > buffer_bytes:
            yield batch
            batch, used = [], 0
        batch.append((number, layout, used, first))
        used += layout.size
        first = end
    if batch:
        yield batch
