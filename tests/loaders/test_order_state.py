"""The state of an order and the cursor that moves through epochs."""

import json

import pytest

from loaders.order import NodeSplit
from loaders.order_state import OrderCursor, OrderIdentity, OrderState
from shards.epoch_order import OrderSpec
from shards.errors import IncompatibleStateError


def identity_of(dataset_id="blake3:aa", samples=range(100), nodes=None, **spec):
    return OrderIdentity.of(dataset_id, "train", samples, OrderSpec(**spec), nodes)


def state_of(epoch, position, **identity):
    return OrderState(identity=identity_of(**identity), epoch=epoch, position=position)


def test_a_state_survives_json():
    state = state_of(3, 64, seed=7, shuffle="block", nodes=NodeSplit(num_nodes=2))
    assert OrderState.from_dict(json.loads(json.dumps(state.to_dict()))) == state


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"dataset_id": "blake3:bb"}, "dataset_id: saved blake3:aa, here blake3:bb"),
        ({"samples": range(50)}, "samples: saved (0, 100, 1), here (0, 50, 1)"),
        ({"seed": 8}, "seed: saved 0, here 8"),
        ({"shuffle": "none"}, "shuffle: saved full, here none"),
        ({"nodes": NodeSplit(num_nodes=2)}, "num_nodes: saved 1, here 2"),
    ],
)
def test_another_dataset_or_order_is_refused_by_name(change, name):
    cursor = OrderCursor(identity_of(**change))
    with pytest.raises(IncompatibleStateError) as raised:
        cursor.load(state_of(0, 10))
    assert name in str(raised.value)


def test_another_version_of_the_order_is_refused():
    state = {**state_of(0, 10).to_dict(), "order_version": 2}
    with pytest.raises(IncompatibleStateError, match="order_version: saved 2, here 1"):
        OrderCursor(identity_of()).load(OrderState.from_dict(state))


def test_before_the_first_batch_the_order_may_change_but_not_the_dataset():
    cursor = OrderCursor(identity_of(shuffle="block", seed=3))
    cursor.load(state_of(2, 0))
    assert (cursor.begin(100).epoch, cursor.state.identity) == (2, identity_of(shuffle="block", seed=3))
    with pytest.raises(IncompatibleStateError, match="another dataset"):
        cursor.load(state_of(2, 0, dataset_id="blake3:bb"))


def test_what_has_no_effect_cannot_differ():
    assert identity_of(shuffle="none", seed=1) == identity_of(shuffle="none", seed=2)
    assert identity_of(window_shards=3) == identity_of(window_shards=5)
    assert identity_of(shuffle="block", window_shards=3) != identity_of(shuffle="block", window_shards=5)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "it lacks dataset_id, epoch"),
        ({"epoch": "3"}, "epoch is '3'"),
        ({"epoch": True}, "epoch is True"),
        ({"position": -1}, "position -1"),
        ({"samples": [0, 1]}, r"samples is \[0, 1\]"),
        ({"samples": [0, 1, "a"]}, "samples is"),
    ],
)
def test_what_is_no_state_is_refused(state, message):
    whole = {**state_of(1, 2).to_dict(), **state} if state else {}
    with pytest.raises(IncompatibleStateError, match=message):
        OrderState.from_dict(whole)


def begin(cursor, num_positions=100):
    state = cursor.begin(num_positions)
    return state.epoch, state.position


def test_passes_count_epochs_by_themselves():
    cursor = OrderCursor(identity_of())
    assert [begin(cursor) for _ in range(3)] == [(0, 0), (1, 0), (2, 0)]


def test_a_pass_that_was_left_is_not_gone_on_with():
    cursor = OrderCursor(identity_of())
    begin(cursor)
    cursor.move(40)
    assert cursor.state.position == 40
    assert begin(cursor) == (1, 0)


def test_set_epoch_names_the_next_pass_and_may_repeat_one():
    cursor = OrderCursor(identity_of())
    cursor.set_epoch(5)
    assert begin(cursor) == (5, 0)
    cursor.move(100)
    cursor.set_epoch(5)
    assert begin(cursor) == (5, 0)
    assert begin(cursor) == (6, 0)


@pytest.mark.parametrize("names_it", [False, True])
def test_a_restored_position_is_gone_on_with(names_it):
    cursor = OrderCursor(identity_of())
    cursor.load(state_of(3, 40))
    assert cursor.is_restored
    if names_it:
        cursor.set_epoch(3)
    assert begin(cursor) == (3, 40)
    assert not cursor.is_restored
    assert begin(cursor) == (4, 0)


def test_another_epoch_drops_the_restored_position():
    cursor = OrderCursor(identity_of())
    cursor.load(state_of(3, 40))
    cursor.set_epoch(4)
    assert begin(cursor) == (4, 0)


def test_a_state_from_the_end_of_an_epoch_begins_the_next():
    cursor = OrderCursor(identity_of())
    cursor.load(state_of(3, 100))
    assert begin(cursor) == (4, 0)


def test_the_ended_epoch_by_name_is_an_empty_pass():
    cursor = OrderCursor(identity_of())
    cursor.load(state_of(3, 100))
    cursor.set_epoch(3)
    assert begin(cursor) == (3, 100)
    assert begin(cursor) == (4, 0)


def test_negative_epochs_are_refused():
    with pytest.raises(ValueError, match="must not be negative"):
        OrderCursor(identity_of()).set_epoch(-1)
