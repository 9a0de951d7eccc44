"""kill -9 at random moments: no file under a final name is ever incomplete, and the next run gives the same bytes."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PACK = os.path.join(os.path.dirname(sys.executable), "pack")
NUM_KILLS = 10
"""For each number of jobs."""
KILLS_PER_DATASET = 4


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_killed_at_any_moment_the_next_run_gives_the_same_bytes(make_tree, tmp_path, read_dataset, jobs):
    files = {
        f"c{n % 7}/{n:04d}.{e}": bytes(n * i % 256 for i in range(n % 2000)) for n in range(600) for e in ("a", "b")
    }
    args = [PACK, "build", make_tree(files), "--shard-size", "25000", "--jobs", jobs, "--quiet"]
    out, whole = tmp_path / "out", tmp_path / "whole"

    def start(destination):
        """Start, and come back when the first bytes are about to be written."""
        process = subprocess.Popen([*args, str(destination)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (destination / ".pack/plan.json").exists() and process.poll() is None:
            time.sleep(0.002)
        return process

    def finish(destination):
        done = subprocess.run([*args, str(destination)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not list(destination.glob(".*.partial"))
        return read_dataset(str(destination)).file_bytes()

    process, started = start(whole), time.monotonic()
    process.wait()
    seconds = time.monotonic() - started
    expected = finish(whole)
    assert len(expected) > 100

    dice = random.Random(int(jobs))
    num_inside = 0
    for kill in range(NUM_KILLS):
        if out.exists():  # going on: the plan is there, and what takes time is the start of the program
            process = subprocess.Popen([*args, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(dice.uniform(0.3, 1.5))
        else:
            process = start(out)
            time.sleep(dice.uniform(0, 0.8) * seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
        names = os.listdir(out) if out.exists() else []
        num_inside += len(names) > 1 and "manifest.json" not in names
        for name in names:
            if not name.startswith("."):
                assert Path(out, name).read_bytes() == expected[name], f"{name} is not whole after kill {kill}"
        if kill % KILLS_PER_DATASET == KILLS_PER_DATASET - 1 or "manifest.json" in names:
            assert finish(out) == expected
            shutil.rmtree(out)
    assert num_inside >= 3, "the kills came too early or too late to mean anything"
