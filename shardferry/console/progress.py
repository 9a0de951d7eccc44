"""How far a long operation is: a bar with an ETA on a terminal, a log line every few seconds elsewhere."""

import logging
import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from shardferry.console.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from tqdm import tqdm

logger = logging.getLogger(__name__)

FALLBACK_COLUMNS = 100
FALLBACK_ROWS = 24
"""Size taken for a terminal that does not tell its own."""

LOG_INTERVAL_SECONDS = 5.0
"""Often enough to see that it lives, seldom enough for a log that is kept."""


class Progress:
    """Progress of one operation in bytes and samples; a context manager.

    Shown only where the log shows information (``--quiet`` silences both). Call :meth:`advance` from one thread.

    Args:
        description: what is being done, a verb form: ``"packing"``.
        total_bytes: bytes to do, or None when unknown.
        total_samples: samples to do, or None when samples are not counted here.
        stream: where the bar goes; stderr when None.
        clock: seconds from any start, never going back.
    """

    def __init__(
        self,
        description: str,
        *,
        total_bytes: int | None = None,
        total_samples: int | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.num_bytes = 0
        self.num_samples = 0
        self._description = description
        self._total_bytes = total_bytes
        self._total_samples = total_samples
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._started_seconds = self._logged_seconds = clock()
        self._bar: tqdm[None] | None = None

    def __enter__(self) -> Self:
        self._started_seconds = self._logged_seconds = self._clock()
        if self._stream.isatty() and logger.isEnabledFor(logging.INFO):
            self._bar = self._open_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._show_samples(self._bar)
            self._bar.close()
            self._bar = None
        elif error is None:
            self._log("done", is_done=True)

    def advance(self, *, num_bytes: int = 0, num_samples: int = 0) -> None:
        """Count finished work; cheap enough for every sample."""
        self.num_bytes += num_bytes
        self.num_samples += num_samples
        if self._bar is not None:
            self._show_samples(self._bar)
            self._bar.update(num_bytes)
            return
        now = self._clock()
        if now - self._logged_seconds >= LOG_INTERVAL_SECONDS:
            self._logged_seconds = now
            self._log("progress")

    def describe(self, *, is_done: bool = False) -> str:
        """Say in one line what has been done, how fast, and, unless it is done, how long the rest will take."""
        elapsed = max(self._clock() - self._started_seconds, 1e-9)
        parts = [_of(format_bytes(self.num_bytes), self._total_bytes, format_bytes)]
        if self._total_samples is not None or self.num_samples:
            parts.append(_of(format_count(self.num_samples), self._total_samples, format_count) + " samples")
        parts.append(f"{format_bytes(int(self.num_bytes / elapsed))}/s")
        parts.append(f"{format_seconds(elapsed)} elapsed")
        if not is_done and self._total_bytes is not None and 0 < self.num_bytes < self._total_bytes:
            rest_seconds = elapsed * (self._total_bytes - self.num_bytes) / self.num_bytes
            parts.append(f"about {format_seconds(rest_seconds)} left")
        return ", ".join(parts)

    def _open_bar(self) -> "tqdm[None]":
        from tqdm import tqdm  # noqa: PLC0415 (only a terminal pays for it)

        class Bar(tqdm):  # type: ignore[type-arg]
            monitor_interval = 0  # no watcher thread: the packer forks

        has_size = _has_size(self._stream)
        return Bar(
            total=self._total_bytes,
            desc=self._description,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            file=self._stream,
            dynamic_ncols=has_size,
            ncols=None if has_size else FALLBACK_COLUMNS,
            nrows=None if has_size else FALLBACK_ROWS,
        )

    def _show_samples(self, bar: "tqdm[None]") -> None:
        if self._total_samples is not None or self.num_samples:
            text = _of(format_count(self.num_samples), self._total_samples, format_count)
            bar.set_postfix_str(f"{text} samples", refresh=False)

    def _log(self, state: str, *, is_done: bool = False) -> None:
        logger.info(
            "%s: %s, %s",
            self._description,
            state,
            self.describe(is_done=is_done),
            extra={
                "num_bytes": self.num_bytes,
                "total_bytes": self._total_bytes,
                "num_samples": self.num_samples,
                "total_samples": self._total_samples,
                "elapsed_seconds": round(self._clock() - self._started_seconds, 3),
            },
        )


def _has_size(stream: TextIO) -> bool:
    """Tell whether the terminal knows its size; a fresh pseudo-terminal often says 0, which would hide the bar."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return False
    return size.columns > 0 and size.lines > 0


def _of(done: str, total: int | None, render: Callable[[int], str]) -> str:
    return done if total is None else f"{done} of {render(total)}"
