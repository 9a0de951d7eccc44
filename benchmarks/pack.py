"""Times ``pack build`` beside other packers, in one run, on files that it makes.

    make bench                                         everything, in an environment of its own (half an hour)
    python benchmarks/pack.py --only tar --only resume

Needs the packages of benchmarks/requirements.txt in the running interpreter, GNU tar, and for the slow mount FUSE.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict

import contestants
import tables
from contestants import Contestant, ours
from pairs import Comparison, compare
from records import Growth, Memory, Resume, record_growth, record_memory, record_resume, record_scaling
from slowmount import can_mount, mounted
from source import Source, make_source

MEAN_BYTES = 20_000
GROWTH_MEAN_BYTES = 2_000
"""Small, so that a million files and their shards stay in the page cache of a small machine."""

TFRECORD = ("--format", "tfrecord")

PEERS: dict[str, tuple[Callable[[], Contestant], tuple[str, ...], float]] = {
    "webdataset": (contestants.webdataset, (), 10),
    "tar": (contestants.gnu_tar, (), 2),
    "mosaicml": (contestants.mosaicml, (), 6),
    "litdata": (contestants.litdata, (), 9),
    "tfrecord": (contestants.tensorflow, TFRECORD, 4),
}
"""Name → (the other one, further options of ours, the speedup aimed at)."""

SLOW_PEERS: dict[str, tuple[Callable[[], Contestant], float]] = {
    "slow-tar": (contestants.gnu_tar, 25),
    "slow-webdataset": (contestants.webdataset, 25),
}
"""The same on the slow mount."""

RECORDS = ("memory", "scaling", "resume", "growth")


def main() -> int:
    """Run what was asked for."""
    given = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended and unmounted
    pack = shutil.which(given.pack)
    if pack is None:
        print(f"there is no program {given.pack}; install Shardferry into this environment", file=sys.stderr)
        return 2
    wanted = set(given.only or (*PEERS, *SLOW_PEERS, *RECORDS))
    with tempfile.TemporaryDirectory(prefix="pack-benchmark-") as temporary:
        work = os.path.abspath(given.work or temporary)
        os.makedirs(work, exist_ok=True)
        bench = _Bench(pack, work, given)
        bench.compare_peers(wanted)
        bench.compare_on_slow_mount(wanted)
        bench.record(wanted)
        print(bench.markdown())
    return 0


class _Bench:
    """Runs the parts and keeps their results."""

    def __init__(self, pack: str, work: str, given: argparse.Namespace) -> None:
        self._pack = pack
        self._work = work
        self._given = given
        self._source: Source | None = None
        self._machine = tables.describe_machine(work)
        self.comparisons: list[tuple[Comparison, float]] = []
        self.memory: list[Memory] = []
        self.scaling: Comparison | None = None
        self.resume: Resume | None = None
        self.growth: list[Growth] = []

    def compare_peers(self, wanted: set[str]) -> None:
        """The comparisons on the local disk."""
        for name, (peer, options, aim) in PEERS.items():
            if name in wanted:
                self._compare(peer(), options, self._get_source(), aim)

    def compare_on_slow_mount(self, wanted: set[str]) -> None:
        """The comparisons on a mount on which every open takes its time."""
        chosen = [entry for name, entry in SLOW_PEERS.items() if name in wanted]
        if not chosen:
            return
        if not can_mount():
            _note("no slow mount: fusermount3 (package fuse3) or /dev/fuse is missing")
            return
        num_files = min(self._given.slow_files, self._given.files)
        source = make_source(self._work, num_files, MEAN_BYTES)
        mountpoint = os.path.join(self._work, "slow")
        with mounted(source.path, mountpoint, self._given.open_ms):
            slow = Source(mountpoint, source.num_files, source.num_bytes)
            for peer, aim in chosen:
                self._compare(peer(), (), slow, aim, suffix=f", {self._given.open_ms:g} ms per open")

    def record(self, wanted: set[str]) -> None:
        """What is recorded about ours alone."""
        if wanted.isdisjoint(RECORDS):
            return
        pairs, source = self._given.pairs, self._get_source()
        if "memory" in wanted:
            _note("memory")
            self.memory = record_memory(self._pack, source, self._work)
            self.save()
        if "scaling" in wanted:
            _note("scaling")
            self.scaling = record_scaling(self._pack, source, self._work, pairs, _note)
            self.save()
        if "resume" in wanted:
            _note("resume")
            self.resume = record_resume(self._pack, source, self._work, pairs, _note)
            self.save()
        if "growth" in wanted:
            _note("growth")
            most = self._given.growth_to
            sizes = [10**power for power in range(4, 8) if 10**power <= most] or [most]
            self.growth = record_growth(self._pack, self._make_small_files, sizes, self._work, pairs, _note)
            self.save()

    def save(self) -> None:
        """Write what is there so far; the whole takes so long that it may be stopped."""
        self._machine["load_average_end"] = round(os.getloadavg()[0], 1)
        if self._given.markdown:
            with open(self._given.markdown, "w") as file:
                file.write(self.markdown() + "\n")
        if self._given.json:
            with open(self._given.json, "w") as file:
                json.dump(self.json(), file, indent=1)

    def markdown(self) -> str:
        """The results for people."""
        parts = [tables.machine_lines(self._machine)]
        if self.comparisons:
            parts.append(tables.comparison_lines(self.comparisons))
        if self.scaling:
            parts.append(tables.scaling_lines(self.scaling))
        if self.resume:
            parts.append(tables.resume_lines(self.resume))
        if self.memory:
            parts.append(tables.memory_lines(self.memory))
        if self.growth:
            parts.append(tables.growth_lines(self.growth))
        return "\n\n".join("\n".join(part) for part in parts)

    def json(self) -> dict[str, object]:
        """The results for programs."""
        return {
            "machine": self._machine,
            "comparisons": [tables.comparison_json(row, aim) for row, aim in self.comparisons],
            "memory": [asdict(row) for row in self.memory],
            "scaling": tables.comparison_json(self.scaling, 0) if self.scaling else None,
            "resume": asdict(self.resume) if self.resume else None,
            "growth": [asdict(row) for row in self.growth],
        }

    def _compare(
        self, peer: Contestant, options: tuple[str, ...], source: Source, aim: float, suffix: str = ""
    ) -> None:
        peer = Contestant(peer.name + suffix, peer.command, peer.count_samples, peer.times_itself)
        _note(f"against {peer.name}")
        mine = ours(self._pack, "--jobs", "2", *options)
        self.comparisons.append((compare(peer, mine, source, self._work, self._given.pairs, _note), aim))
        self.save()

    def _make_small_files(self, num_files: int) -> Source:
        return make_source(self._work, num_files, GROWTH_MEAN_BYTES)

    def _get_source(self) -> Source:
        if self._source is None:
            _note(f"making {self._given.files:,} files")
            self._source = make_source(self._work, self._given.files, MEAN_BYTES)
        return self._source


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = os.path.join(os.path.dirname(sys.executable), "pack")
    names = (*PEERS, *SLOW_PEERS, *RECORDS)
    parser.add_argument("--files", type=int, default=100_000, metavar="N", help="files to pack (default: %(default)s)")
    parser.add_argument(
        "--pairs", type=int, default=5, metavar="N", help="counted pairs of runs (default: %(default)s)"
    )
    parser.add_argument("--only", action="append", choices=names, help="only this part; may be repeated")
    parser.add_argument("--work", metavar="DIR", help="where files are made and kept (default: a temporary directory)")
    parser.add_argument(
        "--slow-files", type=int, default=20_000, metavar="N", help="files on the slow mount (default: %(default)s)"
    )
    parser.add_argument(
        "--open-ms", type=float, default=2.0, metavar="MS", help="what an open takes there (default: %(default)s)"
    )
    parser.add_argument(
        "--growth-to",
        type=int,
        default=10**5,
        metavar="N",
        help="most files of the growth series, up to 1000000 (default: %(default)s)",
    )
    parser.add_argument(
        "--pack", default=beside, metavar="PROGRAM", help="our program (default: the one beside this Python)"
    )
    parser.add_argument("--json", metavar="FILE", help="write all runs there")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables there")
    return parser.parse_args()


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
