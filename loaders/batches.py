"""Makes a batch of some positions of a dataset, and says what that cost; the same in worker processes and threads."""

import itertools
import os
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol, TypeVar

from loaders.dataset import Dataset
from loaders.io_metrics import MEASURED_EVERY, BatchTimings
from loaders.metered import ReadMeter

Item_co = TypeVar("Item_co", covariant=True)


class ItemSource(Protocol[Item_co]):
    """A dataset whose items can be made with their reads measured."""

    dataset: Dataset

    def __getitems__(self, positions: Sequence[int]) -> Sequence[Item_co]:
        """Give the items of a batch."""
        ...

    def metered_items(self, positions: Sequence[int], meter: ReadMeter) -> Sequence[Item_co]:
        """Give the items of a batch and add what the reads cost to a meter."""
        ...


class BatchReader:
    """Reads batches of a dataset. Goes to workers by fork or pickle; threads may share one."""

    def __init__(self, source: ItemSource[Any], collate: Callable[[Sequence[Any]], Any]) -> None:
        """Describe the batches.

        Args:
            source: gives the items.
            collate: makes a batch of items.
        """
        self.source = source
        self.collate = collate
        self._count = itertools.count()

    def __reduce__(self) -> tuple[type["BatchReader"], tuple[ItemSource[Any], Callable[[Sequence[Any]], Any]]]:
        return BatchReader, (self.source, self.collate)

    def read(self, positions: Sequence[int], worker: int) -> tuple[Any, BatchTimings]:
        """Make a batch.

        Args:
            positions: of the samples in the dataset.
            worker: number of the worker that does it.
        """
        meter = ReadMeter()
        is_measured = next(self._count) % MEASURED_EVERY == 0
        started = perf_counter()
        items = self.source.metered_items(positions, meter) if is_measured else self.source.__getitems__(positions)
        made = perf_counter()
        batch = self.collate(items)
        finished = perf_counter()
        opens = self.source.dataset.opens
        return batch, BatchTimings(
            worker=worker,
            process=os.getpid(),
            num_samples=len(positions),
            items_seconds=made - started,
            collate_seconds=finished - made,
            finished_at=finished,
            num_opens=opens.num_opens,
            open_seconds=opens.seconds,
            num_shard_waits=opens.num_waits,
            shard_wait_seconds=opens.wait_seconds,
            is_measured=is_measured,
            read_seconds=meter.read_seconds,
            verify_seconds=meter.verify_seconds,
            read_bytes=meter.num_bytes,
        )
