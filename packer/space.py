"""How much a plan's shards and indexes take on disk; pure."""

import numpy as np

from packer.columns import TextColumn
from packer.plan import PackPlan, PlannedShard

_INDEX_BYTES_PER_SAMPLE = 16
_INDEX_BYTES_PER_MEMBER = 20
_INDEX_FIXED_BYTES = 4096


def shard_space_bytes(plan: PackPlan, shard: PlannedShard) -> int:
    """Bytes of one shard and, about, of its index."""
    keys = plan.content.samples.keys
    numbers = plan.sample_numbers(shard)
    counts, _ = plan.member_places(numbers)
    if isinstance(keys, TextColumn):
        key_bytes = int(np.diff(keys.bounds)[numbers].sum())
    else:
        key_bytes = sum(len(keys[number]) for number in numbers.tolist())
    index_bytes = _INDEX_BYTES_PER_SAMPLE * len(numbers) + _INDEX_BYTES_PER_MEMBER * int(counts.sum()) + key_bytes
    return shard.size_bytes + _INDEX_FIXED_BYTES + index_bytes


def plan_space_bytes(plan: PackPlan) -> int:
    """Bytes of all shards and, about, of their indexes."""
    return sum(shard_space_bytes(plan, shard) for shard in plan.shards)
