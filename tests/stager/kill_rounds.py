"""A program for tests: ``kill_rounds.py DIRECTORY KILLS SEED`` kills stagers that share a small cache, again and again.

Each round starts 1 to 8 stagers, and now and then a cleaning, on one cache with a quota that holds two of four
datasets; most of them get SIGKILL at a random moment. Then everything is compared with what was published, and one more
stager has to succeed with no help. In between: reboots, corrupted partials, files of others.

Stagers are forked, not started: 500 kills take minutes instead of an hour. When DIRECTORY/disk is a mounted filesystem,
the cache lies there and a process looks all the time how much of it is in use; that must never be more than the quota.

Prints one JSON object: what happened, and the faults that were found.
"""

import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from random import Random

from shards.cache import CacheLayout
from shards.errors import NoSpaceError
from stager.config import StageConfig
from stager.limits import Retain, SpaceLimits
from stager.reclaim import clean, hold_gc_lock
from stager.run import run_stage

HERE = Path(__file__).parent
SlowRemote = runpy.run_path(str(HERE / "slow_stage.py"))["SlowRemote"]
BLOCK = 64 * 1024
SIZES = [4 * BLOCK, 3 * BLOCK + 17, 6 * BLOCK, BLOCK, 5 * BLOCK + 4000]
QUOTA = 4 * 1024 * 1024
LIMITS = SpaceLimits(quota_bytes=QUOTA, high_watermark=1.0, low_watermark=1.0, min_idle_seconds=0.0)
FINISH_SECONDS = 120.0
BOOT = "01234567-89ab-cdef-0123-456789abcdef"


def stage(source, cache, holder, delay_seconds):
    """Run a stager in this process; give its exit code."""
    config = StageConfig(
        source=str(source),
        cache_dir=str(cache),
        holder=holder,
        connections=4,
        lease_ttl_seconds=0.0,
        space=LIMITS,
        retain=Retain.LRU,
    )
    remote = SlowRemote(config.source, config.connections)
    remote.delay_seconds = delay_seconds
    try:
        run_stage(config, lambda error: os._exit(3), lambda config: remote)
    except NoSpaceError:
        return 79
    return 0


def fork(function, *args):
    """Run a function in a forked process, which ends with its result as exit code."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = function(*args)
    except BaseException as error:  # noqa: BLE001
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def clean_cache(cache):
    layout = CacheLayout(str(cache))
    with hold_gc_lock(layout):
        clean(layout, LIMITS)
    return 0


def watch(disk, baseline_bytes, result_path):
    """Look how much of a filesystem is in use until SIGTERM; write down the most that was seen."""
    is_over = []
    signal.signal(signal.SIGTERM, lambda *_: is_over.append(True))
    most, looks = 0, 0
    while not is_over:
        facts = os.statvfs(disk)
        most = max(most, (facts.f_blocks - facts.f_bfree) * facts.f_frsize - baseline_bytes)
        looks += 1
        time.sleep(0.0005)
    Path(result_path).write_text(json.dumps([most, looks]))
    return 0


class Rounds:
    def __init__(self, directory, seed):
        conftest = runpy.run_path(str(HERE / "conftest.py"))
        self.random = Random(seed)
        self.disk = directory / "disk"
        self.cache = (self.disk if self.disk.is_mount() else directory) / "cache"
        self.datasets = [
            conftest["publish"](directory / f"published-{number}", SIZES, seed=number) for number in range(4)
        ]
        self.facts = {"kills": 0, "rounds": 0, "finished": 0, "refused": 0, "reboots": 0, "in_the_middle": 0}
        self.faults = []
        self.foreign = {}

    def lay_foreign_files(self):
        (self.cache / "datasets").mkdir(parents=True, exist_ok=True)
        places = [self.cache / "mine", self.cache / "datasets" / "mine.tar"]
        places += [dataset.staged_in(self.cache) / "mine.txt" for dataset in self.datasets[:1]]
        for path in places:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine")
            self.foreign[path] = path.stat().st_ino

    def play(self, num_kills):
        self.lay_foreign_files()
        while self.facts["kills"] < num_kills:
            self.facts["rounds"] += 1
            self.play_round()
            self.check()
            self.disturb()
            self.must_finish()

    def play_round(self):
        running = {}
        for number in range(self.random.randint(1, 8)):
            source = self.random.choice(self.datasets).path
            delay = self.random.choice([0.0, 0.01, 0.03])
            running[fork(stage, source, self.cache, f"h{number}", delay)] = self.random.random() < 0.8
        if self.random.random() < 0.3:
            running[fork(clean_cache, self.cache)] = self.random.random() < 0.5
        victims = [pid for pid, is_victim in running.items() if is_victim]
        self.random.shuffle(victims)
        for pid in victims:
            time.sleep(self.random.uniform(0.0, 0.25))
            os.kill(pid, signal.SIGKILL)
        for pid in running:
            self.reap(pid, has_to_succeed=False)

    def reap(self, pid, *, has_to_succeed):
        deadline = time.monotonic() + FINISH_SECONDS
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() > deadline:
                self.faults.append("a stager is stuck")
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(0.005)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            self.facts["kills"] += 1
        elif code == 0:
            self.facts["finished"] += 1
        elif code == 79 and not has_to_succeed:
            self.facts["refused"] += 1
        else:
            self.faults.append(f"a stager ended with {code}")

    def check(self):
        for number, dataset in enumerate(self.datasets):
            wrong = dataset.wrong_files(self.cache)
            if wrong:
                self.faults.append(f"dataset {number}: wrong bytes under {wrong}")
            staged = dataset.staged_in(self.cache)
            if (staged / "manifest.json").exists() and not dataset.is_staged(self.cache):
                self.faults.append(f"dataset {number} passes for complete and is not")
            self.facts["in_the_middle"] += bool(list(staged.glob(".stage/*.partial")))
        for path, inode in self.foreign.items():
            if not path.exists() or path.read_text() != "mine" or path.stat().st_ino != inode:
                self.faults.append(f"{path} was touched")

    def disturb(self):
        if self.random.random() < 0.2:
            self.facts["reboots"] += 1
            for path in self.cache.glob("leases/*/*.json"):
                text = path.read_text()
                if text:
                    path.write_text(json.dumps({**json.loads(text), "boot_id": BOOT, "boottime_deadline_seconds": 1e9}))
        for path in self.cache.glob("datasets/*/.stage/*.tar.partial"):
            if self.random.random() < 0.2 and path.stat().st_blocks:
                with path.open("r+b") as file:  # what a loss of power leaves
                    file.seek(self.random.randrange(path.stat().st_size))
                    file.write(b"?")

    def must_finish(self):
        dataset = self.random.choice(self.datasets)
        self.reap(fork(stage, dataset.path, self.cache, "last", 0.0), has_to_succeed=True)
        if not dataset.is_staged(self.cache):
            self.faults.append("a run without disturbance did not stage its dataset")


def main():
    directory, num_kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rounds = Rounds(directory, seed)
    watcher, seen_path = None, directory / "seen.json"
    if rounds.disk.is_mount():
        facts = os.statvfs(rounds.disk)
        baseline_bytes = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
        watcher = fork(watch, rounds.disk, baseline_bytes, seen_path)
    try:
        rounds.play(num_kills)
    finally:
        if watcher is not None:
            os.kill(watcher, signal.SIGTERM)
            os.waitpid(watcher, 0)
            rounds.facts["most_bytes"], rounds.facts["looks"] = json.loads(seen_path.read_text())
            if rounds.facts["most_bytes"] > QUOTA:
                rounds.faults.append(f"{rounds.facts['most_bytes']} bytes in use, the quota is {QUOTA}")
        print(json.dumps({**rounds.facts, "faults": sorted(set(rounds.faults))}))


if __name__ == "__main__":
    main()
