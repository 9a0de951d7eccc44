"""Times our loaders beside other libraries, in one run, on samples that it makes.

    make bench-load                                       everything, in an environment of its own
    python benchmarks/load.py --only sequential/webdataset --samples 20000

Needs the packages of benchmarks/requirements.txt in the running interpreter.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass

from pairs import Spread
from processes import run
from readers import make_data
from tables import TIMES, TO

READERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "readers.py")


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: who reads what, and how many times as quick ours should be at least."""

    base: str
    base_work: str
    our_work: str
    aim: float

    @property
    def name(self) -> str:
        """As ``--only`` takes it."""
        return f"{self.our_work}/{self.base}"


ROWS = (
    Row("webdataset", "sequential", "sequential", 20),
    Row("mosaicml", "sequential", "sequential", 20),
    Row("litdata", "sequential", "sequential", 2),
    Row("mmap", "sequential", "sequential", 0.6),
    Row("webdataset", "shuffled", "shuffled", 40),
    Row("mosaicml", "shuffled", "shuffled", 40),
    Row("webdataset", "workers", "workers", 2.5),
    Row("mosaicml", "workers", "workers", 2),
    Row("litdata", "workers", "workers", 1.2),
    Row("webdataset", "workers", "threads", 4),
)


@dataclass(frozen=True, slots=True)
class Result:
    """What a row gave."""

    row: Row
    base_rate: Spread
    our_rate: Spread
    ratio: Spread


def main() -> int:
    """Run what was asked for."""
    given = _parse()
    pack = shutil.which(given.pack)
    if pack is None:
        print(f"there is no program {given.pack}; install Shardferry into this environment", file=sys.stderr)
        return 2
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="load-benchmark-") as temporary:
        work = os.path.abspath(given.work or temporary)
        data = os.path.join(work, f"data-{given.samples}-{given.mean_bytes}")
        os.makedirs(data, exist_ok=True)
        _note("making samples")
        rows = [row for row in ROWS if not given.only or row.name in given.only]
        make_data(data, given.samples, given.mean_bytes, pack, {row.base for row in rows})
        results = []
        for row in rows:
            results.append(compare(row, data, work, given.samples, given.pairs))
            print(_line(results[-1]), flush=True)
    resume = statistics.median(time_resume() for _ in range(9))
    print("\n".join(table(results)))
    print(f"- resume in the middle of 100,000,000 samples, to the first batch's numbers: {resume * 1000:.1f} ms")
    print(f"- {given.samples:,} samples of {given.mean_bytes:,} bytes on average, {given.pairs} counted pairs")
    print(f"- load average when it began: {load_before:.1f}; when it ended: {os.getloadavg()[0]:.1f}")
    return 0


def compare(row: Row, data: str, work: str, num_samples: int, num_pairs: int) -> Result:
    """Read in turn, the other one and ours; the first pair is dropped.

    Raises:
        RuntimeError: one of them lost samples.
    """
    pairs = []
    for number in range(num_pairs + 1):
        base = measure(row.base, row.base_work, data, work, num_samples)
        ours = measure("ours", row.our_work, data, work, num_samples)
        _note(f"{row.name}: {base:.2f} s, ours {ours:.2f} s{'' if number else ' (dropped)'}")
        if number:
            pairs.append((base, ours))
    return Result(
        row,
        Spread.of([num_samples / base for base, _ in pairs]),
        Spread.of([num_samples / ours for _, ours in pairs]),
        Spread.of([base / ours for base, ours in pairs]),
    )


def measure(reader: str, what: str, data: str, work: str, num_samples: int) -> float:
    """Read once in a process of its own; gives the seconds."""
    result = os.path.join(work, "result.json")
    command = [sys.executable, READERS, reader, what, data, result]
    run(command, log=os.path.join(work, "log"), env={"OMP_NUM_THREADS": "1"})
    with open(result) as file:
        counted = json.load(file)
    if counted["num_samples"] != num_samples:
        raise RuntimeError(f"{reader} gave {counted['num_samples']} of {num_samples} samples ({what})")
    return float(counted["seconds"])


def time_resume() -> float:
    """Go on in the middle of an epoch of 10**8 samples in 10,000 shards, up to the numbers of the first batch."""
    from loaders.order import DatasetOrder, RankEpoch, Topology
    from shards.epoch_order import OrderSpec

    names = tuple(f"train-{number:06d}.tar" for number in range(10_000))
    order = DatasetOrder(shard_names=names, shard_samples=(10_000,) * 10_000, spec=OrderSpec())
    started = time.perf_counter()
    plan = RankEpoch(order, 3, Topology(rank=3, world_size=8), "pad")
    numbers = plan.numbers(plan.positions(50_000_000)[:256])
    seconds = time.perf_counter() - started
    if len(set(numbers)) != 256:
        raise RuntimeError("a batch has a sample twice")
    return seconds


def table(results: list[Result]) -> list[str]:
    """The results as Markdown."""
    head = [
        "| work | against | its samples/s | ours samples/s | ours is … times as quick | aim |",
        "|---|---|---|---|---|---|",
    ]
    return head + [_line(result) for result in results]


def _line(result: Result) -> str:
    row, ratio = result.row, result.ratio
    reached = "reached" if ratio.median >= row.aim else "**not reached**"
    against = row.base if row.base_work == row.our_work else f"{row.base}, {row.base_work}"
    return (
        f"| {row.our_work} | {against} | {result.base_rate.median:,.0f} | {result.our_rate.median:,.0f} "
        f"| {ratio.median:.2f} {TIMES} ({ratio.low:.2f}{TO}{ratio.high:.2f}) | {row.aim:g} {TIMES} {reached} |"
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = os.path.join(os.path.dirname(sys.executable), "pack")
    parser.add_argument("--samples", type=int, default=100_000, metavar="N", help="samples (default: %(default)s)")
    parser.add_argument(
        "--mean-bytes", type=int, default=24_000, metavar="N", help="of a sample (default: %(default)s)"
    )
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="counted pairs (default: %(default)s)")
    parser.add_argument(
        "--only", action="append", choices=[row.name for row in ROWS], help="only this row; may be repeated"
    )
    parser.add_argument(
        "--work", metavar="DIR", help="where samples are made and kept (default: a temporary directory)"
    )
    parser.add_argument(
        "--pack", default=beside, metavar="PROGRAM", help="our program (default: the one beside this Python)"
    )
    return parser.parse_args()


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
