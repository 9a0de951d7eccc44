"""Puts samples in order and cuts them into shards: content → plan; pure.

Rules:
    * The plan depends on source files and options alone, not on Python's hash seed, the number of jobs or a clock.
    * Order: by a seeded hash of the key (shuffled), or by key; see :mod:`packer.windows` for sources that are read in
      big parts. Adding files never changes the relative order of others.
    * Shards are cut by the exact encoded size, end marker included: a shard is never bigger than asked for.
"""

from collections.abc import Callable, Sequence

import numpy as np

from packer.columns import Numbers, TextColumn, number_column
from packer.plan import PackPlan, PlanContent, PlannedShard, PlanOptions
from packer.sample_sizes import measure_samples
from packer.splits import keyed_hashes
from packer.windows import order_in_windows
from shards.errors import OversizeSampleError, SourceError, list_offenders, printable
from shards.formats import ShardFormat
from shards.sample_columns import Int64s

MAX_SHARDS = 10**6
"""In a split; shard names have six digits."""

_SPAN = 65536
"""Keys that are hashed between two checks."""

SizeFunction = Callable[[str, Sequence[tuple[str, int]]], int]
"""(key, [(extension, size_bytes)]) → encoded size; raises ``ValueError`` on what the format cannot hold."""


def plan_shards(
    content: PlanContent, options: PlanOptions, shard_format: ShardFormat, check: Callable[[], None] = lambda: None
) -> PackPlan:
    """Order samples and cut them into shards.

    Args:
        content: what is packed.
        options: how.
        shard_format: of the shards.
        check: called now and then; raises to stop.

    Raises:
        OversizeSampleError: samples that do not fit into a shard.
        SourceError: samples that the format cannot hold, or too many shards.
    """
    sizes, impossible = measure_samples(content, shard_format, check)
    if impossible:
        raise SourceError(
            f"{len(impossible)} sample(s) cannot be stored as {options.format_name}:\n{list_offenders(impossible)}"
        )
    _check_room(content, options, sizes)
    splits = np.asarray(content.splits.numbers)
    orders: list[Numbers] = []
    shards: list[PlannedShard] = []
    for place, name in enumerate(content.splits.names):
        check()
        order = _ordered(np.flatnonzero(splits == place), content, options.shuffle_seed, check)
        shards += _cut_split(name, sum(map(len, orders)), sizes[order], options)
        orders.append(order)
    return PackPlan(content, options, number_column(np.concatenate([*orders, np.zeros(0, np.int64)])), tuple(shards))


def _cut_split(split: str, first: int, sizes: Int64s, options: PlanOptions) -> list[PlannedShard]:
    """Fill shard after shard, in order, as full as they may be.

    Args:
        split: its name.
        first: place in the plan's order of the first sample of the split.
        sizes: of the samples of the split, in order; each fits into a shard.
        options: of the plan.
    """
    room_bytes = options.shard_size_bytes - options.end_marker_bytes
    ends = np.cumsum(sizes)
    shards: list[PlannedShard] = []
    start = filled = 0
    while start < len(sizes):
        if len(shards) >= MAX_SHARDS:
            raise SourceError(f"split {split} needs more than {MAX_SHARDS} shards; give a bigger --shard-size")
        end = int(np.searchsorted(ends, filled + room_bytes, side="right"))
        size_bytes = int(ends[end - 1]) - filled
        name = f"{split}-{len(shards):06d}{options.suffix}"
        shards.append(PlannedShard(split, name, first + start, first + end, size_bytes + options.end_marker_bytes))
        start, filled = end, filled + size_bytes
    return shards


def _check_room(content: PlanContent, options: PlanOptions, sizes: Int64s) -> None:
    """Refuse samples that do not fit into a shard."""
    oversize = np.flatnonzero(sizes > options.shard_size_bytes - options.end_marker_bytes).tolist()
    if oversize:
        offenders = sorted((-int(sizes[number]), content.samples.keys[number]) for number in oversize)
        needed = options.end_marker_bytes - offenders[0][0]
        lines = [f"{printable(key)}: {-size} bytes encoded" for size, key in offenders]
        raise OversizeSampleError(
            f"{len(lines)} sample(s) do not fit into a shard of {options.shard_size_bytes} bytes:\n"
            f"{list_offenders(lines)}\ngive --shard-size {needed} or more"
        )


def _ordered(numbers: Numbers, content: PlanContent, seed: int | None, check: Callable[[], None]) -> Numbers:
    """Order samples, given in key order, by a seeded hash of their keys; hashes that are equal keep the key order."""
    if content.files.batches is not None:
        return np.array(order_in_windows(numbers.tolist(), content.samples, content.files, seed), np.int64)
    if seed is None:
        return numbers
    keys = content.samples.keys
    column = keys if isinstance(keys, TextColumn) else TextColumn(keys)
    hashes = []
    for start in range(0, len(numbers), _SPAN):
        check()
        hashes.append(keyed_hashes(column.take_bytes(numbers[start : start + _SPAN]), seed, purpose=b"shuffle"))
    return numbers[np.argsort(np.frombuffer(b"".join(hashes), "<u8"), kind="stable")]
