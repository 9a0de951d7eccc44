"""How long training waits for data: time blocked at ``next()`` against the time of the steps between.

Rules:
    * The boundary is the call of ``next()`` on the outermost loader, in the training process. What workers do
      meanwhile costs nothing as long as the next batch is there; only blocking is waiting.
    * Creating the iterator belongs to the first wait: that is when worker processes start.
    * The step is what lies between two calls of ``next()``. A GPU works asynchronously: when the step does not
      synchronise, the step's time is the time to *submit* the work. The wait is right either way.
    * The clock is monotonic and comes in as an argument.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochWait:
    """What one pass over a loader cost; ``str()`` gives it as one line."""

    epoch: int
    """0-based."""
    num_batches: int
    """Batches handed to the training loop."""
    wait_seconds: float
    """Time blocked, the start of the workers and the final ``next()`` included."""
    step_seconds: float
    """Time between receiving a batch and asking for the next one."""
    first_batch_seconds: float | None
    """From the start of the pass to the first batch; None when there was none. Part of ``wait_seconds``."""
    is_complete: bool
    """Whether the loader was exhausted; False after ``break`` or an exception."""

    @property
    def total_seconds(self) -> float:
        """Wall time of the pass."""
        return self.wait_seconds + self.step_seconds

    @property
    def ratio(self) -> float:
        """Share of the wall time spent waiting, 0 to 1. Near 0: the loader keeps up; near 1: training is data-bound."""
        total_seconds = self.total_seconds
        return self.wait_seconds / total_seconds if total_seconds > 0 else 0.0

    def __str__(self) -> str:
        first = "" if self.first_batch_seconds is None else f", first batch after {_seconds(self.first_batch_seconds)}"
        noun = "batch" if self.num_batches == 1 else "batches"
        return (
            f"epoch {self.epoch}: waited {_seconds(self.wait_seconds)} of {_seconds(self.total_seconds)} "
            f"({self.ratio * 100:.0f} %) for data, {self.num_batches} {noun}{first}"
            f"{'' if self.is_complete else ' (stopped early)'}"
        )


def log_epoch_wait(wait: EpochWait) -> None:
    """Log the line of an epoch at INFO, with the facts in ``extra``."""
    logger.info(
        "%s",
        wait,
        extra={
            "epoch": wait.epoch,
            "num_batches": wait.num_batches,
            "wait_seconds": wait.wait_seconds,
            "step_seconds": wait.step_seconds,
            "first_batch_seconds": wait.first_batch_seconds,
        },
    )


class DataWait(Generic[Batch]):
    """Times the waits of any iterable of batches, a ``DataLoader`` for instance, and passes the batches on.

    Each ``for`` over it is one epoch::

        batches = DataWait(loader)
        for epoch in range(3):
            for batch in batches:
                train(batch)
        print(batches.last)     # epoch 2: waited 1.2 s of 30.1 s (4 %) for data, 412 batches, first batch after 0.21 s

    The properties can be read at any time; during a pass they cover what has happened so far.

    Attributes:
        batches: the iterable, as given.
    """

    def __init__(
        self,
        batches: Iterable[Batch],
        *,
        epoch: int = 0,
        on_epoch: Callable[[EpochWait], object] = log_epoch_wait,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Wrap an iterable; nothing starts before the first pass.

        Args:
            batches: what to iterate; once per epoch.
            epoch: number of the first pass, 0-based; each pass after it counts one up.
            on_epoch: called with the finished :class:`EpochWait`, also after ``break`` or an exception. The default
                logs a line; ``print`` prints it.
            clock: gives monotonic seconds.
        """
        self.batches = batches
        self._next_epoch = epoch
        self._on_epoch = on_epoch
        self._clock = clock
        self._current = _Stopwatch(epoch)
        self._last: EpochWait | None = None

    def __len__(self) -> int:
        if not isinstance(self.batches, Sized):
            raise TypeError(f"{type(self.batches).__name__} has no length")
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        clock = self._clock
        watch = self._current = _Stopwatch(self._next_epoch)
        self._next_epoch += 1
        asked_at = clock()
        is_waiting = True
        try:
            iterator = iter(self.batches)
            while True:
                try:
                    batch = next(iterator)
                except StopIteration:
                    watch.is_complete = True
                    return
                received_at = clock()
                watch.wait_seconds += received_at - asked_at
                if watch.first_batch_seconds is None:
                    watch.first_batch_seconds = received_at - asked_at
                watch.num_batches += 1
                is_waiting = False
                yield batch
                asked_at = clock()
                watch.step_seconds += asked_at - received_at
                is_waiting = True
        finally:
            # runs at exhaustion, at an exception of the loader, and when the loop is left by break or an exception
            if is_waiting:
                watch.wait_seconds += clock() - asked_at
            else:
                watch.step_seconds += clock() - received_at
            self._last = watch.freeze()
            self._on_epoch(self._last)

    @property
    def last(self) -> EpochWait | None:
        """The pass that ended last; None before the first one ends."""
        return self._last

    @property
    def current(self) -> EpochWait:
        """The pass that started last, so far."""
        return self._current.freeze()

    @property
    def epoch(self) -> int:
        """Number of the pass that started last."""
        return self._current.epoch

    @property
    def num_batches(self) -> int:
        """Batches handed out in the pass that started last."""
        return self._current.num_batches

    @property
    def wait_seconds(self) -> float:
        """Time blocked in the pass that started last."""
        return self._current.wait_seconds

    @property
    def step_seconds(self) -> float:
        """Time in the steps of the pass that started last; the step that is running counts when it ends."""
        return self._current.step_seconds

    @property
    def first_batch_seconds(self) -> float | None:
        """Wait for the first batch of the pass that started last; None before it came."""
        return self._current.first_batch_seconds

    @property
    def ratio(self) -> float:
        """Share of waiting in the pass that started last, 0 to 1."""
        return self.current.ratio


class _Stopwatch:
    """The sums of one pass while it runs."""

    __slots__ = ("epoch", "first_batch_seconds", "is_complete", "num_batches", "step_seconds", "wait_seconds")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.num_batches = 0
        self.wait_seconds = 0.0
        self.step_seconds = 0.0
        self.first_batch_seconds: float | None = None
        self.is_complete = False

    def freeze(self) -> EpochWait:
        return EpochWait(
            epoch=self.epoch,
            num_batches=self.num_batches,
            wait_seconds=self.wait_seconds,
            step_seconds=self.step_seconds,
            first_batch_seconds=self.first_batch_seconds,
            is_complete=self.is_complete,
        )


def _seconds(seconds: float) -> str:
    """Two decimals below a second, one above: ``0.21 s``, ``30.1 s``."""
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
