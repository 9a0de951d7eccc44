"""Times ``stage run`` beside other copiers, in one run, on shards that it makes.

    make bench-stage                     everything, in an environment of its own (20 minutes)
    python benchmarks/stage.py --only cp-warm --only s5cmd

Needs ``stage`` on the path; for the peers cp, rsync, s5cmd, aws, rclone and s3fs, each left out where it is missing;
for S3 the daemons of Ceph, which are started in memory as by the tests of their tier.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tables
from pairs import Spread
from processes import Usage, run

SHARDS, SHARD_BYTES = 10, 256 * 2**20
MANY_SHARDS, SMALL_BYTES = 1000, 16 * 1024
FIRST_SHARDS = 100
BUCKET = "benchmark"

MADE_BY = """
import os, sys
from pathlib import Path
from shards.digests import BlockHasher, hash_bytes
from shards.index import IndexBuilder
from shards.manifest import ExtensionEntry, Manifest, ShardEntry, SplitEntry
directory, count, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
directory.mkdir(parents=True)
entries = []
for number in range(count):
    name, data, hasher, index = f"train-{number:06d}.tar", os.urandom(size), BlockHasher(), IndexBuilder()
    hasher.update(data)
    blocks = hasher.finish()
    index.add(f"sample{number}", 0, [("bin", 0, size, 0)])
    table = index.finish(shard_name=name, format_name="tar", blocks=blocks)
    (directory / name).write_bytes(data)
    (directory / f"{name}.index.arrow").write_bytes(table)
    entries.append(ShardEntry(name=name, size_bytes=size, digest=blocks.shard_digest, num_samples=1,
        index_name=f"{name}.index.arrow", index_size_bytes=len(table), index_digest=hash_bytes(table)))
split = SplitEntry(name="train", num_samples=count, size_bytes=count * size, shards=tuple(entries),
    extensions={"bin": ExtensionEntry(num_present=count, num_missing=0, size_bytes=count * size)})
(directory / "manifest.json").write_bytes(
    Manifest(shard_format="tar", block_bytes=blocks.block_bytes, splits=(split,)).to_json())
"""
"""In a process of its own: the programs under test are what is timed, not this one's memory."""

S3FS_GET = "import sys, s3fs; s3fs.S3FileSystem().get(sys.argv[1], sys.argv[2], recursive=True)"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another program that brings the same files."""

    name: str
    command: Callable[[str, str], Sequence[str]]
    """From source and target."""
    aim: float
    """How many times as quick ours should be."""
    needs: str
    """Program that must be there."""
    is_cold: bool = False
    """Whether source files are out of the page cache before each run, of ours as well."""


FROM_DIRECTORY = {
    "cp-warm": Peer("cp + sync, source warm", lambda a, b: ("sh", "-c", f"cp -r {a} {b} && sync"), 0.95, "cp"),
    "cp-cold": Peer("cp + sync, source cold", lambda a, b: ("sh", "-c", f"cp -r {a} {b} && sync"), 0.95, "cp", True),
    "rsync": Peer("rsync -a, source warm", lambda a, b: ("rsync", "-a", f"{a}/", f"{b}/"), 2.5, "rsync"),
}

FROM_S3 = {
    "s5cmd": Peer("s5cmd cp", lambda a, b: ("s5cmd", "cp", f"{a}/*", f"{b}/"), 1.0, "s5cmd"),
    "s3fs": Peer("s3fs.get", lambda a, b: (sys.executable, "-c", S3FS_GET, a, b), 1.4, sys.executable),
    "aws": Peer("aws s3 cp", lambda a, b: ("aws", "s3", "cp", "--recursive", "--only-show-errors", a, b), 1.4, "aws"),
    "rclone": Peer(
        "rclone copy",
        lambda a, b: ("rclone", "copy", a.replace("s3://", ":s3,env_auth,provider=Ceph:"), b),
        1.4,
        "rclone",
    ),
}

OTHERS = ("second-pod", "rerun", "first-shard")


class Bench:
    """Runs parts; keeps what they gave."""

    def __init__(self, work: str, num_pairs: int, shard_bytes: int) -> None:
        self._work = work
        self._num_pairs = num_pairs
        self._shard_bytes = shard_bytes
        self.rows: list[dict[str, Any]] = []
        self.facts: dict[str, object] = {}

    def compare(self, peer: Peer, source: str, files: Sequence[str], env: Mapping[str, str]) -> None:
        """Run a peer and ours in turn; the first pair is dropped."""
        if shutil.which(peer.needs) is None:
            note(f"{peer.name}: {peer.needs} is not installed, left out")
            return
        target = self._path("out")
        ours = ("stage", "run", source, "--cache-dir", target, "--quiet")
        base_runs: list[Usage] = []
        ours_runs: list[Usage] = []
        for number in range(self._num_pairs + 1):
            for command, runs in ((peer.command(source, target), base_runs), (ours, ours_runs)):
                usage = self._once(command, files, env, is_cold=peer.is_cold)
                note(f"{command[0]}: {usage.seconds:.2f} s, {usage.cpu_seconds:.2f} s of processor time")
                if number:
                    runs.append(usage)
        pairs = list(zip(base_runs, ours_runs, strict=True))
        self.rows.append(
            {
                "against": peer.name,
                "aim": peer.aim,
                "speedup": asdict(Spread.of([base.seconds / our.seconds for base, our in pairs])),
                "cpu": asdict(Spread.of([our.cpu_seconds / base.cpu_seconds for base, our in pairs])),
                "base_seconds": [usage.seconds for usage in base_runs],
                "ours_seconds": [usage.seconds for usage in ours_runs],
            }
        )

    def second_pod(self, source: str, files: Sequence[str]) -> None:
        """What a second pod takes when the first one has staged the dataset."""
        shares = []
        for _ in range(self._num_pairs):
            first = self._once(("stage", "run", source, "--cache-dir", self._path("out"), "-q"), files, {}, keeps=True)
            second = self._stage_again(source)
            shares.append(second / first.seconds)
        self.facts["second_pod_share"] = statistics.median(shares)

    def rerun(self) -> None:
        """What it takes to find 1 000 shards staged."""
        source = make_dataset(self._path("many"), MANY_SHARDS, SMALL_BYTES)
        self._once(("stage", "run", source, "--cache-dir", self._path("out"), "-q"), (), {}, keeps=True)
        self.facts["rerun_seconds"] = statistics.median(self._stage_again(source) for _ in range(self._num_pairs))

    def first_shard(self) -> None:
        """When the first of 100 shards can be read, as a share of the whole, in progressive mode."""
        source = make_dataset(self._path("hundred"), FIRST_SHARDS, self._shard_bytes // 10)
        shares = []
        for _ in range(self._num_pairs):
            self._clear()
            target = Path(self._path("out"))
            started = time.perf_counter()
            command = ("stage", "serve", source, "--cache-dir", str(target), "--quiet")
            serve = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            try:
                moments = [_wait_for(target, name, started) for name in ("train-000000.tar", "manifest.json")]
            finally:
                serve.terminate()
                serve.wait()
            shares.append(moments[0] / moments[1])
        self.facts["first_shard_share"] = statistics.median(shares)

    def _stage_again(self, source: str) -> float:
        started = time.perf_counter()
        done = subprocess.run(
            ("stage", "run", source, "--cache-dir", self._path("out"), "-q", "--json"), capture_output=True, check=True
        )
        seconds = time.perf_counter() - started
        assert json.loads(done.stdout)["fetched_bytes"] == 0
        return seconds

    def _once(
        self,
        command: Sequence[str],
        files: Sequence[str],
        env: Mapping[str, str],
        *,
        is_cold: bool = False,
        keeps: bool = False,
    ) -> Usage:
        self._clear()
        for path in files:
            set_cached(path, is_cold=is_cold)
        os.sync()
        usage = run(command, log=self._path("log"), env=env)
        if not keeps:
            self._clear()
        return usage

    def _clear(self) -> None:
        """Remove what was written, durably, so that nobody pays for what the one before left."""
        shutil.rmtree(self._path("out"), ignore_errors=True)
        os.sync()

    def _path(self, name: str) -> str:
        return os.path.join(self._work, name)


def set_cached(path: str, *, is_cold: bool) -> None:
    """Bring a file into the page cache, or out of it: the same for both programs of a pair."""
    with open(path, "rb") as file:
        if is_cold:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            while file.read(2**23):
                pass


def make_dataset(path: str, count: int, size: int) -> str:
    """Make a published dataset of random bytes."""
    note(f"making {count} shards of {size} bytes")
    subprocess.run((sys.executable, "-c", MADE_BY, path, str(count), str(size)), check=True)
    return path


def _wait_for(target: Path, name: str, started: float) -> float:
    """Seconds until a file of the staged dataset has its final name."""
    while not list(target.glob(f"datasets/*/{name}")):
        time.sleep(0.002)
    return time.perf_counter() - started


@contextlib.contextmanager
def serving_s3(source: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """A real Ceph RGW that has a dataset; gives its URL and the variables that lead there."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.ceph.conftest import ACCESS_KEY, SECRET_KEY, Cluster

    cluster = Cluster()
    try:
        cluster.start()
        env = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{cluster.rgw_port}",
            "S3_ENDPOINT_URL": f"http://127.0.0.1:{cluster.rgw_port}",  # of s5cmd
            "RCLONE_S3_ENDPOINT": f"http://127.0.0.1:{cluster.rgw_port}",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        url = f"s3://{BUCKET}/set"
        for command in (("mb", f"s3://{BUCKET}"), ("cp", f"{source}/", f"{url}/")):
            subprocess.run(("s5cmd", *command), env={**os.environ, **env}, check=True, stdout=subprocess.DEVNULL)
        yield url, env
    finally:
        cluster.stop()


def markdown(bench: Bench) -> str:
    """The results as tables."""
    lines = [
        "| against | seconds, its | seconds, ours | ours is … times as quick | aim | processor time, ours : its |",
        "|---|---|---|---|---|---|",
    ]
    for row in bench.rows:
        speedup, cpu = row["speedup"], row["cpu"]
        reached = "reached" if speedup["median"] >= row["aim"] else "**not reached**"
        lines.append(
            f"| {row['against']} | {statistics.median(row['base_seconds']):.2f} "
            f"| {statistics.median(row['ours_seconds']):.2f} | {_spread(speedup)} "
            f"| {row['aim']:g} {tables.TIMES} {reached} | {_spread(cpu)} |"
        )
    lines += ["", *(f"- {name}: {value:.4g}" for name, value in bench.facts.items())]
    return "\n".join(lines)


def _spread(spread: Mapping[str, float]) -> str:
    return f"{spread['median']:.2f} {tables.TIMES} ({spread['low']:.2f}{tables.TO}{spread['high']:.2f})"


def note(text: str) -> None:
    """Say how far it is."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Run what was asked for."""
    given = _parse()
    wanted = set(given.only or (*FROM_DIRECTORY, *FROM_S3, *OTHERS))
    with tempfile.TemporaryDirectory(prefix="stage-benchmark-", dir=given.work) as work:
        machine = tables.describe_machine(work)
        bench = Bench(work, given.pairs, given.shard_bytes)
        source = make_dataset(os.path.join(work, "source"), SHARDS, given.shard_bytes)
        files = [entry.path for entry in os.scandir(source)]
        for name in [name for name in FROM_DIRECTORY if name in wanted]:
            bench.compare(FROM_DIRECTORY[name], source, files, {})
        if "second-pod" in wanted:
            bench.second_pod(source, files)
        if wanted & FROM_S3.keys():
            if shutil.which("radosgw") and shutil.which("s5cmd"):
                with serving_s3(source) as (url, env):
                    for name in [name for name in FROM_S3 if name in wanted]:
                        bench.compare(FROM_S3[name], url, (), env)
            else:
                note("no radosgw or no s5cmd: S3 is left out")
        if "rerun" in wanted:
            bench.rerun()
        if "first-shard" in wanted:
            bench.first_shard()
        machine["load_average_end"] = round(os.getloadavg()[0], 1)
        if given.json:
            Path(given.json).write_text(json.dumps({"machine": machine, "rows": bench.rows, "facts": bench.facts}))
        print("\n".join([*tables.machine_lines(machine), "", markdown(bench)]))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[*FROM_DIRECTORY, *FROM_S3, *OTHERS], help="part to run")
    parser.add_argument("--pairs", type=int, default=5, help="counted pairs; one more is run first")
    parser.add_argument("--shard-bytes", type=int, default=SHARD_BYTES, help="of each of the 10 shards")
    parser.add_argument("--work", help="directory for everything, on the disk to be measured")
    parser.add_argument("--json", help="file for the results with every single run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
