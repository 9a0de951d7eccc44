"""``stage wait``: waits until a ``stage serve`` has brought enough; ends with the exit code of one that failed."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from shardferry.console.units import format_bytes, format_seconds
from shards.cache import CacheLayout
from shards.errors import FormatError, ServeFailedError, StoppedError, printable
from shards.live_files import read_live_file
from shards.progress import MAX_PROGRESS_BYTES, StageProgress, StageState
from stager.ending import until_stopped
from stager.prepare import check_cache_version
from stager.readiness import Minimum

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
LOG_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Waited:
    """How the waiting ended well."""

    progress: StageProgress
    seconds: float


def wait_for_stager(
    cache_dir: str,
    holder: str,
    minimum: Minimum | None,
    deadline_seconds: float,
    on_stuck: Callable[[StoppedError], None],
) -> Waited:
    """Wait until training may start.

    Args:
        cache_dir: root of the cache, absolute. Need not exist yet: the stager makes it.
        holder: whose stager is waited for.
        minimum: how much must be there; what the stager was told when None.
        deadline_seconds: how long at most.
        on_stuck: see :func:`stager.ending.until_stopped`.

    Raises:
        ServeFailedError: the stager has given up.
        StoppedError: a signal came, or the deadline passed.
        UnsupportedEnvironmentError: the cache is of a newer release.
    """
    waiter = _Waiter(CacheLayout(cache_dir), holder, minimum)
    return asyncio.run(until_stopped(waiter.wait(), on_stuck, deadline_seconds, waiter.explain))


class _Waiter:
    def __init__(self, layout: CacheLayout, holder: str, minimum: Minimum | None) -> None:
        self._layout = layout
        self._holder = holder
        self._minimum = minimum
        self._found: StageProgress | None = None
        self._is_live = False
        self._has_version = False

    async def wait(self) -> Waited:
        started_at = logged_at = time.monotonic()
        while True:
            self._look()
            progress = self._found
            if progress is not None and self._is_live:
                if progress.state is StageState.FAILED:
                    raise ServeFailedError(progress.code, progress.reason, progress.message)
                if self._may_start(progress):
                    return Waited(progress, time.monotonic() - started_at)
            now = time.monotonic()
            if now - logged_at >= LOG_SECONDS:
                logged_at = now
                logger.info("waiting: %s", self.explain(), extra={"elapsed_seconds": round(now - started_at, 1)})
            await asyncio.sleep(POLL_SECONDS)

    def _look(self) -> None:
        if not self._has_version:
            try:
                check_cache_version(self._layout)
                self._has_version = True
            except FileNotFoundError:
                return
        try:
            data, self._is_live = read_live_file(self._layout.progress_path(self._holder), max_bytes=MAX_PROGRESS_BYTES)
            self._found = StageProgress.from_json(data, name="progress")
        except FileNotFoundError:
            self._is_live = False
        except (OSError, FormatError) as error:
            logger.debug("progress not understood", extra={"reason": str(error)})

    def _may_start(self, progress: StageProgress) -> bool:
        if progress.state is StageState.STARTING:
            return False
        if self._minimum is None:
            return progress.is_ready
        return self._minimum.is_met(
            progress.num_shards_ready, progress.ready_bytes, is_complete=progress.state is StageState.STAGED
        )

    def explain(self) -> str:
        """Say for what this waits, and how far that is."""
        progress = self._found
        where = printable(os.path.join(self._layout.root, "progress"))
        if progress is None:
            return f"no stage serve has said anything yet as {printable(self._holder)} in {where} (same --holder?)"
        if not self._is_live:
            return f"the stage serve of {printable(self._holder)} has ended; it goes on when it is started again"
        text = (
            f"{progress.num_shards_ready} of {progress.num_shards} shards and {format_bytes(progress.ready_bytes)} of "
            f"{format_bytes(progress.size_bytes)} are ready"
        )
        return f"{text}; last error {progress.reason}: {progress.message}" if progress.code else text


def describe(waited: Waited) -> str:
    """Say in one line what is there, for a person."""
    progress = waited.progress
    return (
        f"ready after {format_seconds(waited.seconds)}: {progress.num_shards_ready} of {progress.num_shards} shards, "
        f"{format_bytes(progress.ready_bytes)} of {format_bytes(progress.size_bytes)}\n"
        f"  path: {printable(progress.path)}"
    )
