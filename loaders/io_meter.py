"""Adds up what batches cost while they are delivered; the snapshot is :class:`loaders.io_metrics.IoSnapshot`; pure.

The cost of a batch is known when it arrives, with the timings that its worker sent along.
"""

from bisect import bisect_left
from collections import deque

from loaders.io_metrics import HISTOGRAM_BOUNDS, BatchTimings, Histogram, IoSnapshot, WorkerIo
from loaders.parts import OpenCounts

_ASKED_KEPT = 1024
"""Times of ``next()`` that are kept to tell how many batches were ready: more than any loader prefetches."""


class IoMeter:
    """Sums of one loader."""

    def __init__(self, rank: int = 0) -> None:
        """Begin at nothing.

        Args:
            rank: of the process.
        """
        self._rank = rank
        self._workers: dict[int, _WorkerSums] = {}
        self._opens: dict[int, OpenCounts] = {}
        self._asked_at: deque[float] = deque(maxlen=_ASKED_KEPT)
        self._waits = [0] * (len(HISTOGRAM_BOUNDS) + 1)
        self._num_batches = 0
        self._wait_seconds = 0.0
        self._first_batch_seconds = 0.0
        self._transfer_seconds = 0.0
        self._num_transfers = 0
        self._num_ready = 0
        self._is_first = True

    def begin(self, opens: OpenCounts) -> None:
        """Begin a pass.

        Args:
            opens: of the training process so far, which are nobody's cost here.
        """
        self._is_first = True
        self._asked_at.clear()
        self._opens.setdefault(opens.process, opens)

    def add(self, timings: BatchTimings, *, asked_at: float, received_at: float) -> None:
        """Count a batch that is about to be handed out.

        Args:
            timings: from where it was made.
            asked_at: when ``next()`` was called, by the monotonic clock.
            received_at: when the batch was there.
        """
        waited = received_at - asked_at
        self._num_batches += 1
        self._wait_seconds += waited
        self._waits[bisect_left(HISTOGRAM_BOUNDS, waited)] += 1
        if self._is_first:
            self._first_batch_seconds = waited
            self._is_first = False
        self._asked_at.append(asked_at)
        finished_at = timings.finished_at
        if finished_at > asked_at:
            self._transfer_seconds += max(0.0, received_at - finished_at)
            self._num_transfers += 1
        else:
            # it was ready at each call of next() since it was finished, up to the one that took it
            for earlier in reversed(self._asked_at):
                if earlier < finished_at:
                    break
                self._num_ready += 1
        self._add_to_worker(timings)

    def wait(self, seconds: float) -> None:
        """Count a wait at whose end no batch came: the end of a pass."""
        self._wait_seconds += seconds

    def _add_to_worker(self, timings: BatchTimings) -> None:
        worker = self._workers.get(timings.worker)
        if worker is None:
            worker = self._workers[timings.worker] = _WorkerSums()
        known = self._opens.get(timings.process, OpenCounts(timings.process))
        if timings.num_opens > known.num_opens:
            worker.num_opens += timings.num_opens - known.num_opens
            worker.open_seconds += timings.open_seconds - known.seconds
            worker.num_shard_waits += timings.num_shard_waits - known.num_waits
            worker.shard_wait_seconds += timings.shard_wait_seconds - known.wait_seconds
            self._opens[timings.process] = OpenCounts(
                timings.process,
                timings.num_opens,
                timings.open_seconds,
                timings.num_shard_waits,
                timings.shard_wait_seconds,
            )
        worker.num_batches += 1
        worker.num_samples += timings.num_samples
        worker.items_seconds += timings.items_seconds
        worker.collate_seconds += timings.collate_seconds
        if timings.is_measured:
            worker.num_measured_samples += timings.num_samples
            worker.measured_items_seconds += timings.items_seconds
            worker.measured_read_seconds += timings.read_seconds
            worker.measured_verify_seconds += timings.verify_seconds
            worker.measured_bytes += timings.read_bytes

    def snapshot(self) -> IoSnapshot:
        """Give the sums so far."""
        workers = tuple(self._workers[number].freeze() for number in sorted(self._workers))
        return IoSnapshot(
            rank=self._rank,
            num_batches=self._num_batches,
            num_samples=sum(worker.num_samples for worker in workers),
            wait_seconds=self._wait_seconds,
            wait_histogram=Histogram(tuple(self._waits)),
            first_batch_seconds=self._first_batch_seconds,
            transfer_seconds=self._transfer_seconds,
            num_transfers=self._num_transfers,
            num_ready_batches=self._num_ready,
            workers=workers,
        )


class _WorkerSums:
    """:class:`WorkerIo` while it grows."""

    def __init__(self) -> None:
        self.num_batches = 0
        self.num_samples = 0
        self.items_seconds = 0.0
        self.collate_seconds = 0.0
        self.num_opens = 0
        self.open_seconds = 0.0
        self.num_shard_waits = 0
        self.shard_wait_seconds = 0.0
        self.num_measured_samples = 0
        self.measured_items_seconds = 0.0
        self.measured_read_seconds = 0.0
        self.measured_verify_seconds = 0.0
        self.measured_bytes = 0

    def freeze(self) -> WorkerIo:
        return WorkerIo(**vars(self))
