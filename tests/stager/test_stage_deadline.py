"""A deadline is kept, also by a source that hangs; what was finished is kept as well."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

HANGING_STAGE = str(Path(__file__).parent / "hanging_stage.py")


@pytest.fixture
def hanging_stage(dataset, cache):
    """Run ``stage run`` over a source of which one file hangs, and give how it ended and how long that took."""

    def run(*options: str) -> tuple[subprocess.CompletedProcess, float]:
        command = [sys.executable, HANGING_STAGE, "train-000000.tar", "run", str(dataset.path)]
        started_at = time.monotonic()
        done = subprocess.run(
            [*command, "--cache-dir", str(cache), *options], capture_output=True, text=True, check=False, timeout=60
        )
        return done, time.monotonic() - started_at

    return run


def test_a_source_that_hangs_is_left_behind_at_the_deadline(dataset, cache, tmp_path, hanging_stage, stage_here):
    words = tmp_path / "words"
    words.touch()
    done, seconds = hanging_stage("--deadline", "2s", "--termination-log", str(words))
    assert done.returncode == 75, done.stderr
    assert "the deadline of 2.00 s has passed: " in done.stderr
    assert "left behind" in done.stderr
    assert "Traceback" not in done.stderr
    assert seconds < 20
    said = json.loads(words.read_text())
    assert (said["code"], said["result"]) == (75, "StoppedError")
    # the shards that did not hang were brought meanwhile
    assert stage_here(dataset, cache).report.kept_bytes > 0
    assert dataset.is_staged(cache)


def test_a_deadline_in_the_past_is_a_usage_error(dataset, cache, stage):
    assert stage("run", dataset.path, "--cache-dir", cache, "--deadline", "0").code == 2
    assert stage("run", dataset.path, "--cache-dir", cache, "--deadline", "soon").code == 2


def test_a_deadline_that_is_not_reached_changes_nothing(dataset, cache, stage):
    assert stage("run", dataset.path, "--cache-dir", cache, env={"STAGE_DEADLINE": "1h"}).code == 0
    assert dataset.is_staged(cache)
