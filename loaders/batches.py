"""Makes a batch of some positions of a dataset, and says what that cost; the same in worker processes and threads."""

import itertools
import os
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol, TypeVar

from loaders.bad_samples import keep_good
from loaders.dataset import Dataset
from loaders.io_metrics import MEASURED_EVERY, BatchTimings
from loaders.metered import ReadMeter
from loaders.sample import BadSample

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

    def __init__(
        self, source: ItemSource[Any], collate: Callable[[Sequence[Any]], Any], *, skips_bad: bool = False
    ) -> None:
        """Describe the batches.

        Args:
            source: gives the items.
            collate: makes a batch of items.
            skips_bad: leave out samples that cannot be read or decoded, and say which.
        """
        self.source = source
        self.collate = collate
        self.skips_bad = skips_bad
        self._count = itertools.count()

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "collate": self.collate, "skips_bad": self.skips_bad}

    def __setstate__(self, state: dict[str, Any]) -> None:
        BatchReader.__init__(self, state["source"], state["collate"], skips_bad=state["skips_bad"])

    def read(self, positions: Sequence[int], worker: int) -> tuple[Any, BatchTimings]:
        """Make a batch.

        Args:
            positions: of the samples in the dataset.
            worker: number of the worker that does it.
        """
        meter = ReadMeter()
        is_measured = next(self._count) % MEASURED_EVERY == 0
        started = perf_counter()
        bad: tuple[BadSample, ...] = ()
        try:
            items = self.source.metered_items(positions, meter) if is_measured else self.source.__getitems__(positions)
        except Exception:
            if not self.skips_bad:
                raise
            items, bad = keep_good(self.source.dataset, positions, self.source.__getitems__)
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
            bad=bad,
        )
