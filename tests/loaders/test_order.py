"""Ranks share an epoch: each sample exactly once, equal steps, and a restart on any other topology goes on exactly."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.order import DatasetOrder, NodeSplit, RankEpoch, Topology, mixing_quality
from shards.epoch_order import OrderSpec
from shards.errors import LoadError


def order_of(shard_samples, nodes=None, **spec):
    names = tuple(f"train-{number:06d}.tar" for number in range(len(shard_samples)))
    return DatasetOrder(
        shard_names=names,
        shard_samples=tuple(shard_samples),
        spec=OrderSpec(**spec),
        nodes=nodes and NodeSplit(**nodes),
    )


def read_steps(order, epoch, start, world_size, uneven, batch, max_steps=None):
    """What all ranks read from a position on: the numbers, the steps of each rank, and the position after them."""
    seen, steps, positions = [], [], set()
    for rank in range(world_size):
        plan = RankEpoch(order, epoch, Topology(rank=rank, world_size=world_size), uneven)
        mine = plan.positions(start)
        batches = [mine[first : first + batch] for first in range(0, len(mine), batch)][:max_steps]
        seen += [number for some in batches for number in plan.numbers(some)]
        steps.append([len(some) for some in batches])
        positions.add(plan.advance(start, batch * len(batches) if max_steps else len(mine)))
    return seen, steps, max(positions)


shard_lists = st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any)
topologies = st.tuples(st.integers(1, 9), st.integers(1, 5))


@given(
    shard_samples=shard_lists,
    shuffle=st.sampled_from(["full", "block", "none"]),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 5),
    uneven=st.sampled_from(["pad", "drop", "exact"]),
    stops=st.lists(st.tuples(topologies, st.integers(1, 4)), max_size=3),
    last=topologies,
)
@settings(deadline=None)
def test_every_sample_of_an_epoch_over_any_stops_and_topologies(
    shard_samples, shuffle, seed, epoch, uneven, stops, last
):
    order = order_of(shard_samples, shuffle=shuffle, seed=seed, window_shards=2)
    total = order.num_samples
    seen, position = Counter(), 0
    for (world_size, batch), num_steps in stops:
        # only whole steps, of all ranks: that is when checkpoints are taken
        if position + num_steps * world_size * batch > total:
            continue
        numbers, steps, position = read_steps(order, epoch, position, world_size, uneven, batch, num_steps)
        seen.update(numbers)
        assert len(set(map(tuple, steps))) == 1
    assert seen.total() == position
    assert set(seen.values()) <= {1}
    world_size, batch = last
    if uneven == "drop" and total < world_size:
        return
    numbers, steps, end = read_steps(order, epoch, position, world_size, uneven, batch)
    seen.update(numbers)
    if uneven == "exact":
        assert seen == Counter(range(total))
        assert end == total
    elif uneven == "pad":
        assert set(seen) == set(range(total))
        assert 0 <= seen.total() - total < world_size
        assert end == total
    else:
        assert set(seen.values()) <= {1}
        assert 0 <= total - seen.total() < world_size
    if uneven != "exact":
        assert len(set(map(tuple, steps))) == 1


@given(
    num_nodes=st.integers(1, 4),
    ranks_per_node=st.integers(1, 3),
    later_ranks=st.integers(1, 3),
    samples=st.lists(st.integers(1, 6), min_size=4, max_size=12),
    shuffle=st.sampled_from(["full", "block", "none"]),
    epoch=st.integers(0, 3),
    redeal=st.booleans(),
    uneven=st.sampled_from(["pad", "drop", "exact"]),
    num_steps=st.integers(0, 4),
)
@settings(deadline=None)
def test_nodes_read_their_own_shards_alone_in_equal_steps(
    num_nodes, ranks_per_node, later_ranks, samples, shuffle, epoch, redeal, uneven, num_steps
):
    order = order_of(samples, {"num_nodes": num_nodes, "redeal": redeal}, shuffle=shuffle, window_shards=2)
    seen, position = Counter(), 0
    held: dict[int, set[int]] = {}
    for world_size, max_steps in ((num_nodes * ranks_per_node, num_steps), (num_nodes * later_ranks, None)):
        if max_steps == 0:
            continue
        lengths = []
        for rank in range(world_size):
            try:
                plan = RankEpoch(order, epoch, Topology(rank=rank, world_size=world_size), uneven)
            except LoadError:
                assert uneven == "drop"
                return
            node = rank // (world_size // num_nodes)
            assert held.setdefault(node, set(plan.shards)) == set(plan.shards)
            mine = plan.positions(position)[:max_steps]
            lengths.append(len(mine))
            numbers = plan.numbers(mine)
            starts = [sum(samples[:shard]) for shard in range(len(samples))]
            assert all(any(starts[s] <= number < starts[s] + samples[s] for s in plan.shards) for number in numbers)
            seen.update(numbers)
        if uneven != "exact" or max_steps:
            if uneven != "exact":
                assert len(set(lengths)) == 1
            if max_steps and set(lengths) != {max_steps}:
                return  # a stop behind the end of some rank is no stop of all ranks
        position = plan.advance(position, max_steps or 0)
    assert sorted(shard for shards in held.values() for shard in shards) == list(range(len(samples)))
    if uneven == "exact":
        assert seen == Counter(range(order.num_samples))
    elif uneven == "pad":
        assert set(seen) == set(range(order.num_samples))
    else:
        assert set(seen.values()) <= {1}


@given(
    shard_samples=shard_lists,
    shuffle=st.sampled_from(["full", "block", "none"]),
    window_shards=st.integers(1, 4),
    uneven=st.sampled_from(["pad", "drop", "exact"]),
    nodes=st.sampled_from([None, {"num_nodes": 2}]),
    ranks=st.integers(1, 4),
    position=st.integers(0, 100),
)
@settings(deadline=None)
def test_what_is_passed_is_needed_by_no_rank_any_more(
    shard_samples, shuffle, window_shards, uneven, nodes, ranks, position
):
    order = order_of(shard_samples, nodes, shuffle=shuffle, window_shards=window_shards)
    world_size = ranks * (2 if nodes else 1)
    starts = [sum(shard_samples[:shard]) for shard in range(len(shard_samples))]
    for rank in range(world_size):
        try:
            plan = RankEpoch(order, 1, Topology(rank=rank, world_size=world_size), uneven)
        except LoadError:
            return
        start = min(position, plan.num_positions)
        numbers = plan.numbers(plan.positions(start)) if start < plan.num_positions else []
        needed = {max(s for s in range(len(starts)) if starts[s] <= n and shard_samples[s]) for n in numbers}
        passed = plan.num_shards_passed(start)
        assert not needed & set(plan.shards[:passed])
    assert plan.num_shards_passed(0) == 0 or not any(shard_samples[shard] for shard in plan.shards[:1])
    assert plan.num_shards_passed(plan.num_positions) == len(plan.shards)


def test_windows_are_passed_one_after_the_other():
    order = order_of([10] * 8, shuffle="block", window_shards=2)
    plan = RankEpoch(order, 0, Topology(rank=1, world_size=4), "pad")
    assert [plan.num_shards_passed(position) for position in (0, 19, 20, 40, 60, 79, 80)] == [0, 0, 2, 4, 6, 6, 8]


def test_padding_repeats_the_last_samples():
    order = order_of([5, 5], shuffle="none")
    assert sorted(read_steps(order, 0, 0, 4, "pad", 1)[0]) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 9]


def test_one_shard_feeds_64_ranks():
    order = order_of([640])
    numbers, steps, _ = read_steps(order, 0, 0, 64, "pad", 4)
    assert sorted(numbers) == list(range(640))
    assert set(map(tuple, steps)) == {(4, 4, 2)}


def test_redealt_nodes_get_other_shards_in_other_epochs():
    order = order_of([5] * 40, {"num_nodes": 4, "redeal": True})
    held = {RankEpoch(order, epoch, Topology(rank=0, world_size=4), "pad").shards for epoch in range(3)}
    assert len(held) == 3
    fixed = order_of([5] * 40, {"num_nodes": 4})
    assert len({RankEpoch(fixed, epoch, Topology(rank=0, world_size=4), "pad").shards for epoch in range(3)}) == 1


def test_drop_that_would_drop_everything_is_refused():
    with pytest.raises(LoadError, match="3 samples are fewer than 4 ranks"):
        RankEpoch(order_of([3]), 0, Topology(rank=0, world_size=4), "drop")


def test_nodes_without_shards_and_uneven_nodes_are_refused():
    with pytest.raises(LoadError, match=r"no samples to node . of 3"):
        RankEpoch(order_of([5, 5], {"num_nodes": 3}), 0, Topology(rank=0, world_size=3), "pad")
    with pytest.raises(LoadError, match="5 ranks do not divide by 2 nodes"):
        RankEpoch(order_of([5, 5], {"num_nodes": 2}), 0, Topology(rank=0, world_size=5), "pad")


@pytest.mark.parametrize(("rank", "world_size"), [(4, 4), (-1, 4), (0, 0)])
def test_impossible_ranks_are_refused(rank, world_size):
    with pytest.raises(ValueError, match="rank must be"):
        Topology(rank=rank, world_size=world_size)


def test_unknown_rules_for_uneven_ends_are_refused():
    with pytest.raises(ValueError, match="one of pad, drop, exact"):
        RankEpoch(order_of([5]), 0, Topology(), "repeat")


def test_mixing_quality_grows_with_the_window():
    shards = [1000] * 50
    qualities = [mixing_quality(order_of(shards, shuffle="block", window_shards=width)) for width in (1, 4, 16, 50)]
    assert qualities == sorted(qualities)
    assert mixing_quality(order_of(shards, shuffle="none")) == pytest.approx(qualities[0])
    assert qualities[0] == pytest.approx(1 / 50, abs=0.01)
    assert qualities[-1] == pytest.approx(1.0)
    assert mixing_quality(order_of(shards, shuffle="full")) == mixing_quality(order_of([9], shuffle="none")) == 1.0
