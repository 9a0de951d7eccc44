"""What is recorded about ours alone: memory, gain of a second job, cost of being killed, growth with the input."""

import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from contestants import ours
from pairs import Comparison, Spread, clear, compare, pack_once
from source import Source

SMALL_SHARDS = ("--shard-size", "32MiB")
"""For runs that are killed: a shard is the unit that is kept, so there must be many."""

POLL_SECONDS = 0.005
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Memory:
    """Peak resident memory of one build."""

    options: str
    main_bytes: int
    worker_bytes: int
    """Of the biggest worker; 0 when there is none."""


def record_memory(pack: str, source: Source, work: str) -> list[Memory]:
    """Peak memory of each process."""
    found = []
    for options in (("--jobs", "1"), ("--jobs", "2"), ("--jobs", "2", "--read-threads", "32")):
        peaks = pack_once(ours(pack, *options), source, work, watches_memory=True).peak_bytes
        found.append(Memory(" ".join(options), peaks["main"], peaks.get("worker", 0)))
    return found


def record_scaling(pack: str, source: Source, work: str, num_pairs: int, note: Note) -> Comparison:
    """One job against two."""
    return compare(ours(pack, "--jobs", "1"), ours(pack, "--jobs", "2"), source, work, num_pairs, note)


@dataclass(frozen=True, slots=True)
class Resume:
    """A build killed at half and run again, against an undisturbed one; ratios pair by pair."""

    undisturbed_seconds: float
    total: Spread
    """Both parts together, as a multiple of the undisturbed build."""
    kept_share: Spread
    """Share of the shards that were finished when the kill came."""


def record_resume(pack: str, source: Source, work: str, num_pairs: int, note: Note) -> Resume:
    """Kill builds with SIGKILL when half of the shards lie there, run them again, compare.

    Raises:
        RuntimeError: the build ended before it could be killed, or the dataset differs from an undisturbed one.
    """
    contestant = ours(pack, "--jobs", "2", *SMALL_SHARDS)
    command = contestant.command(source.path, os.path.join(work, "out"))
    undisturbed, totals, shares = [], [], []
    for number in range(num_pairs + 1):
        clear(work)
        whole = _timed(command)
        num_shards, manifest = _num_shards(work), _read_manifest(work)
        clear(work)
        first, num_kept = _killed_at(command, work, num_shards // 2)
        second = _timed(command)
        if _read_manifest(work) != manifest:
            raise RuntimeError("the resumed dataset differs from the undisturbed one")
        note(
            f"undisturbed {whole:.2f} s; killed after {first:.2f} s with {num_kept} of {num_shards} shards, "
            f"resumed in {second:.2f} s{'' if number else ' (dropped)'}"
        )
        if number:
            undisturbed.append(whole)
            totals.append((first + second) / whole)
            shares.append(num_kept / num_shards)
    clear(work)
    return Resume(statistics.median(undisturbed), Spread.of(totals), Spread.of(shares))


def _timed(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _killed_at(command: list[str], work: str, num_shards: int) -> tuple[float, int]:
    """Start a build and kill all its processes when so many shards lie there; (seconds, shards)."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, process_group=0)
    try:
        while _num_shards(work) < num_shards:
            if process.poll() is not None:
                raise RuntimeError("the build ended before it could be killed; give more --files")
            time.sleep(POLL_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return time.perf_counter() - started, _num_shards(work)


def _num_shards(work: str) -> int:
    try:
        return sum(name.endswith(".tar") and name[0] != "." for name in os.listdir(os.path.join(work, "out")))
    except FileNotFoundError:
        return 0


def _read_manifest(work: str) -> bytes:
    with open(os.path.join(work, "out", "manifest.json"), "rb") as file:
        return file.read()


@dataclass(frozen=True, slots=True)
class Growth:
    """Builds of one size."""

    num_files: int
    seconds: Spread
    cpu_microseconds_per_file: float
    main_bytes: int


def record_growth(
    pack: str, make: Callable[[int], Source], sizes: list[int], work: str, num_runs: int, note: Note
) -> list[Growth]:
    """Build ever bigger datasets of small files.

    Args:
        pack: our program.
        make: number of files → source.
        sizes: numbers of files.
        work: directory for outputs.
        num_runs: counted runs of each; one more is run first.
        note: told about every size.
    """
    found = []
    contestant = ours(pack, "--jobs", "2")
    for num_files in sizes:
        source = make(num_files)
        runs = [pack_once(contestant, source, work) for _ in range(num_runs + 1)][1:]
        main_bytes = pack_once(contestant, source, work, watches_memory=True).peak_bytes["main"]
        seconds = Spread.of([run.seconds for run in runs])
        cpu_seconds = statistics.median(run.cpu_seconds for run in runs)
        note(f"{num_files:,} files: {seconds.median:.2f} s")
        found.append(Growth(num_files, seconds, cpu_seconds / num_files * 1e6, main_bytes))
    return found
