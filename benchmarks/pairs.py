"""Runs two packers in turn, A B A B …, and compares them pair by pair.

The first pair is dropped. Outputs are removed before each run, and the removal is written to the disk, so that nobody
pays for what the one before left. A machine that gets slower or faster meanwhile changes times, not ratios.
"""

import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contestants import Contestant
from processes import Usage
from source import Source


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and extremes of some numbers."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of at least one number."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The counted runs of two packers over one source."""

    base: Contestant
    ours: Contestant
    num_files: int
    base_runs: tuple[Usage, ...]
    ours_runs: tuple[Usage, ...]

    @property
    def speedup(self) -> Spread:
        """How many times as quick ours is, pair by pair."""
        return Spread.of([base.seconds / ours.seconds for base, ours in self._pairs()])

    @property
    def cpu_speedup(self) -> Spread:
        """The same for processor time; as with seconds, a peer's imports are left out, ours are not."""
        return Spread.of([base.cpu_seconds / ours.cpu_seconds for base, ours in self._pairs()])

    @property
    def base_rate(self) -> Spread:
        """Files a second of the other one."""
        return Spread.of([self.num_files / run.seconds for run in self.base_runs])

    @property
    def ours_rate(self) -> Spread:
        """Files a second of ours."""
        return Spread.of([self.num_files / run.seconds for run in self.ours_runs])

    def _pairs(self) -> list[tuple[Usage, Usage]]:
        return list(zip(self.base_runs, self.ours_runs, strict=True))


def compare(
    base: Contestant, ours: Contestant, source: Source, work: str, num_pairs: int, note: Callable[[str], None]
) -> Comparison:
    """Run both in turn.

    Args:
        base: the other packer.
        ours: ours.
        source: what to pack.
        work: directory for outputs, on the filesystem of the source.
        num_pairs: counted pairs; one more is run first.
        note: told about every run.

    Raises:
        CommandError: one of them failed.
        RuntimeError: one of them lost samples.
    """
    base_runs: list[Usage] = []
    ours_runs: list[Usage] = []
    for number in range(num_pairs + 1):
        for contestant, runs in ((base, base_runs), (ours, ours_runs)):
            done = pack_once(contestant, source, work)
            rate = source.num_files / done.seconds
            note(f"{contestant.name}: {done.seconds:.2f} s, {rate:,.0f} files/s{'' if number else ' (dropped)'}")
            if number:
                runs.append(done)
    return Comparison(base, ours, source.num_files, tuple(base_runs), tuple(ours_runs))


def pack_once(contestant: Contestant, source: Source, work: str, *, watches_memory: bool = False) -> Usage:
    """Pack, count, remove what was written.

    Raises:
        CommandError: it failed.
        RuntimeError: it lost samples.
    """
    clear(work)
    usage = contestant.pack(source.path, work, watches_memory=watches_memory)
    count = contestant.count_samples(os.path.join(work, "out"))
    if count != source.num_files:
        raise RuntimeError(f"{contestant.name} packed {count} of {source.num_files} samples")
    clear(work)
    return usage


def clear(work: str) -> None:
    """Remove outputs, durably."""
    for name in ("out", "cache"):
        shutil.rmtree(os.path.join(work, name), ignore_errors=True)
    archive = os.path.join(work, "out.tar")
    if os.path.exists(archive):
        os.unlink(archive)
    fd = os.open(work, os.O_RDONLY)
    try:
        os.fsync(fd)  # the removal itself is written now, not during the next run
    finally:
        os.close(fd)
