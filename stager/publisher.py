"""Tells others on the node how far this stager is: its live file in the cache."""

import asyncio
import logging
import time
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from shards.cache import CacheLayout
from shards.errors import StageError, printable
from shards.live_files import OPEN_SECONDS, LiveFile, open_live_file
from shards.progress import StageProgress, StageState
from stager.local import make_cache_directory
from stager.tracker import Tracker

logger = logging.getLogger(__name__)

WRITE_INTERVAL_SECONDS = 0.5
"""Quick enough for who waits for the first shard, and a few small writes a second are nothing to a disk."""

_MAX_MESSAGE_CHARACTERS = 2000
_MAX_NUMBER = 1000


def open_progress(layout: CacheLayout, progress: StageProgress, *, is_numbered: bool) -> "ProgressFile":
    """Make this stager's file in ``progress/``.

    Args:
        layout: of the cache.
        progress: what is known at the beginning.
        is_numbered: whether a number is added to the holder's name while another stager has it; else that is an error.

    Raises:
        StageError: another stager with this holder's name lives.
        OSError: the file cannot be written.
    """
    make_cache_directory(layout.progress_dir)
    for number in range(1, _MAX_NUMBER if is_numbered else 2):
        name = progress.holder if number == 1 else f"{progress.holder}.{number}"
        live = open_live_file(layout.progress_path(name), wait_seconds=0 if is_numbered else OPEN_SECONDS)
        if live is not None:
            return ProgressFile(live, replace(progress, started_at=_now()))
    raise StageError(
        f"another stager on this node uses the holder {printable(progress.holder)!r}: wait until it has ended, or give "
        "another --holder"
    )


class ProgressFile:
    """This stager's file in ``progress/``; a context manager that removes it at the end.

    Attributes:
        progress: the last state.
    """

    def __init__(self, live: LiveFile, progress: StageProgress) -> None:
        """Begin with a state; users call :func:`open_progress`.

        Args:
            live: the file.
            progress: what is known at the beginning.
        """
        self.progress = progress
        self._live = live
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.write()

    def write(self) -> None:
        """Write the file now. Best effort: staging goes on when its disk is full."""
        self.progress = replace(self.progress, updated_at=_now())
        self._written_at = time.monotonic()
        self._forget_timer()
        try:
            self._live.write(self.progress.to_json())
        except OSError as error:
            logger.warning("progress not written", extra={"file": self._live.path, "reason": error.strerror})

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def show(self, progress: StageProgress) -> None:
        """Take over a new state, within an event loop; written at once when it is more than counts, else soon."""
        before, self.progress = self.progress, progress
        is_news = (before.state, before.is_ready, before.code) != (progress.state, progress.is_ready, progress.code)
        if is_news or time.monotonic() - self._written_at >= WRITE_INTERVAL_SECONDS:
            self.write()
        elif self._timer is None:  # the last change before a silence is written as well
            self._timer = asyncio.get_running_loop().call_later(WRITE_INTERVAL_SECONDS, self.write)

    def count(self, tracker: Tracker, fetched_bytes: int, *, is_ready: bool, state: StageState | None = None) -> None:
        """Take over counts; what is ready once stays ready.

        Args:
            tracker: what is there.
            fetched_bytes: read from the source by this process.
            is_ready: whether training may start.
            state: the state from now on, in which an earlier error is over; as it is when None.
        """
        progress = self.progress
        if state is not None:
            progress = replace(progress, state=state, code=0, reason="", message="")
        self.show(
            replace(
                progress,
                num_shards=tracker.num_shards,
                size_bytes=tracker.size_bytes,
                num_shards_staged=tracker.num_staged,
                staged_bytes=tracker.staged_bytes,
                num_shards_ready=tracker.num_ready,
                ready_bytes=tracker.ready_bytes,
                fetched_bytes=fetched_bytes,
                is_ready=is_ready or self.progress.is_ready,
            )
        )

    def fail(self, state: StageState, code: int, error: BaseException) -> None:
        """Say what went wrong, and whether that was the end."""
        message = str(error)[:_MAX_MESSAGE_CHARACTERS]
        self.show(replace(self.progress, state=state, code=code, reason=type(error).__name__, message=message))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget_timer()
        self._live.remove()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
