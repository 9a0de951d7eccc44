"""Datasets of which only a part is on the node: waiting for a shard, and why it is not there.

Rules:
    * A shard is there when its final name is; see "A dataset of which only a part is there" in docs/format.md.
    * It is waited for as long as a stager of the dataset lives, and up to a deadline. A stager that has failed for
      good, or that has gone, ends the wait with its own words.
    * Every wait longer than a few seconds says what it waits for, how long so far, and when it gives up.
"""

import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass

from loaders.files import ShardFile
from shards.cache import CacheLayout
from shards.errors import FormatError, NotStagedError, printable
from shards.live_files import read_live_file
from shards.progress import MAX_PROGRESS_BYTES, StageProgress, StageState

logger = logging.getLogger(__name__)

_POLL_SECONDS = (0.01, 0.5)
"""First and longest pause between two looks."""

_TELL_SECONDS = 10.0
"""Between two messages about one wait."""

_GRACE_SECONDS = 2.0
"""How long a shard is waited for when no stager lives: one may be about to start, or have just finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialDataset:
    """A staged dataset that is not complete. Goes to workers by pickle."""

    directory: str
    dataset_id: str
    cache_root: str | None
    """Root of the node cache; None when only the dataset's directory can be seen here."""
    wait_seconds: float
    """How long a shard is waited for."""

    def wait_for(self, shard: ShardFile) -> float:
        """Wait until a shard is there; gives the seconds that took, 0 when it was.

        Raises:
            NotStagedError: nobody brings it, or not in time; says what the stager says.
        """
        if os.path.exists(shard.path):
            return 0.0
        started = time.monotonic()
        pause, told_at = _POLL_SECONDS[0], started
        while True:
            time.sleep(pause)
            waited = time.monotonic() - started
            if os.path.exists(shard.path):
                return waited
            pause = min(2 * pause, _POLL_SECONDS[1])
            stagers = self._stagers()
            if self._is_hopeless(stagers, waited):
                raise NotStagedError(_explain(shard, waited, stagers, is_late=waited >= self.wait_seconds))
            if time.monotonic() - told_at >= _TELL_SECONDS:
                told_at = time.monotonic()
                logger.warning(
                    "waiting for shard %s: %.0f s so far, giving up after %.0f s; %s",
                    printable(shard.name),
                    waited,
                    self.wait_seconds,
                    _describe(stagers),
                )

    def _is_hopeless(self, stagers: "list[StageProgress] | None", waited: float) -> bool:
        if waited >= self.wait_seconds:
            return True
        if stagers is None:
            return False
        if any(stager.state is not StageState.FAILED for stager in stagers):
            return False
        return bool(stagers) or waited >= _GRACE_SECONDS

    def _stagers(self) -> "list[StageProgress] | None":
        """Give the stagers of this dataset that live; None when that cannot be seen from here."""
        if self.cache_root is None:
            return None
        layout = CacheLayout(self.cache_root)
        stagers = []
        with suppress(FileNotFoundError):
            for name in sorted(os.listdir(layout.progress_dir)):
                if not name.endswith(".json"):
                    continue
                path = os.path.join(layout.progress_dir, name)
                with suppress(OSError, FormatError):
                    data, is_live = read_live_file(path, max_bytes=MAX_PROGRESS_BYTES)
                    progress = StageProgress.from_json(data, name=path)
                    if is_live and progress.dataset_id == self.dataset_id:
                        stagers.append(progress)
        return stagers


def _explain(shard: ShardFile, waited: float, stagers: "list[StageProgress] | None", *, is_late: bool) -> str:
    what = f"shard {printable(shard.name)} is not staged"
    if is_late:
        return f"{what} after {waited:.0f} s; {_describe(stagers)}; raise wait_seconds, or let more be staged first"
    if not stagers:
        return f"{what}, and no stager of its dataset runs on this node; run stage serve or stage run for it"
    return f"{what}; {_describe(stagers)}"


def _describe(stagers: "list[StageProgress] | None") -> str:
    if stagers is None:
        return "what the stager does cannot be seen from here"
    if not stagers:
        return "no stager of the dataset runs"
    parts = []
    for stager in stagers:
        text = f"stager {printable(stager.holder)} ({printable(stager.selection)}) is {stager.state.value}"
        text += f", {stager.num_shards_staged} of {stager.num_shards} shards"
        if stager.message:
            text += f", last error: {printable(stager.message)}"
        parts.append(text)
    return "; ".join(parts)
