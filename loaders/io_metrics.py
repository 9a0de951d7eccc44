"""Where a loader's time goes, measured where it goes: values that can be merged over batches, workers and ranks; pure.

=================  =======================================================================================
wait               blocked at ``next()`` of the loader, in the training process
read, verify       bytes from the disk or page cache; their CRC-32C, when it is checked
decode             the rest of making items of samples: the user's transform
collate            items to a batch
open               opening shards and checking their indexes
shard wait         for shards that are still being staged
transfer           from the end of a worker's work to the batch in the training process, for batches it waited for
ready batches      batches that were ready when the next one was asked for: near 0, the workers do not keep up
=================  =======================================================================================

Waits, batches, samples and the time for items and collating are exact. To read the clock at every member would cost
more than a hundredth of the work, so reading is measured in one of :data:`MEASURED_EVERY` batches and scaled up.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple, Self

from loaders.sample import BadSample

MEASURED_EVERY = 16
"""One of so many batches of a worker is measured member by member, the first one among them."""

HISTOGRAM_BOUNDS = tuple(2.0**power for power in range(-20, 8))
"""Upper bounds of a histogram's cells in seconds, a microsecond to two minutes; one more cell has what is above."""


class BatchTimings(NamedTuple):
    """What making one batch cost where it was made. A tuple, since it travels with every batch."""

    worker: int
    """Number of the worker process or thread; 0 when the training process itself made the batch."""
    process: int
    """Process id, to which the opens belong."""
    num_samples: int
    items_seconds: float
    """Reading, verifying and decoding."""
    collate_seconds: float
    finished_at: float
    """By the monotonic clock, which all processes of a machine share."""
    num_opens: int
    """Shards that the process has opened so far."""
    open_seconds: float
    """Time that took."""
    num_shard_waits: int
    """Shards of a dataset that is still being staged for which the process has waited so far."""
    shard_wait_seconds: float
    """Time that took."""
    is_measured: bool
    """Whether the next three are known."""
    read_seconds: float
    verify_seconds: float
    read_bytes: int
    bad: tuple[BadSample, ...] = ()
    """Samples that were left out of the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIo:
    """Sums of one worker, or of several together."""

    num_batches: int = 0
    num_samples: int = 0
    items_seconds: float = 0.0
    """Reading, verifying and decoding; exact."""
    collate_seconds: float = 0.0
    num_opens: int = 0
    open_seconds: float = 0.0
    """Part of ``items_seconds``."""
    num_shard_waits: int = 0
    """Shards that were not staged yet when they were needed."""
    shard_wait_seconds: float = 0.0
    """Part of ``items_seconds``."""
    num_measured_samples: int = 0
    """Samples of the batches that were measured member by member."""
    measured_items_seconds: float = 0.0
    measured_read_seconds: float = 0.0
    measured_verify_seconds: float = 0.0
    measured_bytes: int = 0

    @property
    def read_seconds(self) -> float:
        """Time in reads; scaled up from the measured batches."""
        return self.measured_read_seconds * self._scale

    @property
    def verify_seconds(self) -> float:
        """Time in CRCs; scaled up from the measured batches."""
        return self.measured_verify_seconds * self._scale

    @property
    def decode_seconds(self) -> float:
        """Time in the transform, without reading, verifying and opening."""
        others = self.read_seconds + self.verify_seconds + self.open_seconds + self.shard_wait_seconds
        return max(0.0, self.items_seconds - others)

    @property
    def num_bytes(self) -> int:
        """Bytes of members; scaled up from the measured batches."""
        if not self.num_measured_samples:
            return 0
        return round(self.measured_bytes * self.num_samples / self.num_measured_samples)

    @property
    def _scale(self) -> float:
        return self.num_samples / self.num_measured_samples if self.num_measured_samples else 0.0

    def merge(self, other: "WorkerIo") -> "WorkerIo":
        """Give the sums of both."""
        return WorkerIo(**{item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)})

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values, the scaled ones among them."""
        scaled = ("read_seconds", "verify_seconds", "decode_seconds", "num_bytes")
        return {**asdict(self), **{name: getattr(self, name) for name in scaled}}


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many durations fell into each cell; see :data:`HISTOGRAM_BOUNDS`."""

    counts: tuple[int, ...] = (0,) * (len(HISTOGRAM_BOUNDS) + 1)

    def merge(self, other: "Histogram") -> "Histogram":
        """Give the counts of both."""
        return Histogram(tuple(ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)))

    def quantile(self, share: float) -> float:
        """Give the upper bound, in seconds, of the cell that holds a quantile; 0 for none, infinity above the bounds.

        Args:
            share: 0 to 1; 0.5 is the median.
        """
        total = sum(self.counts)
        seen = 0
        for count, bound in zip(self.counts, (*HISTOGRAM_BOUNDS, float("inf")), strict=True):
            seen += count
            if count and seen >= share * total:
                return bound
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IoSnapshot:
    """What a loader has cost so far."""

    rank: int = 0
    """The lowest one after merging."""
    num_ranks: int = 1
    """Snapshots that were merged."""
    num_batches: int = 0
    """Handed to the training loop."""
    num_samples: int = 0
    wait_seconds: float = 0.0
    """Blocked at ``next()``; the sum over the ranks."""
    wait_histogram: Histogram = Histogram()
    """One entry for each batch."""
    first_batch_seconds: float = 0.0
    """From the beginning of the pass that began last to its first batch; the longest of the ranks."""
    transfer_seconds: float = 0.0
    num_transfers: int = 0
    """Batches that were waited for; others lay in the queue."""
    num_ready_batches: int = 0
    """Sum of the batches that were ready, over all calls of ``next()``."""
    workers: tuple[WorkerIo, ...] = ()
    """By the number of the worker; the ranks follow one another."""

    @property
    def total(self) -> WorkerIo:
        """The sums of all workers."""
        return merge_workers(self.workers)

    @property
    def mean_ready_batches(self) -> float:
        """Batches in the queue, on average, when one is asked for."""
        return self.num_ready_batches / self.num_batches if self.num_batches else 0.0

    def merge(self, other: Self) -> Self:
        """Give what two ranks, or two loaders, have cost together."""
        summed = ("num_ranks", "num_batches", "num_samples", "wait_seconds", "transfer_seconds", "num_transfers")
        return replace(
            self,
            rank=min(self.rank, other.rank),
            **{name: getattr(self, name) + getattr(other, name) for name in (*summed, "num_ready_batches", "workers")},
            wait_histogram=self.wait_histogram.merge(other.wait_histogram),
            first_batch_seconds=max(self.first_batch_seconds, other.first_batch_seconds),
        )

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values."""
        return {
            **asdict(replace(self, workers=())),
            "wait_histogram": {"bounds": list(HISTOGRAM_BOUNDS), "counts": list(self.wait_histogram.counts)},
            "mean_ready_batches": self.mean_ready_batches,
            "workers": [worker.to_dict() for worker in self.workers],
        }


def merge_workers(workers: Iterable[WorkerIo]) -> WorkerIo:
    """Give the sums of several workers."""
    total = WorkerIo()
    for worker in workers:
        total = total.merge(worker)
    return total
