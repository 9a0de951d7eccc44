"""Who makes the batches of a pass: this process, threads, or PyTorch's worker processes.

All give the batches in their order, each with what it cost.
"""

import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import current_thread
from typing import Any, Protocol, TypeAlias

import torch.utils.data
from torch.utils.data._utils.pin_memory import pin_memory  # takes every kind of batch that collating makes

from loaders.batches import BatchReader
from loaders.io_metrics import BatchTimings
from shards.errors import ShardferryError

TimedBatch: TypeAlias = tuple[Any, BatchTimings]

DEFAULT_PREFETCH_FACTOR = 2
"""Batches that each worker is ahead, as in PyTorch."""


class Engine(Protocol):
    """Makes batches."""

    def run(self, batches: Iterator[list[int]], seed: int) -> Generator[TimedBatch]:
        """Begin a pass: work may start at once, batches come in their order.

        Args:
            batches: positions in the dataset, batch by batch.
            seed: for the random numbers of worker processes.
        """
        ...


@dataclass(frozen=True, slots=True)
class InlineEngine:
    """Makes each batch when it is asked for."""

    reader: BatchReader
    pin: bool

    def run(self, batches: Iterator[list[int]], seed: int) -> Generator[TimedBatch]:
        """Begin a pass."""
        del seed
        for positions in batches:
            batch, timings = self.reader.read(positions, 0)
            yield _pinned(batch, self.pin), timings


@dataclass(frozen=True, slots=True)
class ThreadEngine:
    """Makes batches in threads: nothing is forked or pickled. Reading and most decoders let other threads run."""

    reader: BatchReader
    num_threads: int
    prefetch_factor: int
    pin: bool

    def run(self, batches: Iterator[list[int]], seed: int) -> Generator[TimedBatch]:
        """Begin a pass; the threads end with it, also when it is left early."""
        del seed
        pool = ThreadPoolExecutor(self.num_threads, thread_name_prefix="loader")
        ahead: deque[Future[TimedBatch]] = deque()
        for positions in batches:
            ahead.append(pool.submit(self._read, positions))
            if len(ahead) >= self.num_threads * self.prefetch_factor:
                break
        return self._deliver(pool, ahead, batches)

    def _deliver(
        self, pool: ThreadPoolExecutor, ahead: "deque[Future[TimedBatch]]", batches: Iterator[list[int]]
    ) -> Generator[TimedBatch]:
        try:
            while ahead:
                done = ahead.popleft().result()
                positions = next(batches, None)
                if positions is not None:
                    ahead.append(pool.submit(self._read, positions))
                yield done
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _read(self, positions: Sequence[int]) -> TimedBatch:
        batch, timings = self.reader.read(positions, int(current_thread().name.rpartition("_")[2]))
        return _pinned(batch, self.pin), timings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """How PyTorch's worker processes are run; the names are PyTorch's."""

    num_workers: int
    prefetch_factor: int
    pin_memory: bool
    persistent_workers: bool
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: Any


class ProcessEngine:
    """Makes batches in PyTorch's worker processes."""

    def __init__(self, reader: BatchReader, options: ProcessOptions) -> None:
        """Describe the workers; they start with the first pass.

        Args:
            reader: makes the batches in the workers.
            options: PyTorch's.
        """
        self._batches = _PassBatches()
        self._generator = torch.Generator()
        # an item of this dataset is a batch, so that its timings come with it
        self._loader: torch.utils.data.DataLoader[TimedBatch | _Failure] = torch.utils.data.DataLoader(
            _WorkerBatches(reader),
            batch_size=None,
            sampler=self._batches,
            collate_fn=_keep,
            num_workers=options.num_workers,
            prefetch_factor=options.prefetch_factor,
            pin_memory=options.pin_memory,
            persistent_workers=options.persistent_workers,
            timeout=options.timeout,
            worker_init_fn=options.worker_init_fn,
            multiprocessing_context=options.multiprocessing_context,
            generator=self._generator,
        )

    def run(self, batches: Iterator[list[int]], seed: int) -> Generator[TimedBatch]:
        """Begin a pass; the workers start now, or go on when they are persistent."""
        self._batches.batches = batches
        self._generator.manual_seed(seed)
        return _unpacked(iter(self._loader))


@dataclass(frozen=True, slots=True)
class _Failure:
    """One of our errors on its way out of a worker: PyTorch would make a RuntimeError of it."""

    error: ShardferryError
    trace: str


def _unpacked(made: Iterator[TimedBatch | _Failure]) -> Generator[TimedBatch]:
    for one in made:
        if isinstance(one, _Failure):
            one.error.add_note(f"in a worker process:\n{one.trace}")
            raise one.error
        batch, timings = one  # a list when it went through pinning
        yield batch, timings


class _WorkerBatches(torch.utils.data.Dataset[TimedBatch | _Failure]):
    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __getitem__(self, positions: Sequence[int]) -> TimedBatch | _Failure:
        worker = torch.utils.data.get_worker_info()
        try:
            return self._reader.read(positions, 0 if worker is None else worker.id)
        except ShardferryError as error:
            return _Failure(error, "".join(traceback.format_exception(error)))


class _PassBatches(torch.utils.data.Sampler[Any]):
    """The batches of the pass that begins next."""

    def __init__(self) -> None:
        self.batches: Iterator[list[int]] = iter(())

    def __iter__(self) -> Iterator[list[int]]:
        return self.batches


def _keep(batch: Any) -> Any:
    return batch


def _pinned(batch: Any, is_wanted: bool) -> Any:  # noqa: FBT001 - a fact of the engine
    return pin_memory(batch) if is_wanted else batch  # type: ignore[no-untyped-call]
