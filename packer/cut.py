"""Puts samples in order and cuts them into shards: content → plan; pure.

Rules:
    * The plan depends on source files and options alone, not on Python's hash seed, the number of jobs or a clock.
    * Order: by a seeded hash of the key (shuffled), or by key; see :mod:`packer.windows` for sources that are read in
      big parts. Adding files never changes the relative order of others.
    * Shards are cut by the exact encoded size, end marker included: a shard is never bigger than asked for.
"""

from array import array
from collections.abc import Callable, Sequence

from packer.plan import PackPlan, PlanContent, PlannedShard, PlanOptions
from packer.splits import keyed_hash
from packer.windows import order_in_windows
from shards.errors import OversizeSampleError, SourceError, list_offenders, printable

MAX_SHARDS = 10**6
"""In a split; shard names have six digits."""

SizeFunction = Callable[[str, Sequence[tuple[str, int]]], int]
"""(key, [(extension, size_bytes)]) → encoded size; raises ``ValueError`` on what the format cannot hold."""


def plan_shards(
    content: PlanContent, options: PlanOptions, sample_size: SizeFunction, check: Callable[[], None] = lambda: None
) -> PackPlan:
    """Order samples and cut them into shards.

    Args:
        content: what is packed.
        options: how.
        sample_size: of the shard format.
        check: called now and then; raises to stop.

    Raises:
        OversizeSampleError: samples that do not fit into a shard.
        SourceError: samples that the format cannot hold, or too many shards.
    """
    by_split = [array("I") for _ in content.splits.names]
    for number, split in enumerate(content.splits.numbers):
        by_split[split].append(number)
    cutter = _Cutter(content, options, sample_size)
    for name, numbers in zip(content.splits.names, by_split, strict=True):
        check()
        cutter.cut_split(name, _ordered(numbers, content, options.shuffle_seed), check)
    cutter.raise_offenders()
    return PackPlan(content, options, cutter.order, tuple(cutter.shards))


class _Cutter:
    """Fills shard after shard, in order, as full as they may be."""

    def __init__(self, content: PlanContent, options: PlanOptions, sample_size: SizeFunction) -> None:
        self.order = array("I")
        self.shards: list[PlannedShard] = []
        self._content = content
        self._options = options
        self._sample_size = sample_size
        self._room_bytes = options.shard_size_bytes - options.end_marker_bytes
        self._oversize: list[tuple[int, str]] = []
        self._impossible: list[str] = []

    def cut_split(self, split: str, numbers: Sequence[int], check: Callable[[], None]) -> None:
        """Cut the samples of one split, given in order."""
        order = self.order
        start, size, count = len(order), 0, 0
        for place, number in enumerate(numbers):
            if place % 4096 == 0:
                check()
            needed = self._encoded_size(number)
            if size and size + needed > self._room_bytes:
                self._close(split, count, start, size)
                start, size, count = len(order), 0, count + 1
            order.append(number)
            size += needed
        if len(order) > start:
            self._close(split, count, start, size)

    def raise_offenders(self) -> None:
        """Raise if any sample could not be placed."""
        if self._impossible:
            raise SourceError(
                f"{len(self._impossible)} sample(s) cannot be stored as {self._options.format_name}:\n"
                f"{list_offenders(self._impossible)}"
            )
        if self._oversize:
            self._oversize.sort(key=lambda offender: (-offender[0], offender[1]))
            needed = self._oversize[0][0] + self._options.end_marker_bytes
            lines = [f"{printable(key)}: {size} bytes encoded" for size, key in self._oversize]
            raise OversizeSampleError(
                f"{len(self._oversize)} sample(s) do not fit into a shard of {self._options.shard_size_bytes} bytes:\n"
                f"{list_offenders(lines)}\ngive --shard-size {needed} or more"
            )

    def _encoded_size(self, number: int) -> int:
        key = self._content.samples.keys[number]
        try:
            size = self._sample_size(key, self._content.members(number))
        except ValueError as error:
            self._impossible.append(f"{printable(key)}: {error}")
            return 0
        if size > self._room_bytes:
            self._oversize.append((size, key))
        return size

    def _close(self, split: str, number: int, start: int, size: int) -> None:
        if number >= MAX_SHARDS:
            raise SourceError(f"split {split} needs more than {MAX_SHARDS} shards; give a bigger --shard-size")
        name = f"{split}-{number:06d}{self._options.suffix}"
        size_bytes = size + self._options.end_marker_bytes
        self.shards.append(PlannedShard(split, name, start, len(self.order), size_bytes))


def _ordered(numbers: "array[int]", content: PlanContent, seed: int | None) -> Sequence[int]:
    """Order samples, given in key order, by a seeded hash of their keys; hashes that are equal keep the key order."""
    keys = content.samples.keys
    if content.files.batches is not None:
        return order_in_windows(numbers, content.samples, content.files, seed)
    if seed is None:
        return numbers
    hashes = array("Q", (keyed_hash(keys[number], seed, purpose=b"shuffle") for number in numbers))
    return array("I", map(numbers.__getitem__, sorted(range(len(numbers)), key=hashes.__getitem__)))
