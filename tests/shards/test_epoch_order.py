"""The order of an epoch: each sample once, local where it promises to be, the same for ever."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.epoch_order import EpochOrder, OrderSpec, shard_order

SHARDS = [4, 3, 5, 0, 2]

specs = st.builds(
    OrderSpec,
    shuffle=st.sampled_from(["full", "block", "none"]),
    seed=st.integers(0, 2**63 - 1),
    window_shards=st.integers(1, 5),
)


def all_numbers(order):
    return order.numbers(np.arange(order.num_samples)).tolist()


def samples_of_shards(shards, shard_samples):
    starts = np.concatenate([[0], np.cumsum(shard_samples)])
    return {number for shard in shards for number in range(starts[shard], starts[shard + 1])}


@given(spec=specs, epoch=st.integers(0, 1000), shard_samples=st.lists(st.integers(0, 12), max_size=12), data=st.data())
@settings(deadline=None)
def test_each_sample_of_the_selected_shards_comes_exactly_once(spec, epoch, shard_samples, data):
    places = list(range(len(shard_samples)))
    selected = data.draw(
        st.none() | st.lists(st.sampled_from(places), unique=True).map(sorted) if places else st.none()
    )
    order = EpochOrder(spec, epoch, shard_samples, selected=selected)
    wanted = samples_of_shards(places if selected is None else selected, shard_samples)
    numbers = all_numbers(order)
    assert len(numbers) == order.num_samples
    assert sorted(numbers) == sorted(wanted)


@given(spec=specs, epoch=st.integers(0, 3), shard_samples=st.lists(st.integers(0, 9), min_size=1, max_size=9))
@settings(deadline=None)
def test_a_window_needs_its_shards_and_no_others(spec, epoch, shard_samples):
    order = EpochOrder(spec, epoch, shard_samples)
    numbers, windows = all_numbers(order), order.windows()
    assert [shard for window in windows for shard in window.shards] == shard_order(spec, epoch, len(shard_samples))
    assert windows[0].start == 0
    assert windows[-1].end == order.num_samples
    for window, following in itertools.pairwise(windows):
        assert window.end == following.start
    for window in windows:
        assert set(numbers[window.start : window.end]) == samples_of_shards(window.shards, shard_samples)
        for position in range(window.start, window.end):
            assert order.window(position) == window


def test_none_is_manifest_order():
    assert all_numbers(EpochOrder(OrderSpec(shuffle="none", seed=5), 3, SHARDS)) == list(range(14))


def test_positions_may_come_in_any_order_and_repeat():
    order = EpochOrder(OrderSpec(shuffle="block", seed=7, window_shards=2), 0, SHARDS)
    numbers = all_numbers(order)
    assert order.numbers([13, 0, 5, 5]).tolist() == [numbers[13], numbers[0], numbers[5], numbers[5]]


@pytest.mark.parametrize(
    ("shuffle", "epoch", "numbers"),
    [
        ("full", 0, [13, 8, 4, 7, 1, 2, 3, 9, 0, 10, 6, 12, 11, 5]),
        ("full", 1, [9, 11, 4, 5, 1, 8, 2, 3, 7, 0, 12, 10, 13, 6]),
        ("block", 0, [12, 7, 11, 13, 8, 10, 9, 5, 4, 6, 1, 0, 2, 3]),
        ("block", 1, [4, 5, 6, 9, 3, 0, 10, 8, 1, 2, 7, 11, 13, 12]),
    ],
)
def test_vectors_of_the_document(shuffle, epoch, numbers):
    spec = OrderSpec(shuffle=shuffle, seed=7, window_shards=2)
    assert all_numbers(EpochOrder(spec, epoch, SHARDS)) == numbers


def test_shard_vectors_of_the_document():
    spec = OrderSpec(shuffle="block", seed=7, window_shards=2)
    assert shard_order(spec, 0, 5) == [2, 4, 3, 1, 0]
    assert shard_order(spec, 1, 5) == [1, 3, 0, 2, 4]
    selected = EpochOrder(spec, 0, SHARDS, selected=[0, 2, 4])
    assert [window.shards for window in selected.windows()] == [(4, 0), (2,)]
    assert all_numbers(selected) == [12, 2, 13, 0, 1, 3, 9, 7, 11, 10, 8]


@pytest.mark.parametrize("shuffle", ["full", "block"])
def test_epochs_and_seeds_differ(shuffle):
    shards = [100] * 20
    orders = {
        tuple(all_numbers(EpochOrder(OrderSpec(shuffle=shuffle, seed=seed), epoch, shards)))
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


def test_an_order_of_a_billion_samples_needs_no_list_of_them():
    order = EpochOrder(OrderSpec(seed=1), 0, [10_000] * 100_000)
    numbers = order.numbers(np.arange(500_000_000, 500_000_256))
    assert len(set(numbers.tolist())) == 256
    assert order.num_samples == 10**9


@pytest.mark.parametrize("positions", [[14], [-1]])
def test_positions_outside_are_refused(positions):
    with pytest.raises(ValueError, match="positions must be 0 to 13"):
        EpochOrder(OrderSpec(), 0, SHARDS).numbers(positions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": "shards"}, "one of full, block, none"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**63}, "seed must be"),
        ({"window_shards": 0}, "at least 1"),
    ],
)
def test_impossible_orders_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        OrderSpec(**options)


def test_negative_epochs_are_refused():
    with pytest.raises(ValueError, match="epoch must not be negative"):
        EpochOrder(OrderSpec(), -1, SHARDS)


def test_nothing_has_no_window_and_no_samples():
    order = EpochOrder(OrderSpec(), 0, [])
    assert (order.num_samples, order.windows(), order.numbers([]).tolist()) == (0, [], [])
