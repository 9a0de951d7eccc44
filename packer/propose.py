"""How many shards of which size suit a training cluster; pure.

The rule, for readers that give whole shards to workers (WebDataset, tf.data by file, Energon):

1. Every worker of every GPU gets the same number of shards: the count is a multiple of all workers.
2. :data:`SHARDS_PER_WORKER` shards for each, so that an epoch's order of shards differs from the last one's.
3. More when shards would be bigger than :data:`MOST_BYTES`: a shard is what is staged, verified and repeated after a
   fault in one piece. Fewer, down to one for each, when they would be smaller than :data:`LEAST_BYTES`: small files are
   what packing is to cure.

The size is the smallest that cuts the samples of the biggest split, in their planned order, into that many shards. The
random access of ``loaders`` needs none of this: it splits by sample, whatever the shards are.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from packer.cut import SizeFunction
from packer.plan import PackPlan

SHARDS_PER_WORKER = 4
LEAST_BYTES = 32 * 1024**2
MOST_BYTES = 1024**3
SIZE_STEP_BYTES = 4096
"""Proposed sizes are multiples of this: easier to read, and the least that ``--shard-size`` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What will read the shards at once."""

    num_nodes: int
    num_gpus: int
    """In each node."""
    num_workers: int
    """Loader workers of each GPU."""

    @property
    def num_readers(self) -> int:
        """Loader workers in all."""
        return self.num_nodes * self.num_gpus * self.num_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Shards that suit a cluster."""

    cluster: Cluster
    split: str
    num_shards: int
    """That :attr:`shard_size_bytes` gives for this split."""
    shard_size_bytes: int
    """For ``--shard-size``."""
    is_even: bool
    """Whether every worker gets the same number of shards, at least one."""


def propose_shards(plan: PackPlan, cluster: Cluster, sample_size: SizeFunction) -> Proposal:
    """Propose shards for the biggest split of a plan.

    Args:
        plan: of the dataset; its order stays the same whatever the size of shards.
        cluster: that will read it.
        sample_size: of the plan's format.
    """
    by_split: dict[str, int] = {}
    for shard in plan.shards:
        by_split[shard.split] = by_split.get(shard.split, 0) + shard.num_samples
    split = max(by_split, key=by_split.__getitem__)
    spans = [shard for shard in plan.shards if shard.split == split]
    content = plan.content
    sizes = [
        sample_size(content.samples.keys[number], content.members(number))
        for number in plan.order[spans[0].start : spans[-1].end]
    ]
    wanted = wanted_count(sum(sizes), len(sizes), cluster.num_readers)
    room_bytes, num_shards = fit_count(sizes, wanted, plan.options.end_marker_bytes)
    return Proposal(
        cluster=cluster,
        split=split,
        num_shards=num_shards,
        shard_size_bytes=room_bytes,
        is_even=num_shards >= cluster.num_readers and num_shards % cluster.num_readers == 0,
    )


def wanted_count(size_bytes: int, num_samples: int, num_readers: int) -> int:
    """How many shards a split should have, by the rule of this module; never more than samples."""
    least = math.ceil(size_bytes / MOST_BYTES)
    per_reader = max(SHARDS_PER_WORKER, math.ceil(least / num_readers))
    if per_reader == SHARDS_PER_WORKER:
        per_reader = min(per_reader, max(size_bytes // LEAST_BYTES // num_readers, 1))
        per_reader = max(per_reader, math.ceil(least / num_readers))
    return max(min(per_reader * num_readers, num_samples), 1)


def fit_count(sizes: Sequence[int], wanted: int, end_marker_bytes: int) -> tuple[int, int]:
    """Find the smallest shard size that gives at most the wanted number of shards.

    Args:
        sizes: encoded samples in order, bytes.
        wanted: number of shards, at least 1.
        end_marker_bytes: that close a shard.

    Returns:
        (shard size in bytes, the number of shards that it gives).
    """
    ends = list(accumulate(sizes))
    low = -(-(max(sizes) + end_marker_bytes) // SIZE_STEP_BYTES)
    high = -(-(ends[-1] + end_marker_bytes) // SIZE_STEP_BYTES)
    while low < high:
        middle = (low + high) // 2
        if count_shards(ends, middle * SIZE_STEP_BYTES - end_marker_bytes) <= wanted:
            high = middle
        else:
            low = middle + 1
    return low * SIZE_STEP_BYTES, count_shards(ends, low * SIZE_STEP_BYTES - end_marker_bytes)


def count_shards(ends: Sequence[int], room_bytes: int) -> int:
    """Count the shards that samples fill when each is filled before the next is begun.

    Args:
        ends: running sum of the samples' sizes.
        room_bytes: of a shard; no sample is bigger.
    """
    count = place = start = 0
    while place < len(ends):
        place = bisect_right(ends, start + room_bytes, lo=place)
        start = ends[place - 1]
        count += 1
    return count


def explain_rule(proposal: Proposal) -> Iterable[str]:
    """Say in sentences what the proposal stands on."""
    cluster = proposal.cluster
    readers = cluster.num_readers
    yield (
        f"{cluster.num_nodes} nodes x {cluster.num_gpus} GPUs x {cluster.num_workers} workers read {readers} shards at "
        f"once when each worker reads its own; {SHARDS_PER_WORKER} for each mix well, between "
        f"{LEAST_BYTES // 1024**2} MiB and {MOST_BYTES // 1024**3} GiB each."
    )
    if proposal.is_even:
        yield f"Here: {proposal.num_shards // readers} for each."
    else:
        yield (
            f"{proposal.num_shards} shards cannot be shared evenly by {readers} workers: use fewer workers, or a "
            "loader that splits by sample, such as loaders.pytorch."
        )
