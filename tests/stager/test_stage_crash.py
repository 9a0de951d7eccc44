"""Killed, stopped, out of space: what is left, and that the next run goes on."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from shards.errors import NoSpaceError

SLOW_STAGE = Path(__file__).with_name("slow_stage.py")
SLOW_PROGRAM = """
import runpy, sys
import stager.remotes.open
from stager.cli import main
sys.argv = sys.argv[1:]
stager.remotes.open.PosixRemote = runpy.run_path(sys.argv[0])["SlowRemote"]
stager.remotes.open.PosixRemote.delay_seconds = 0.1
main()
"""
"""The program itself, on a source that answers slowly."""


def start_slowly(dataset, cache, delay_seconds):
    """Start the stager on a slow source, and return when it begins."""
    process = subprocess.Popen(
        [sys.executable, str(SLOW_STAGE), str(dataset.path), str(cache), str(delay_seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "started\n"
    return process


def finish(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return int(out)


def test_killed_at_any_moment_nothing_wrong_has_a_final_name_and_the_next_run_finishes(
    publish, tmp_path, cache, stage_here
):
    blocks = 6
    dataset = publish(tmp_path / "published", [blocks * 65536 + number for number in range(8)])
    random = Random(20)
    num_kills = num_in_the_middle = 0
    while num_kills < 20:
        process = start_slowly(dataset, cache, 0.02)
        time.sleep(random.uniform(0.0, 0.5))
        process.kill()
        process.communicate()
        num_kills += 1
        assert dataset.wrong_files(cache) == []
        staged = dataset.staged_in(cache)
        is_complete = (staged / "manifest.json").exists()
        assert not is_complete or dataset.is_staged(cache)
        if not is_complete and list(staged.glob(".stage/*.partial")):
            num_in_the_middle += 1
        if is_complete:
            stage_here(dataset, cache)
            assert dataset.is_staged(cache)
            shutil.rmtree(cache)
    stage_here(dataset, cache)
    assert dataset.is_staged(cache)
    assert num_in_the_middle >= 5
    assert [path.name for path in dataset.staged_in(cache).glob("**/.*.partial")] == []
    left = sorted(path.name for path in dataset.staged_in(cache).glob(".stage/*"))
    assert left == ["manifest.json", "status.json", "used.json"]


def test_a_killed_run_is_resumed_and_no_finished_block_is_fetched_again(publish, tmp_path, cache, stage_here):
    dataset = publish(tmp_path / "published", [40 * 65536])
    process = start_slowly(dataset, cache, 0.05)
    partial = dataset.staged_in(cache) / ".stage" / "train-000000.tar.partial"
    while not partial.exists() or partial.stat().st_blocks * 512 < 12 * 65536:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    again = stage_here(dataset, cache)
    assert dataset.is_staged(cache)
    shard_bytes = 40 * 65536
    assert again.report.resumed_bytes >= 11 * 65536
    assert again.remote.read_bytes["train-000000.tar"] == shard_bytes - again.report.resumed_bytes


def test_a_damaged_block_of_a_partial_is_fetched_again_and_the_others_are_kept(publish, tmp_path, cache, stage_here):
    dataset = publish(tmp_path / "published", [10 * 65536])
    stage_dir = dataset.staged_in(cache) / ".stage"
    stage_dir.mkdir(parents=True)
    data = bytearray((dataset.path / "train-000000.tar").read_bytes())
    data[3 * 65536 + 5] ^= 1
    # blocks 6 and 7 are a hole, and the partial is too long
    with (stage_dir / "train-000000.tar.partial").open("wb") as file:
        file.write(data[: 6 * 65536])
        file.seek(8 * 65536)
        file.write(data[8 * 65536 :] + b"more than there should be")
    again = stage_here(dataset, cache)
    assert dataset.is_staged(cache)
    assert again.remote.read_bytes["train-000000.tar"] == 3 * 65536
    assert again.report.resumed_bytes == 7 * 65536


def test_leftovers_of_killed_writers_go(dataset, cache, stage_here):
    staged = dataset.staged_in(cache)
    (staged / ".stage").mkdir(parents=True)
    leftovers = [
        staged / ".train-000000.tar.index.arrow.0123456789abcdef.partial",
        staged / ".stage" / ".status.json.0123456789abcdef.partial",
    ]
    for path in leftovers:
        path.write_text("half")
    stage_here(dataset, cache)
    assert not any(path.exists() for path in leftovers)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_keeps_partials_and_says_how_to_go_on(publish, tmp_path, cache, stage_here, number, code):
    dataset = publish(tmp_path / "published", [40 * 65536])
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            SLOW_PROGRAM,
            str(SLOW_STAGE),
            *("run", str(dataset.path), "--cache-dir", str(cache), "--connections", "2"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    partial = dataset.staged_in(cache) / ".stage" / "train-000000.tar.partial"
    while not partial.exists() or partial.stat().st_blocks * 512 < 4 * 65536:
        assert process.poll() is None
        time.sleep(0.01)
    started_at = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=10)
    assert process.returncode == code
    assert time.monotonic() - started_at < 5.0
    assert number.name in err
    assert "run the same command again" in err
    assert "Traceback" not in err
    again = stage_here(dataset, cache)
    assert again.report.resumed_bytes >= 3 * 65536
    assert dataset.is_staged(cache)


def test_a_source_that_hangs_does_not_keep_the_program_from_stopping(dataset, cache):
    program = (
        "import os, sys, time, stager.remotes.posix as posix\n"
        "class Hanging(posix.PosixRemote):\n"
        "    def _read_range(self, name, offset, buffer, version):\n"
        "        if name.endswith('.tar'):\n"
        "            os.write(1, b'hangs\\n')\n"
        "            time.sleep(60)\n"
        "        return super()._read_range(name, offset, buffer, version)\n"
        "import stager.remotes.open; stager.remotes.open.PosixRemote = Hanging\n"
        "from stager.cli import main; main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "run", str(dataset.path), "--cache-dir", str(cache), "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "hangs\n"
    started_at = time.monotonic()
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - started_at < 5.0
    assert process.returncode == 143
    assert "left behind" in err


@pytest.fixture
def small_disk(tmp_path):
    """A filesystem of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    path = tmp_path / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)], check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_too_little_space_is_told_before_the_first_byte(publish, tmp_path, small_disk, stage):
    dataset = publish(tmp_path / "published", [40 * 65536] * 2)
    ended = stage("run", dataset.path, "--cache-dir", small_disk / "cache")
    assert ended.code == 79
    assert "not enough space" in ended.message
    assert "needed 5" in ended.message
    assert list((small_disk / "cache").rglob("*.tar*")) == []


def test_a_disk_that_fills_up_loses_the_unfinished_and_keeps_the_finished(
    publish, tmp_path, small_disk, stage_here, stage
):
    dataset = publish(tmp_path / "published", [4 * 65536, 40 * 65536])
    cache = small_disk / "cache"

    from stager.remotes.posix import PosixRemote

    class Filling(PosixRemote):
        """Somebody else takes the space when the second shard is half there."""

        async def read_range(self, name, offset, buffer, version):
            if offset == 20 * 65536:
                (small_disk / "foreign").write_bytes(bytes(shutil.disk_usage(small_disk).free))
            await super().read_range(name, offset, buffer, version)

    with pytest.raises(NoSpaceError) as caught:
        stage_here(dataset, cache, remote=Filling(str(dataset.path), 1), connections=1)
    assert caught.value.needed_bytes == 40 * 65536
    staged = dataset.staged_in(cache)
    assert (staged / "train-000000.tar").exists()
    assert list(staged.rglob("*.partial")) == []
    assert dataset.wrong_files(cache) == []
    assert shutil.disk_usage(small_disk).free >= 19 * 65536
    assert stage("run", dataset.path, "--cache-dir", cache).code == 79
    (small_disk / "foreign").unlink()
    stage_here(dataset, cache)
    assert dataset.is_staged(cache)
