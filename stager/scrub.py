"""Hashes again what is staged, slowly, all the time: finds what a disk forgets before a training reads it.

One round a day over everything, at a bounded rate. How far it has come is written down, so that a janitor that is
restarted goes on from there.
"""

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from shards.cache import CacheLayout
from shards.errors import FormatError
from shards.files import read_regular_file, write_file
from stager.local import staged_ids
from stager.reclaim import hold_gc_lock
from stager.staged_files import StagedFile, check_staged_file, list_staged_files, set_bad_file_aside

logger = logging.getLogger(__name__)

ROUND_SECONDS = 86400.0
_IDLE_SECONDS = 60.0
_MAX_NOTE_BYTES = 64 * 1024


class ScrubStoppedError(Exception):
    """The scrubber was told to stop."""


@dataclass(slots=True)
class ScrubTotals:
    """What was scrubbed since the start of the process."""

    num_bytes: int = 0
    num_bad: int = 0
    num_rounds: int = 0


class Scrubber:
    """Scrubs a cache until it is told to stop.

    Args:
        layout: of the cache.
        bytes_per_second: most that is read.
        stop: ends it, within one piece.
        round_seconds: least time from the beginning of one round to that of the next.
    """

    def __init__(
        self,
        layout: CacheLayout,
        bytes_per_second: int,
        stop: threading.Event,
        round_seconds: float = ROUND_SECONDS,
    ) -> None:
        self.totals = ScrubTotals()
        self._layout = layout
        self._bytes_per_second = bytes_per_second
        self._stop = stop
        self._round_seconds = round_seconds

    def run(self) -> None:
        """Scrub round after round; returns when it is told to stop."""
        with suppress(ScrubStoppedError):
            while True:
                started_at = time.monotonic()
                self.scrub_round()
                self.totals.num_rounds += 1
                rest = max(started_at + self._round_seconds - time.monotonic(), min(_IDLE_SECONDS, self._round_seconds))
                self._pause(rest)

    def scrub_round(self) -> None:
        """Scrub everything once, from where the last round was left.

        Raises:
            ScrubStoppedError: it was told to stop.
        """
        last = self._read_place()
        for file in self._files_after(last):
            self._scrub(file)
            self._write_place(file)
        with suppress(OSError):
            write_file(self._layout.scrub_path, b"{}\n")

    def _files_after(self, last: tuple[str, str] | None) -> Iterator[StagedFile]:
        for dataset_id in staged_ids(self._layout):
            if last is not None and dataset_id < last[0]:
                continue
            is_after = last is None or dataset_id != last[0]
            for file in list_staged_files(self._layout, dataset_id):
                if is_after:
                    yield file
                is_after = is_after or (last is not None and file.name == last[1])

    def _scrub(self, file: StagedFile) -> None:
        # without a lock on the dataset, which would make it look used: what is evicted meanwhile is not bad
        try:
            bad = check_staged_file(file, self._count)
            if bad is None:
                return
            with hold_gc_lock(self._layout):
                is_set_aside = set_bad_file_aside(self._layout, bad)
        except OSError as error:
            logger.warning("file not scrubbed", extra={"file": file.path, "reason": str(error)})
            return
        if is_set_aside:
            self.totals.num_bad += 1
            logger.error("staged file is damaged", extra={"file": file.path, "reason": bad.reason})

    def _count(self, num_bytes: int) -> None:
        self.totals.num_bytes += num_bytes
        self._pause(num_bytes / self._bytes_per_second)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise ScrubStoppedError

    def _read_place(self) -> tuple[str, str] | None:
        try:
            document = json.loads(read_regular_file(self._layout.scrub_path, max_bytes=_MAX_NOTE_BYTES))
        except (OSError, FormatError, ValueError, RecursionError):
            return None
        match document:
            case {"dataset_id": str(dataset_id), "name": str(name)}:
                return dataset_id, name
            case _:
                return None

    def _write_place(self, file: StagedFile) -> None:
        note = {"dataset_id": file.dataset_id, "name": file.name}
        with suppress(OSError):  # at worst, some files are hashed twice
            write_file(self._layout.scrub_path, json.dumps(note).encode("ascii") + b"\n")
