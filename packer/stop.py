"""Stopping on request: a flag that signals and a deadline set, and work checks between buffers."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from shards.errors import StoppedError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopFlag:
    """Remembers that a stop was asked for, and why; a deadline asks by itself.

    Args:
        budget_seconds: time from now until the deadline; None for none.
        is_patient: a second signal changes nothing; for workers, which get the terminal's and their parent's.
        clock: seconds from any start, never going back.
    """

    def __init__(
        self,
        budget_seconds: float | None = None,
        *,
        is_patient: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reason: str | None = None
        self._is_patient = is_patient
        self._clock = clock
        self._deadline = None if budget_seconds is None else clock() + budget_seconds

    def check(self) -> None:
        """Raise if a stop was asked for.

        Raises:
            StoppedError: it was.
        """
        # a deadline is no signal: the first signal after it must not count as the second
        if self.reason is None and self._deadline is not None and self._clock() >= self._deadline:
            raise StoppedError(
                "deadline",
                "stopped because the time budget is spent; finished shards are kept, run the same command again to go "
                "on. If no run finishes a shard, give a longer --time-budget or a smaller --shard-size",
            )
        if self.reason is not None:
            raise StoppedError(
                self.reason, f"stopped by {self.reason}; finished shards are kept, run the same command again to go on"
            )

    @contextmanager
    def set_by_signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM set the flag. A second signal interrupts at once.

        Outside of the main thread, where handlers cannot be installed, nothing is changed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._take_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.reason is not None and not self._is_patient:
            raise KeyboardInterrupt
        self.reason = signal.Signals(number).name
