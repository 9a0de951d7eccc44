"""The limit that all stagers of a node share."""

import asyncio
import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stager.bandwidth import BURST_SECONDS, Bandwidth, LimitedRemote
from stager.remotes.posix import PosixRemote

RATE = 1000


class Clock:
    seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "bandwidth.json")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5000), st.floats(0, 3)), min_size=1, max_size=30))
def test_however_many_take_turns_the_limit_holds(tmp_path_factory, takes):
    """No window of time lets more through than the limit and the burst, whoever asks."""
    path, clock = str(tmp_path_factory.mktemp("b") / "bandwidth.json"), Clock()
    stagers = [Bandwidth(path, RATE, clock) for _ in range(3)]
    began = []
    for who, num_bytes, pause in takes:
        began.append((clock.seconds + stagers[who].take(num_bytes), num_bytes))
        clock.seconds += pause
    for first, (start, _) in enumerate(began):
        for last in range(first, len(began)):
            before = sum(num_bytes for _, num_bytes in began[first:last])
            assert before / RATE <= began[last][0] - start + BURST_SECONDS + 1e-6


def test_an_idle_line_lets_the_first_one_through(path):
    clock = Clock()
    bandwidth = Bandwidth(path, RATE, clock)
    assert bandwidth.take(5000) == 0.0
    assert bandwidth.take(1) == pytest.approx(5.0 - BURST_SECONDS)
    clock.seconds += 3600
    assert bandwidth.take(1) == 0.0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b"\xff",
        b'{"boot_id": "another", "free_at_seconds": 1010}',
        b'{"boot_id": "BOOT", "free_at_seconds": 1e9}',
        b'{"boot_id": "BOOT", "free_at_seconds": "soon"}',
    ],
)
def test_what_another_boot_or_nobody_wrote_is_not_believed(path, content):
    from shards.leases import read_boot_id

    with open(path, "wb") as file:
        file.write(content.replace(b"BOOT", read_boot_id().encode()))
    assert Bandwidth(path, RATE, Clock()).take(10) == 0.0
    with open(path, "rb") as file:
        assert json.load(file)["boot_id"] == read_boot_id()


def test_without_a_cache_nothing_is_limited(tmp_path):
    assert Bandwidth(str(tmp_path / "nowhere" / "b.json"), RATE, Clock()).take(10**9) == 0.0


def test_a_limited_remote_reads_what_the_other_one_reads(tmp_path, path):
    (tmp_path / "file").write_bytes(b"content")

    async def work():
        remote = LimitedRemote(PosixRemote(str(tmp_path), 1), Bandwidth(path, 10**9))
        buffer = bytearray(7)
        await remote.read_range("file", 0, memoryview(buffer), await remote.stat("file"))
        await remote.close()
        return bytes(buffer)

    assert asyncio.run(work()) == b"content"


def test_processes_share_the_limit(path):
    program = (
        "import sys; from stager.bandwidth import Bandwidth\n"
        "b = Bandwidth(sys.argv[1], 10)\n"
        "for _ in range(50): b.take(10)\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", program, path]) for _ in range(3)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    # 1,500 bytes at 10 a second are two minutes and a half; the workers took less than that
    assert Bandwidth(path, 10).take(1) > 0


def test_the_program_keeps_to_the_limit(dataset, cache, stage):
    done = stage("run", dataset.path, "--cache-dir", cache, "--bandwidth-limit", "2MB", "--json")
    assert done.code == 0, done.stderr
    assert done.report["seconds"] >= dataset.total_bytes / 2e6 - 2 * BURST_SECONDS - 0.1
    assert dataset.is_staged(cache)
    assert (cache / "bandwidth.json").exists()
