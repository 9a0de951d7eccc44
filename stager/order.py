"""In which order shards are fetched: that in which training will read them; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a run without an order does without numpy
    from shards.epoch_order import OrderSpec
    from shards.manifest import ShardEntry


@dataclass(frozen=True, slots=True)
class FetchOrder:
    """Where training begins."""

    spec: "OrderSpec"
    epoch: int = 0
    """0-based; the epoch that training begins or goes on with."""


def order_shards(shards: "Sequence[ShardEntry]", order: FetchOrder | None) -> "list[ShardEntry]":
    """Put the chosen shards of one split into the order in which an epoch needs them.

    Args:
        shards: in the manifest's order.
        order: None for that very order.
    """
    if order is None:
        return list(shards)
    from shards.epoch_order import shard_order  # noqa: PLC0415 (numpy)

    return [shards[place] for place in shard_order(order.spec, order.epoch, len(shards))]
