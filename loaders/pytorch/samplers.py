"""Samplers that give this rank's share of an epoch, and can go on in the middle of one.

They go with ``torch.utils.data.DataLoader`` and with torchdata's ``StatefulDataLoader``. A sampler knows what it has
given out, not what training has consumed: with prefetching workers its own state runs ahead.
:class:`loaders.pytorch.DataLoader` and ``StatefulDataLoader`` count what was consumed.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch.utils.data
from torch.distributed import ProcessGroup

from loaders.dataset import Dataset
from loaders.order import NodeSplit, RankEpoch, Topology, Uneven, mixing_quality
from loaders.order_state import OrderCursor, OrderState
from loaders.pytorch.dataset import ShardDataset
from loaders.pytorch.ranks import find_topology
from loaders.shard_order import identify_order, plan_order
from shards.epoch_order import DEFAULT_WINDOW_SHARDS, OrderSpec, Shuffle

logger = logging.getLogger(__name__)

_CHUNK_SAMPLES = 1024
"""Sample numbers that are computed at a time; a chunk costs hardly more than a single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """How this process finds its rank; see :func:`loaders.pytorch.ranks.find_topology`."""

    rank: int | None = None
    world_size: int | None = None
    process_group: ProcessGroup | None = None
    replicate: bool = False

    def find(self) -> Topology:
        """Find the rank now: trainers may set up ``torch.distributed`` after the loader was made."""
        return find_topology(
            rank=self.rank,
            world_size=self.world_size,
            process_group=self.process_group,
            replicate=self.replicate,
        )


class RankPass:
    """One pass of this rank: a whole epoch, or the rest of one."""

    def __init__(self, plan: RankEpoch, start: int) -> None:
        """Describe a pass.

        Args:
            plan: the epoch.
            start: its first position.
        """
        self.plan = plan
        self.start = start
        self.positions = plan.positions(start)

    def batches(self, batch_size: int, *, drop_last: bool) -> Iterator[list[int]]:
        """Give the positions in the dataset, batch by batch."""
        per_chunk = max(1, _CHUNK_SAMPLES // batch_size) * batch_size
        for first in range(0, len(self.positions), per_chunk):
            numbers = self.plan.numbers(self.positions[first : first + per_chunk])
            for start in range(0, len(numbers), batch_size):
                batch = numbers[start : start + batch_size]
                if len(batch) == batch_size or not drop_last:
                    yield batch

    def position_after(self, num_samples: int) -> int:
        """Give the position after every rank has had some samples of this pass."""
        return self.plan.advance(self.start, num_samples)


class ShardSampler(torch.utils.data.Sampler[int]):
    """This rank's samples of an epoch, in the epoch's order.

    Every iteration is a new epoch with a new order, unless ``set_epoch`` names one or a state was loaded.
    """

    def __init__(
        self,
        dataset: "ShardDataset[Any] | Dataset",
        *,
        shuffle: bool | Shuffle = True,
        seed: int = 0,
        window_shards: int = DEFAULT_WINDOW_SHARDS,
        uneven: Uneven = "pad",
        nodes: NodeSplit | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        process_group: ProcessGroup | None = None,
        replicate: bool = False,
    ) -> None:
        """Describe the order; nothing is read.

        Args:
            dataset: what to sample from.
            shuffle: ``"full"`` or True, ``"block"``, ``"none"`` or False; see :mod:`shards.epoch_order`.
            seed: of the order; the same on all ranks.
            window_shards: how many shards ``"block"`` shuffles among each other.
            uneven: what happens when samples do not divide by ranks; see :mod:`loaders.order`.
            nodes: when each node holds some of the shards only.
            rank: of this process, when neither ``torch.distributed`` nor the environment says it.
            world_size: goes with the rank.
            process_group: the data-parallel group, when several processes need the same samples.
            replicate: read everything in every process.
        """
        opened = dataset.dataset if isinstance(dataset, ShardDataset) else dataset
        spec = OrderSpec(shuffle=_shuffle_name(shuffle), seed=seed, window_shards=window_shards)
        self.order = plan_order(opened, spec, nodes)
        self.uneven = uneven
        self._ranks = Ranks(rank=rank, world_size=world_size, process_group=process_group, replicate=replicate)
        self.identity = identify_order(opened, self.order)
        self._cursor = OrderCursor(self.identity)
        self._pass: RankPass | None = None

    @property
    def topology(self) -> Topology:
        """Which rank this process is."""
        return self._ranks.find()

    @property
    def epoch(self) -> int:
        """The epoch of the current pass, or of the next one after ``set_epoch`` or ``load_state_dict``."""
        return self._cursor.state.epoch

    @property
    def mixing(self) -> float:
        """How well the order mixes the shards, 0 to 1; see :func:`loaders.order.mixing_quality`."""
        return mixing_quality(self.order)

    def begin(self) -> RankPass:
        """Begin a pass; it becomes the one that the state speaks of."""
        topology = self.topology
        epoch = self._cursor.next_epoch
        plan = RankEpoch(self.order, epoch, topology, self.uneven)
        state = self._cursor.begin(plan.num_positions)
        if state.epoch != epoch:
            plan = RankEpoch(self.order, state.epoch, topology, self.uneven)
        self._pass = RankPass(plan, state.position)
        return self._pass

    def delivered(self, current: RankPass, num_samples: int) -> bool:
        """Say how many samples of a pass were handed out on each rank; False for a pass that another one replaced."""
        if current is not self._pass:
            return False
        self._cursor.move(current.position_after(num_samples))
        return True

    def finished(self, current: RankPass) -> bool:
        """Say that a pass has ended, whatever it left out; False for a pass that another one replaced."""
        if current is not self._pass:
            return False
        self._cursor.move(current.plan.num_positions)
        return True

    def __iter__(self) -> Iterator[int]:
        current = self.begin()
        count = 0
        for batch in current.batches(_CHUNK_SAMPLES, drop_last=False):
            for number in batch:
                count += 1
                self.delivered(current, count)
                yield number
        self.finished(current)

    def __len__(self) -> int:
        """Samples of a whole epoch on this rank."""
        return len(RankEpoch(self.order, self.epoch, self.topology, self.uneven).positions(0))

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass; keeps a loaded position when that is in the same epoch."""
        if self._cursor.is_restored and epoch != self.epoch:
            state = self._cursor.state
            logger.warning(
                "set_epoch(%d) leaves the restored position %d of epoch %d; name the restored epoch to go on there",
                epoch,
                state.position,
                state.epoch,
            )
        self._cursor.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Give the state, plain JSON values, the same on all ranks."""
        return self._cursor.state.to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, on any number of ranks and workers and with any batch size.

        Raises:
            IncompatibleStateError: it is no state, or one of another dataset or order; names what differs.
        """
        self._cursor.load(OrderState.from_dict(state))


class ShardBatchSampler(torch.utils.data.Sampler[list[int]]):
    """This rank's samples of an epoch in batches, for ``batch_sampler=``; quicker than a sampler of single ones."""

    def __init__(self, sampler: ShardSampler, batch_size: int, *, drop_last: bool = False) -> None:
        """Describe the batches.

        Args:
            sampler: gives order, ranks and state.
            batch_size: samples in a batch of one rank.
            drop_last: leave out a last batch that is smaller.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        current = self.sampler.begin()
        count = 0
        for batch in current.batches(self.batch_size, drop_last=self.drop_last):
            count += self.batch_size
            self.sampler.delivered(current, count)
            yield batch
        self.sampler.finished(current)

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank."""
        return count_batches(len(self.sampler), self.batch_size, drop_last=self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Give the state; see :meth:`ShardSampler.state_dict`."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; see :meth:`ShardSampler.load_state_dict`."""
        self.sampler.load_state_dict(state)


def count_batches(num_samples: int, batch_size: int, *, drop_last: bool) -> int:
    """Give the number of batches of some samples."""
    return num_samples // batch_size if drop_last else -(-num_samples // batch_size)


def _shuffle_name(shuffle: bool | Shuffle) -> Shuffle:  # noqa: FBT001 - as PyTorch's own option
    if isinstance(shuffle, bool):
        return "full" if shuffle else "none"
    return shuffle
