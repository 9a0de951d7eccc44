"""kill -9 at random moments over Ray: the driver, workers, all workers at once. ``--kills N`` says how often for each.

``make test-ray ARGS="--kills 50"`` kills 100 times.
"""

import os
import random
import signal

import pytest

from tests.packer.killing import Build, Directory, kill_again_and_again

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

SHARDS = ("--shard-size", "25000")
"""Some 60 of them: as many moments between shards."""


@pytest.fixture
def num_kills(request):
    return request.config.getoption("--kills")


@pytest.fixture
def place(tmp_path):
    return Directory(tmp_path / "out")


@pytest.fixture
def build(nodes, source):
    return Build(str(source), (*SHARDS, "--engine", "ray", "--ray-address", nodes.address))


@pytest.mark.rounds
def test_killed_drivers_leave_whole_files_and_the_next_run_goes_on(build, place, expected, num_kills, capsys):
    """The next one begins while workers of the killed one may still be at work."""
    moments = kill_again_and_again(build, place, num_kills, random.Random(41))
    with capsys.disabled():
        print(f" {dict(moments)} ", end="")
    assert build.finish(place) == expected(*SHARDS)
    assert num_kills < 8 or moments["between"], "the kills came too early or too late to mean anything"


@pytest.mark.rounds
def test_killed_workers_change_nothing(start, nodes, place, source, expected, num_kills):
    dice = random.Random(42)
    whole = expected(*SHARDS)
    num_inside = 0
    for _ in range(num_kills):
        is_for_all, target = dice.random() < 0.3, dice.randrange(len(whole) // 2 - 2)
        running = start(source, place.path, *SHARDS)
        running.wait_until(lambda target=target: running.num_finished() >= target or running.is_done())
        num_killed = 0
        while not num_killed and not running.is_done():
            num_killed = sum(map(end_at_once, nodes.busy_workers()[: None if is_for_all else 1]))
        num_inside += num_killed > 0
        for name in place.names():
            assert place.read(name) == whole[name], f"{name} is not whole"
        code, _, stderr = running.finish()
        assert code == 0, stderr
        assert {name: place.read(name) for name in place.names()} == whole
        assert not place.leftovers()
        place.clear()
    assert num_inside >= num_kills // 2, "the kills came too late to mean anything"


def end_at_once(pid):
    """Kill a process; whether there was one."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
