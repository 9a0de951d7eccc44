"""Kills at random moments over Ray: the driver, workers, all workers of a node. The bytes are always the same.

``RAY_KILLS`` says how often; ``RAY_KILLS_SEED`` chooses other moments.
"""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.ray.cluster import contents

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

NUM_KILLS = int(os.environ.get("RAY_KILLS", "10"))
SEED = int(os.environ.get("RAY_KILLS_SEED", "0"))
SHARDS = ("--shard-size", "25000")
"""Some 60 of them: as many moments between shards."""
START_SECONDS = 4
VICTIMS = ("driver", "driver", "worker", "all workers")


def assert_whole(out, whole):
    """Whatever lies under a final name is complete, at any moment."""
    names = os.listdir(out) if out.exists() else []
    for name in names:
        if not name.startswith("."):
            assert Path(out, name).read_bytes() == whole[name], f"{name} is not whole"


@pytest.mark.parametrize("kill", range(NUM_KILLS))
def test_killed_at_any_moment_the_bytes_are_the_same(start, nodes, source, expected, tmp_path, kill, record_property):
    whole = expected(*SHARDS)
    num_shards = len(whole) // 2
    out = tmp_path / "out"
    dice = random.Random(SEED * 1_000_003 + kill)
    victim, target = dice.choice(VICTIMS), max(dice.randrange(-6, num_shards - 2), 0)
    running = start(source, out, *SHARDS)
    if victim == "driver":
        running.wait_until(lambda: running.num_finished() >= target)
        if target == 0:
            time.sleep(
                dice.uniform(0, START_SECONDS)
            )  # somewhere between the start of the program and its first shards
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()
        assert_whole(out, whole)
        running = start(source, out, *SHARDS)  # while the workers of the killed one may still be at work
    else:

        def kill_some():
            """Kill who packs a shard just now; true when there was somebody, or all is done."""
            busy = nodes.busy_workers()
            victims = busy if victim == "all workers" else busy[:1]
            for pid in victims:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    victims = []
            return victims or running.process.poll() is not None

        running.wait_until(lambda: running.num_finished() >= target or running.process.poll() is not None)
        while not kill_some():
            pass
        assert_whole(out, whole)
    code, _, stderr = running.finish()
    assert code == 0, stderr
    assert contents(out) == whole
    assert not [name for name in os.listdir(out) if name.endswith(".partial")]
    shutil.rmtree(out)
