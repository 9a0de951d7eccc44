"""A loader like ``torch.utils.data.DataLoader`` that shares epochs among ranks and goes on after restarts.

Rules:
    * Batches come in the order of the epoch, whoever makes them: the same seed gives the same batches with any number
      of workers or threads.
    * The state counts batches that were handed out; what was prefetched is read again after a restart.
    * Every pass is another epoch with another order; nothing is repeated because nobody called ``set_epoch``.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from time import perf_counter
from typing import Any, Generic, TypeVar, cast

import torch.utils.data
from blake3 import blake3
from torch.distributed import ProcessGroup

from loaders.bad_samples import DEFAULT_MAX_COUNT, DEFAULT_MAX_RATE, BadSampleLog, BadSamplePolicy, OnBad
from loaders.batches import BatchReader
from loaders.dataset import Dataset
from loaders.io_meter import IoMeter
from loaders.io_metrics import IoSnapshot
from loaders.order import NodeSplit, RankEpoch, Uneven
from loaders.publish_position import PositionPublisher
from loaders.pytorch.dataset import ShardDataset
from loaders.pytorch.engines import (
    DEFAULT_PREFETCH_FACTOR,
    Engine,
    InlineEngine,
    ProcessEngine,
    ProcessOptions,
    ThreadEngine,
    TimedBatch,
)
from loaders.pytorch.samplers import RankPass, ShardSampler, count_batches
from shards.epoch_order import DEFAULT_WINDOW_SHARDS, Shuffle

logger = logging.getLogger(__name__)

Batch = TypeVar("Batch")


class DataLoader(Generic[Batch]):
    """Batches of a dataset for this rank, epoch after epoch.

    ::

        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)
        loader.load_state_dict(checkpoint["loader"])  # when there is one
        for epoch in range(loader.epoch, 10):
            loader.set_epoch(epoch)
            for batch in loader:
                ...
                checkpoint["loader"] = loader.state_dict()

    The state is the same on all ranks; it can be loaded with any number of ranks, workers and threads and any batch
    size. It is no ``torch.utils.data.DataLoader``, so that trainers do not put samplers of their own into it: Lightning
    and Accelerate take it as it is.

    Attributes:
        dataset: as given.
        batch_size: samples in a batch of this rank; None for single items.
        drop_last: as given.
        num_workers: worker processes.
        num_threads: worker threads.
        collate_fn: as given, or PyTorch's.
        sampler: decides order, ranks and state.
        bad_samples: what was left out, against the budget.
    """

    def __init__(
        self,
        dataset: ShardDataset[Any] | Dataset,
        batch_size: int | None = 1,
        shuffle: bool | Shuffle = False,  # noqa: FBT001, FBT002 - as PyTorch's
        *,
        seed: int = 0,
        window_shards: int = DEFAULT_WINDOW_SHARDS,
        uneven: Uneven = "pad",
        nodes: NodeSplit | None = None,
        drop_last: bool = False,
        num_workers: int = 0,
        num_threads: int = 0,
        prefetch_factor: int | None = None,
        collate_fn: Callable[[Sequence[Any]], Batch] | None = None,
        pin_memory: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        persistent_workers: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        process_group: ProcessGroup | None = None,
        replicate: bool = False,
        on_bad: OnBad = "error",
        max_bad: int = DEFAULT_MAX_COUNT,
        max_bad_rate: float = DEFAULT_MAX_RATE,
    ) -> None:
        """Describe the loader; nothing is read, and no worker starts, before the first pass.

        Args:
            dataset: a :class:`ShardDataset`, or an open dataset whose samples are to come as dictionaries.
            batch_size: samples in a batch of each rank; None gives single items.
            shuffle: ``"full"`` or True, ``"block"``, ``"none"`` or False; see :mod:`shards.epoch_order`.
            seed: of the order; the same on all ranks.
            window_shards: how many shards ``"block"`` shuffles among each other.
            uneven: what happens when samples do not divide by ranks; see :mod:`loaders.order`.
            nodes: when each node holds some of the shards only.
            drop_last: leave out the last batch when it is smaller, on all ranks.
            num_workers: worker processes; 0 for none.
            num_threads: worker threads instead of processes.
            prefetch_factor: batches that each worker or thread is ahead; 2 when None.
            collate_fn: makes a batch of a list of items; PyTorch's default when None.
            pin_memory: put tensors into page-locked memory, for quick copies to a GPU.
            timeout: seconds to wait for a worker process; 0 waits for ever.
            worker_init_fn: called in each worker process with its number.
            multiprocessing_context: how worker processes start: ``"fork"``, ``"spawn"``, ``"forkserver"``.
            persistent_workers: keep worker processes from pass to pass.
            rank: of this process, when neither ``torch.distributed`` nor the environment says it.
            world_size: goes with the rank.
            process_group: the data-parallel group, when several processes need the same samples.
            replicate: read everything in every process.
            on_bad: what to do about samples that cannot be read or decoded; ``"skip"`` leaves them out, see
                :mod:`loaders.bad_samples`.
            max_bad: most that this rank may leave out, over all epochs.
            max_bad_rate: most of the samples seen that this rank may leave out; one is always allowed.

        Raises:
            ValueError: options do not go together.
        """
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, or None for single items, not {batch_size}")
        if num_workers < 0 or num_threads < 0:
            raise ValueError(f"num_workers and num_threads must not be negative: {num_workers}, {num_threads}")
        if num_workers and num_threads:
            raise ValueError("choose worker processes or threads: one of num_workers and num_threads must be 0")
        if not num_workers and (persistent_workers or timeout or worker_init_fn is not None):
            raise ValueError("persistent_workers, timeout and worker_init_fn need num_workers of at least 1")
        if prefetch_factor is not None and (prefetch_factor < 1 or not (num_workers or num_threads)):
            raise ValueError("prefetch_factor must be at least 1, and needs workers or threads")
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.num_threads = num_threads
        self.pin_memory = pin_memory
        self.collate_fn = collate_fn if collate_fn is not None else _default_collate(batch_size)
        self.sampler = ShardSampler(
            dataset,
            shuffle=shuffle,
            seed=seed,
            window_shards=window_shards,
            uneven=uneven,
            nodes=nodes,
            rank=rank,
            world_size=world_size,
            process_group=process_group,
            replicate=replicate,
        )
        self._seed = seed
        source = dataset if isinstance(dataset, ShardDataset) else ShardDataset(dataset)
        self._opened = source.dataset
        self.bad_samples = BadSampleLog(BadSamplePolicy(on_bad=on_bad, max_count=max_bad, max_rate=max_bad_rate))
        reader = BatchReader(source, self.collate_fn, skips_bad=on_bad == "skip")
        ahead = DEFAULT_PREFETCH_FACTOR if prefetch_factor is None else prefetch_factor
        pin = pin_memory and torch.cuda.is_available()
        if pin_memory and not pin:
            logger.warning("pin_memory has no effect: PyTorch sees no GPU here")
        self._engine: Engine
        if num_workers:
            options = ProcessOptions(
                num_workers=num_workers,
                prefetch_factor=ahead,
                pin_memory=pin,
                persistent_workers=persistent_workers,
                timeout=timeout,
                worker_init_fn=worker_init_fn,
                multiprocessing_context=multiprocessing_context,
            )
            self._engine = ProcessEngine(reader, options)
        elif num_threads:
            self._engine = ThreadEngine(reader, num_threads, ahead, pin)
        else:
            self._engine = InlineEngine(reader, pin)
        self._meter: IoMeter | None = None
        self._publisher = _make_publisher(self._opened, self.sampler)

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank; a restored pass has fewer."""
        return count_batches(len(self.sampler), self.batch_size or 1, drop_last=self.drop_last)

    def __iter__(self) -> Iterator[Batch]:
        asked_at = perf_counter()
        current = self.sampler.begin()
        if self._meter is None:
            self._meter = IoMeter(self.sampler.topology.rank)
        self._meter.begin(self._opened.opens)
        self._publish(current.plan, current.start)
        batches = current.batches(self.batch_size or 1, drop_last=self.drop_last)
        return self._deliver(current, self._engine.run(batches, self._worker_seed(current)), asked_at, self._meter)

    def _deliver(
        self, current: RankPass, made: Generator[TimedBatch], asked_at: float, meter: IoMeter
    ) -> Iterator[Batch]:
        count = 0
        batch_size = self.batch_size or 1
        with closing(made):
            for batch, timings in made:
                meter.add(timings, asked_at=asked_at, received_at=perf_counter())
                self.bad_samples.add(timings.num_samples, timings.bad)
                count += batch_size
                # a batch counts as consumed when it is handed out
                if self.sampler.delivered(current, count):
                    self._publish(current.plan, current.position_after(count))
                yield cast("Batch", batch)
                asked_at = perf_counter()
        meter.wait(perf_counter() - asked_at)
        if self.sampler.finished(current):
            self._publish(current.plan, current.plan.num_positions)

    def _publish(self, plan: RankEpoch, position: int) -> None:
        """Tell the stager of a dataset that is not complete how far this rank is."""
        if self._publisher is not None:
            self._publisher.publish(plan, position)

    def _worker_seed(self, current: RankPass) -> int:
        """Seed PyTorch's workers, and what they seed, by the place in training alone."""
        rank = self.sampler.topology.rank
        text = f"workers/{self._seed}/{current.plan.epoch}/{current.start}/{rank}"
        return int.from_bytes(blake3(text.encode()).digest(length=7), "little")

    @property
    def epoch(self) -> int:
        """The epoch of the current pass, or of the next one after ``set_epoch`` or ``load_state_dict``."""
        return self.sampler.epoch

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass; keeps a loaded position when that is in the same epoch."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Give the state: plain JSON values; every batch that was handed out counts.

        It is the same on all ranks, but for the numbers of bad samples when these are left out.
        """
        return {**self.sampler.state_dict(), **self.bad_samples.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, with any number of ranks, workers and threads and any batch size.

        Raises:
            IncompatibleStateError: it is no state, or one of another dataset or order; names what differs.
        """
        self.sampler.load_state_dict(state)
        self.bad_samples.load_state_dict(state)

    def snapshot(self) -> IoSnapshot:
        """Give where the time went since the loader was made; see :mod:`loaders.io_metrics`."""
        return IoSnapshot() if self._meter is None else self._meter.snapshot()


def _make_publisher(dataset: Dataset, sampler: ShardSampler) -> PositionPublisher | None:
    partial = dataset.info.partial
    if partial is None:
        return None
    return PositionPublisher(partial, split=dataset.info.split, spec=sampler.order.spec)


def _default_collate(batch_size: int | None) -> Callable[[Sequence[Any]], Any]:
    collate: Callable[[Any], Any] = _single if batch_size is None else torch.utils.data.default_collate
    return collate


def _single(items: Sequence[Any]) -> Any:
    [item] = items
    return item
