"""An iterable dataset that goes through the shards, for loops that were written for streams.

Ranks and worker processes take the samples of the epoch in turn, so all read the same few shards at the same time, each
gets equally many samples, and one shard is enough for any number of workers. What a map-style loader can do besides,
going on with other numbers of ranks and workers, this cannot: use :class:`loaders.pytorch.DataLoader` for that.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import torch
import torch.utils.data

from loaders.order import RankEpoch
from loaders.order_state import OrderState, check_state
from loaders.pytorch.dataset import ShardDataset
from loaders.pytorch.samplers import ShardSampler
from shards.errors import IncompatibleStateError, LoadError

Item = TypeVar("Item")

_CHUNK_SAMPLES = 64
"""Samples that are asked of the disk at a time."""


class ShardStream(torch.utils.data.IterableDataset[Item], Generic[Item]):
    """This rank's and worker's items of an epoch, one after the other.

    ::

        stream = ShardStream(dataset, ShardSampler(dataset, shuffle="block"))
        for epoch in range(10):
            stream.set_epoch(epoch)
            for batch in torch.utils.data.DataLoader(stream, batch_size=64, num_workers=4):
                ...

    Attributes:
        dataset: as given.
        sampler: as given.
    """

    def __init__(self, dataset: ShardDataset[Item], sampler: ShardSampler) -> None:
        """Describe the stream.

        Args:
            dataset: gives the items.
            sampler: decides order and ranks; made for the same dataset.
        """
        self.dataset = dataset
        self.sampler = sampler
        # in memory that worker processes share: the epoch, and whether a pass over it has begun
        self._shared = torch.zeros(2, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._given = 0
        self._is_restored = False

    def __len__(self) -> int:
        """Items of this rank; PyTorch compares them with what its workers give together."""
        return len(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass; workers that live already hear of it as well."""
        if epoch < 0:
            raise ValueError(f"epoch must not be negative: {epoch}")
        self._shared[0], self._shared[1] = epoch, 0

    def __iter__(self) -> Iterator[Item]:
        worker = torch.utils.data.get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        epoch = self._begin(is_first=number == 0, is_alone=worker is None)
        plan = RankEpoch(self.sampler.order, epoch, self.sampler.topology, self.sampler.uneven)
        positions = plan.positions(0)[number::workers]
        if not self._is_restored:
            self._given = 0
        self._is_restored = False
        for first in range(self._given, len(positions), _CHUNK_SAMPLES):
            for item in self.dataset.__getitems__(plan.numbers(positions[first : first + _CHUNK_SAMPLES])):
                self._given += 1
                yield item

    def _begin(self, *, is_first: bool, is_alone: bool) -> int:
        epoch, has_begun = self._shared.tolist()
        if has_begun and is_alone:
            epoch, has_begun = epoch + 1, 0
        if has_begun and is_first and self.sampler.order.spec.shuffle != "none":
            # this worker does not know whether others have begun, so it cannot count up for them
            raise LoadError(
                f"a second pass over epoch {epoch} would repeat its order: call set_epoch on the ShardStream before "
                "each pass"
            )
        if is_first:
            self._shared[0], self._shared[1] = epoch, 1
        return int(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Give the place of this worker, for ``StatefulDataLoader``."""
        state = self.sampler.state_dict()
        del state["position"]
        return {**state, "epoch": int(self._shared[0]), "given": self._given}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on in this worker, with as many ranks and workers as before.

        Raises:
            IncompatibleStateError: it is no state of a stream, or one of another dataset or order.
        """
        if type(state.get("given")) is not int:
            raise IncompatibleStateError(f"not the state of a stream: given is {state.get('given')!r}")
        restored = OrderState.from_dict({**state, "position": state["given"]})
        check_state(restored, self.sampler.identity)
        self._shared[0], self._shared[1] = restored.epoch, 0
        self._given, self._is_restored = restored.position, True
