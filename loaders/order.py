"""Which samples of an epoch a rank reads, from any position on; pure.

Rules:
    * Position p of the global order belongs to a rank by p and the world size alone, so the samples before a position
      are the same whatever number of ranks, workers or samples in a batch has read them.
    * With ``pad`` and ``drop`` every rank takes equally many steps: that is arithmetic here, not agreement between
      processes.
    * Restoring reads and replays nothing.

=========  =================================================================  =====================================
uneven     at the end, when the samples do not divide by the ranks            for
=========  =================================================================  =====================================
``pad``    the last samples of the epoch come again, fewer than the ranks     training: every sample, equal steps
``drop``   the last samples are left out, fewer than the ranks                training: no sample twice, equal steps
``exact``  some ranks have one sample less                                    evaluation: every sample exactly once
=========  =================================================================  =====================================
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

import numpy as np

from shards.epoch_order import EpochOrder, OrderSpec
from shards.errors import LoadError
from shards.rendezvous import assign_shards

Uneven = Literal["pad", "drop", "exact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One process among those that share an epoch."""

    rank: int = 0
    """0 to ``world_size - 1``; the ranks of a node follow one another."""
    world_size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must be 0 to world_size - 1: rank {self.rank}, world_size {self.world_size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSplit:
    """How a dataset that is too big for one node is split among nodes: each holds some of the shards."""

    num_nodes: int
    redeal: bool = False
    """Whether every epoch deals the shards anew; what each node must hold then changes with the epoch."""

    def __post_init__(self) -> None:
        if self.num_nodes < 1:
            raise ValueError(f"num_nodes must be at least 1, not {self.num_nodes}")

    def deal(self, epoch: int) -> int:
        """Give the number of the assignment in an epoch."""
        return epoch if self.redeal else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOrder:
    """The order of a dataset in all epochs."""

    shard_names: tuple[str, ...]
    shard_samples: tuple[int, ...]
    """Samples of each shard."""
    spec: OrderSpec
    nodes: NodeSplit | None = None

    @property
    def num_samples(self) -> int:
        """Samples of all shards."""
        return sum(self.shard_samples)


class RankEpoch:
    """One epoch as one rank reads it.

    Attributes:
        epoch: 0-based.
        num_positions: the epoch is over when that many positions were consumed by all ranks together.
    """

    def __init__(self, order: DatasetOrder, epoch: int, topology: Topology, uneven: Uneven) -> None:
        """Lay out an epoch for a rank.

        Args:
            order: of the dataset.
            epoch: 0-based.
            topology: which rank of how many.
            uneven: what happens to the last samples.

        Raises:
            LoadError: some node has no shard, or ``drop`` would leave nothing for anybody.
        """
        if uneven not in get_args(Uneven):
            raise ValueError(f"uneven must be one of {', '.join(get_args(Uneven))}, not {uneven!r}")
        self.epoch = epoch
        self._topology, self._uneven = topology, uneven
        if order.nodes is None:
            self._num_parts, self._part, self._slot = 1, 0, topology.rank
            self._order = EpochOrder(order.spec, epoch, order.shard_samples)
            part_samples = [order.num_samples]
        else:
            self._num_parts = order.nodes.num_nodes
            self._part, self._slot = _place_among_nodes(topology, self._num_parts)
            holders = assign_shards(order.shard_names, self._num_parts, deal=order.nodes.deal(epoch))
            part_samples = _count_samples(holders, order.shard_samples, self._num_parts)
            selected = [shard for shard, node in enumerate(holders) if node == self._part]
            self._order = EpochOrder(order.spec, epoch, order.shard_samples, selected=selected)
        # the global order takes from the nodes in turn: position p is the (p div nodes)-th of node (p mod nodes)
        self._longest, self._shortest = max(part_samples), min(part_samples)
        self.num_positions = self._longest * self._num_parts
        self._window_ends: list[int] | None = None
        self._shards_before = [0]
        if uneven == "drop" and order.num_samples and self._shortest * self._num_parts < topology.world_size:
            raise LoadError(
                f"{order.num_samples} samples are fewer than {topology.world_size} ranks, so uneven='drop' leaves "
                "none; use uneven='pad' or fewer ranks"
            )

    def positions(self, start: int) -> range:
        """Give the positions that this rank reads.

        Args:
            start: positions of the epoch that all ranks together have consumed, 0 to ``num_positions``.
        """
        size = self._topology.world_size
        first = start + (self._slot - start) % size
        if self._uneven == "exact":
            return range(first, max(first, (self._order.num_samples - 1) * self._num_parts + self._part + 1), size)
        if self._uneven == "pad":
            steps = -(-max(0, self.num_positions - start) // size)
        else:
            steps = max(0, self._shortest * self._num_parts - start) // size
        return range(first, first + steps * size, size)

    def numbers(self, positions: range) -> list[int]:
        """Give the samples at positions of this rank, some of what :meth:`positions` gave."""
        places = np.arange(positions.start, positions.stop, positions.step) // self._num_parts
        total = self._order.num_samples
        # behind the end the last samples come again, backwards: their shards are still there
        behind = places >= total
        places[behind] = total - 1 - (places[behind] - total) % max(total, 1)
        numbers: list[int] = self._order.numbers(places).tolist()
        return numbers

    def num_shards_passed(self, position: int) -> int:
        """Give how many of :attr:`shards`, from the first on, no rank needs any more in this epoch.

        Args:
            position: positions of the epoch that all ranks together have consumed.
        """
        if position >= self.num_positions:
            return len(self.shards)
        repeated = self._longest - self._order.num_samples + -(-self._topology.world_size // self._num_parts)
        done = min(position // self._num_parts, self._order.num_samples - repeated)
        if self._window_ends is None:
            windows = self._order.windows()
            self._window_ends = [window.end for window in windows]
            self._shards_before = list(accumulate((len(window.shards) for window in windows), initial=0))
        return self._shards_before[bisect_right(self._window_ends, done)]

    @property
    def shards(self) -> tuple[int, ...]:
        """Places of the shards that this rank reads, in the order in which it needs them."""
        return tuple(shard for window in self._order.windows() for shard in window.shards)

    def advance(self, start: int, num_samples: int) -> int:
        """Give the position after every rank has read some samples from a start on, the epoch's end at most."""
        return min(start + num_samples * self._topology.world_size, self.num_positions)


MIXING_SAMPLES = 1000
"""Consecutive samples that are looked at to tell how well an order mixes; a tenth of a smaller dataset."""


def mixing_quality(order: DatasetOrder) -> float:
    """Tell how well an order mixes the shards, 0 to 1.

    The distinct shards that are expected among consecutive samples, divided by what a perfect shuffle shows: the
    measure of ``pack plan``, with shards for groups. Shards that were packed in random order need no more mixing; for
    others, samples of a shard are alike.

    Args:
        order: of the dataset; shards are taken as equally big.
    """
    num_shards = sum(1 for samples in order.shard_samples if samples)
    if num_shards <= 1 or order.spec.shuffle == "full":
        return 1.0
    looked_at = min(MIXING_SAMPLES, max(order.num_samples // 10, 2))
    shard_size = order.num_samples / num_shards
    width = min(order.spec.window_shards, num_shards) if order.spec.shuffle == "block" else 1
    windows = max(1.0, looked_at / (shard_size * width))
    seen = _expected_distinct(width, looked_at / windows) * windows
    return min(1.0, seen / _expected_distinct(num_shards, looked_at))


def _expected_distinct(groups: int, draws: float) -> float:
    return groups * float(-np.expm1(draws * np.log1p(-1 / groups))) if groups > 1 else 1.0


def _place_among_nodes(topology: Topology, num_nodes: int) -> tuple[int, int]:
    """Give a rank's node, and its slot: the ranks taken from the nodes in turn."""
    ranks_per_node, rest = divmod(topology.world_size, num_nodes)
    if rest or ranks_per_node == 0:
        raise LoadError(
            f"{topology.world_size} ranks do not divide by {num_nodes} nodes; every node must run equally many ranks"
        )
    node, local_rank = divmod(topology.rank, ranks_per_node)
    return node, local_rank * num_nodes + node


def _count_samples(holders: Sequence[int], shard_samples: Sequence[int], num_nodes: int) -> list[int]:
    counts = [0] * num_nodes
    for node, samples in zip(holders, shard_samples, strict=True):
        counts[node] += samples
    without = [str(node) for node, samples in enumerate(counts) if samples == 0]
    if without:
        raise LoadError(
            f"{len(shard_samples)} shards give no samples to node {', '.join(without)} of {num_nodes}; use fewer "
            "nodes, or pack smaller shards"
        )
    return counts
