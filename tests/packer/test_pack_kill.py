"""kill -9 at random moments: no file under a final name is ever incomplete, and the next run gives the same bytes."""

import contextlib
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

    def count_finished(destination):
        return len(list(destination.glob("[!.]*"))) if destination.exists() else 0

    def start_and_kill(num_finished, delay_seconds):
        """Kill a build soon after so many files lie under their final names."""
        with subprocess.Popen([*args, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while count_finished(out) < num_finished and process.poll() is None:
                time.sleep(0.001)
            time.sleep(delay_seconds)
            process.send_signal(signal.SIGKILL)

    def finish(destination):
        done = subprocess.run([*args, str(destination)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not list(destination.glob(".*.partial"))
        return read_dataset(str(destination)).file_bytes()

    expected = finish(whole)
    assert len(expected) > 100
    dice = random.Random(int(jobs))
    num_inside = 0
    for kill in range(NUM_KILLS):
        # none: somewhere between the start of the program and its first shard
        target = dice.choice([0, dice.randrange(1, len(expected) - 10)])
        start_and_kill(max(target, count_finished(out) + 1) if target else 0, dice.uniform(0, 0.01 if target else 1))
        names = os.listdir(out) if out.exists() else []
        num_inside += count_finished(out) > 0 and "manifest.json" not in names
        for name in names:
            if not name.startswith("."):
                assert Path(out, name).read_bytes() == expected[name], f"{name} is not whole after kill {kill}"
        if kill % KILLS_PER_DATASET == KILLS_PER_DATASET - 1 or "manifest.json" in names:
            assert finish(out) == expected
            shutil.rmtree(out)
    assert num_inside >= 3, "the kills came too late to mean anything"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_whole_process_group_ends_quietly_at_any_moment(make_tree, many_files, tmp_path, number):
    """What Ctrl-C does: the workers get it too, whatever they are just doing."""
    source = make_tree(many_files)
    codes = set()
    for round_number in range(8):
        out = str(tmp_path / f"out{round_number}")
        command = [PACK, "build", source, out, "--shard-size", "16KiB", "--jobs", "2", "--quiet"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        deadline = time.monotonic() + 30
        while not os.path.exists(f"{out}/.pack/plan.json") and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.04 * round_number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        stderr = process.communicate(timeout=60)[1]
        assert b"Traceback" not in stderr, stderr
        assert process.returncode in {0, -number, 128 + number}, stderr
        codes.add(process.returncode)
    assert 128 + number in codes
