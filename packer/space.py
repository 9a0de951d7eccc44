"""How much a plan's shards and indexes take on disk; pure."""

from packer.plan import PackPlan, PlannedShard

_INDEX_BYTES_PER_SAMPLE = 16
_INDEX_BYTES_PER_MEMBER = 20
_INDEX_FIXED_BYTES = 4096


def shard_space_bytes(plan: PackPlan, shard: PlannedShard) -> int:
    """Bytes of one shard and, about, of its index."""
    samples = plan.content.samples
    numbers = plan.order[shard.start : shard.end]
    first_member = samples.first_member
    num_members = sum(first_member[number + 1] - first_member[number] for number in numbers)
    key_bytes = sum(len(samples.keys[number]) for number in numbers)
    index_bytes = _INDEX_BYTES_PER_SAMPLE * len(numbers) + _INDEX_BYTES_PER_MEMBER * num_members + key_bytes
    return shard.size_bytes + _INDEX_FIXED_BYTES + index_bytes


def plan_space_bytes(plan: PackPlan) -> int:
    """Bytes of all shards and, about, of their indexes."""
    return sum(shard_space_bytes(plan, shard) for shard in plan.shards)
