"""Stagers that share a cache are killed again and again: see ``kill_rounds.py``.

All 500 kills: ``make test-slow ARGS="-k many_kills --kills 20"``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS_FOR_EACH = 25
"""Kills for each of ``--kills``: 100 by default, 500 with ``--kills 20``."""

KILL_ROUNDS = Path(__file__).with_name("kill_rounds.py")


@pytest.fixture
def small_disk(tmp_path):
    """An ext4 filesystem of 64 MiB in a file, where one may be mounted; its use can be seen at any moment."""
    if os.geteuid() != 0:
        yield None
        return
    image, path = tmp_path / "image", tmp_path / "disk"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    made = subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0", str(image)], check=False)
    if made.returncode or subprocess.run(["mount", "-o", "loop", str(image), str(path)], check=False).returncode:
        path.rmdir()
        yield None
        return
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def play(directory, num_kills, seed):
    command = [sys.executable, str(KILL_ROUNDS), str(directory), str(num_kills), str(seed)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    print(facts)
    assert facts["faults"] == [], done.stderr
    return facts


def test_stagers_that_are_killed_leave_no_bad_byte_no_stuck_run_and_others_files_alone(tmp_path, small_disk):
    facts = play(tmp_path, 25, 1)
    assert facts["in_the_middle"] > 0
    if small_disk is not None:
        assert facts["looks"] > 100
        assert facts["most_bytes"] > 2 * 1024 * 1024


@pytest.mark.slow
def test_many_kills_leave_no_bad_byte_no_stuck_run_and_others_files_alone(tmp_path, small_disk, request):
    num_kills = KILLS_FOR_EACH * request.config.getoption("--kills")
    facts = play(tmp_path, num_kills, 2)
    assert facts["in_the_middle"] > num_kills // 10
    assert facts["refused"] > 0
    assert facts["reboots"] > 0
