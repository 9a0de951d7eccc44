"""Holding a dataset for other programs, and giving it back: real processes, real signals."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from shards.leases import try_exclude

SECONDS = 40
CHILD = "import os, sys; print(os.getpid(), flush=True); sys.stdin.readline(); sys.exit(7)"


def wait_for(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_free(path):
    held = try_exclude(str(path))
    if held is None:
        return False
    held.close()
    return True


@pytest.fixture
def staged(dataset, cache, stage):
    """A staged dataset that nobody protects."""
    ended = stage("run", dataset.path, "--cache-dir", cache, "--lease-ttl", "0", "--holder", "stager")
    assert ended.code == 0, ended.stderr
    assert is_free(dataset.staged_in(cache))
    return dataset.staged_in(cache)


@pytest.fixture
def hold(cache):
    running = []

    def start(*arguments):
        command = [sys.executable, "-m", "stager", "hold", "--cache-dir", str(cache), "--holder", "job"]
        process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_command_holds_the_dataset_and_has_its_own_exit_code(staged, hold, stage, cache):
    process = hold("-q", staged, "--", sys.executable, "-c", CHILD)
    assert int(process.stdout.readline()) == process.pid
    assert not is_free(staged)
    text = stage("status", "--cache-dir", cache).stdout
    assert "live" in text
    assert "job" in text
    _, err = process.communicate("go\n", timeout=SECONDS)
    assert process.returncode == 7, err
    wait_for(lambda: is_free(staged))


def test_signals_are_the_commands_own(staged, hold):
    process = hold("-q", staged.name[:8], "--", sys.executable, "-c", CHILD)
    assert process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL
    wait_for(lambda: is_free(staged))


def test_options_of_the_command_are_left_alone(staged, hold):
    process = hold("-q", staged, "--", "printf", "%s|", "--holder", "-v", "a b")
    out, _ = process.communicate(timeout=SECONDS)
    assert out == "--holder|-v|a b|"
    process = hold("-q", staged, "printf", "%s", "--quiet")
    assert process.communicate(timeout=SECONDS)[0] == "--quiet"


def test_a_sidecar_holds_until_it_is_stopped_and_gives_back(staged, hold, stage, cache):
    process = hold(staged)
    line = json.loads(process.stderr.readline())
    assert (line["event"], line["holder"]) == ("holding", "job")
    assert not is_free(staged)
    started_at = time.monotonic()
    process.terminate()
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert time.monotonic() - started_at < 5
    assert is_free(staged)
    assert "lease:   none" in stage("status", "--cache-dir", cache).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_cache_that_is_mounted_read_only_will_do(staged, cache, tmp_path, hold):
    view = tmp_path / "view"
    view.mkdir()
    if subprocess.run(["mount", "--bind", str(cache), str(view)], check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(view)], check=True)
        command = [sys.executable, "-m", "stager", "hold", "--cache-dir", str(view)]
        process = subprocess.Popen(
            [*command, str(view / "datasets" / staged.name), "--", sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline(), process.stderr.read()
        assert not is_free(staged)
        _, err = process.communicate("go\n", timeout=SECONDS)
        assert process.returncode == 7
        assert "held without a name" in err
    finally:
        subprocess.run(["umount", "-l", str(view)], check=True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("ffffffffff", "--", "true"), 66, "is not in the cache"),
        (("/nowhere", "--", "true"), 66, "is no staged dataset"),
        (("STAGED", "--", "/no/such/program"), 64, "cannot run /no/such/program"),
    ],
)
def test_what_cannot_be_held_or_run_is_explained(staged, stage, cache, arguments, code, said):
    words = [str(staged) if word == "STAGED" else word for word in arguments]
    ended = stage("hold", "--cache-dir", cache, *words)
    assert ended.code == code
    assert said in ended.message
    assert "Traceback" not in ended.stderr


def test_release_ends_the_grace_of_a_holder_alone(dataset, cache, stage):
    for holder in ("job", "other"):
        assert stage("run", dataset.path, "--cache-dir", cache, "--holder", holder).code == 0
    ended = stage("release", "--cache-dir", cache, "--holder", "job", "--json")
    assert ended.code == 0, ended.stderr
    (lease,) = json.loads(ended.stdout)["leases"]
    assert (lease["holder"], lease["is_released"]) == ("job", True)
    text = stage("status", "--cache-dir", cache).stdout
    assert "other" in text
    assert "(job" not in text
    again = stage("release", "--cache-dir", cache, "--holder", "job")
    assert again.code == 0
    assert dataset.is_staged(cache)


def test_release_of_what_still_runs_is_refused(staged, hold, stage, cache):
    process = hold(staged)
    assert process.stderr.readline()
    ended = stage("release", "--cache-dir", cache, "--holder", "job")
    assert ended.code == 75
    assert "its process runs" in ended.stdout
    assert not is_free(staged)


def test_release_with_delete_makes_the_data_go(dataset, cache, stage):
    assert stage("run", dataset.path, "--cache-dir", cache, "--holder", "job").code == 0
    ended = stage("release", "--cache-dir", cache, "--holder", "job", "--retain", "delete", dataset.staged_in(cache))
    assert ended.code == 0, ended.stderr
    assert not dataset.staged_in(cache).exists()


def test_release_without_a_cache_is_explained(cache, stage):
    ended = stage("release", "--cache-dir", cache)
    assert ended.code == 66
    assert "no Shardferry cache" in ended.message
