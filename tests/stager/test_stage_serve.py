"""Progressive staging with real processes: serve, wait, probes, signals, restarts, failures."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shards.epoch_order import OrderSpec, shard_order
from shards.leases import hold_dataset, try_exclude
from shards.progress import StageProgress, StageState

HANGING_STAGE = str(Path(__file__).parent / "hanging_stage.py")
SECONDS = 40
"""For what takes a fraction of a second when the machine is idle."""


def wait_for(condition, what="the condition"):
    deadline = time.monotonic() + SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.02)
    return result


class Serve:
    """A running ``stage serve``."""

    def __init__(self, cache, command, env=None):
        self.cache = cache
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("STAGE_", "POD_"))}
        self.process = subprocess.Popen(
            command,
            env={**variables, "STAGE_HOLDER": "pod", **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def progress(self):
        path = self.cache / "progress" / "pod.json"
        try:
            return StageProgress.from_json(path.read_bytes(), name="p")
        except FileNotFoundError:
            assert self.process.poll() is None, self.process.stderr.read()
            return None

    def wait_state(self, state):
        return wait_for(lambda: (p := self.progress()) is not None and p.state is state and p, state)

    def end(self, number=signal.SIGTERM):
        started_at = time.monotonic()
        self.process.send_signal(number)
        self.out, self.err = self.process.communicate(timeout=SECONDS)
        self.end_seconds = time.monotonic() - started_at
        return self.process.returncode


@pytest.fixture
def serve(dataset, cache):
    running = []

    def start(*options, source=None, program=("-m", "stager"), env=None):
        command = [sys.executable, *program, "serve", str(source or dataset.path), "--cache-dir", str(cache)]
        running.append(Serve(cache, [*command, *map(str, options)], env))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()
        one.process.stdout.close()
        one.process.stderr.close()


def test_serve_stages_keeps_the_dataset_and_gives_it_back_when_told_to_stop(dataset, cache, tmp_path, serve, stage):
    link = tmp_path / "current"
    one = serve("--link", link)
    progress = one.wait_state(StageState.STAGED)
    assert dataset.is_staged(cache)
    assert link.resolve() == dataset.staged_in(cache) == Path(progress.path)
    assert (progress.num_shards_ready, progress.ready_bytes) == (5, dataset.total_bytes)
    assert progress.is_ready
    assert try_exclude(str(dataset.staged_in(cache))) is None
    assert one.end() == 0, one.err
    assert one.end_seconds < 5
    assert "Traceback" not in one.err
    assert list((cache / "progress").iterdir()) == []
    assert "lease:   none" in stage("status", "--cache-dir", cache).stdout


def test_wait_ends_when_enough_is_ready_and_serve_goes_on(dataset, cache, serve, stage):
    order = shard_order(OrderSpec(shuffle="block", seed=4), 0, 5)
    last = f"train-{order[-1]:06d}.tar"
    one = serve("--seed", 4, program=(HANGING_STAGE, last))
    ended = stage("wait", "--cache-dir", cache, "--min-shards", 4, "--deadline", f"{SECONDS}s", env=pod())
    assert ended.code == 0, ended.stderr
    assert "ready after" in ended.stdout
    assert one.progress().state is StageState.STAGING
    assert one.progress().num_shards_ready == 4
    staged = sorted(path.name for path in dataset.staged_in(cache).glob("*.tar"))
    assert staged == sorted(f"train-{place:06d}.tar" for place in order[:-1])
    assert not (dataset.staged_in(cache) / "manifest.json").exists()
    # what hangs in the kernel does not keep it from stopping
    assert one.end() == 143
    assert one.end_seconds < 5.5
    assert "left behind" in one.err


def pod(**extra):
    return {"STAGE_HOLDER": "pod", **extra}


def test_ready_counts_without_a_gap_from_the_first_shard_on(dataset, cache, serve, stage):
    first = f"train-{shard_order(OrderSpec(shuffle='block'), 0, 5)[0]:06d}.tar"
    one = serve(program=(HANGING_STAGE, first))
    wait_for(lambda: (p := one.progress()) is not None and p.num_shards_staged == 4)
    assert one.progress().num_shards_ready == 0
    ended = stage("wait", "--cache-dir", cache, "--min-shards", 1, "--deadline", "500ms", env=pod())
    assert ended.code == 75
    assert "0 of 5 shards" in ended.message


def test_wait_takes_the_minimum_that_serve_was_told(dataset, cache, serve, stage):
    last = f"train-{shard_order(OrderSpec(shuffle='block'), 0, 5)[-1]:06d}.tar"
    one = serve("--min-shards", 2, program=(HANGING_STAGE, last))
    ended = stage("wait", "--cache-dir", cache, "--deadline", f"{SECONDS}s", "--json", env=pod())
    assert ended.code == 0, ended.stderr
    assert json.loads(ended.stdout)["is_ready"] is True
    ended = stage("wait", "--cache-dir", cache, "--min-bytes", "1GiB", "--deadline", "300ms", env=pod())
    assert ended.code == 75
    assert one.process.poll() is None


def test_probes_and_metrics(dataset, cache, serve):
    last = f"train-{shard_order(OrderSpec(shuffle='block'), 0, 5)[-1]:06d}.tar"
    one = serve("--listen", "127.0.0.1:0", program=(HANGING_STAGE, last))
    port = next(json.loads(line)["port"] for line in iter(one.process.stderr.readline, "") if "listening" in line)

    def ask(path):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    wait_for(lambda: ask("/startupz")[0] == 200)
    wait_for(lambda: (p := one.progress()) is not None and p.num_shards_staged == 4)
    assert ask("/livez")[0] == 200
    assert ask("/readyz")[0] == 503
    assert "4 of 5 shards staged" in ask("/readyz")[1]
    metrics = ask("/metrics")[1]
    label = dataset.manifest.dataset_id.removeprefix("blake3:")[:12]
    assert f'shardferry_stage_shards_staged{{dataset="{label}"}} 4' in metrics
    assert "shardferry_stage_ready_ratio" in metrics


def read_metrics(path):
    families = text_string_to_metric_families(path.read_text())
    return {(one.name, *sorted(one.labels.values())): one.value for family in families for one in family.samples}


def test_metrics_stay_in_the_cache_for_collectors_of_text_files(dataset, cache, serve, stage):
    label = dataset.manifest.dataset_id.removeprefix("blake3:")[:12]
    assert stage("run", dataset.path, "--cache-dir", cache, env=pod()).code == 0
    metrics = read_metrics(cache / "metrics" / "pod.prom")
    assert metrics["shardferry_stage_bytes_total", *sorted([label, "source"])] == dataset.total_bytes
    assert metrics["shardferry_stage_state", *sorted(["Staged", label])] == 1
    assert metrics["shardferry_stage_remaining_bytes", label] == 0
    path = dataset.path / "train-000001.tar"
    path.write_bytes(bytes(path.stat().st_size))
    assert stage("run", dataset.path, "--cache-dir", cache / "2", env=pod()).code == 65
    assert read_metrics(cache / "2" / "metrics" / "pod.prom")[
        "shardferry_stage_errors_total", *sorted([label, "DigestMismatchError"])
    ]
    one = serve()
    one.wait_state(StageState.STAGED)
    one.end()
    metrics = read_metrics(cache / "metrics" / "pod.prom")
    assert metrics["shardferry_stage_bytes_total", *sorted([label, "source"])] == 0
    assert metrics["shardferry_stage_bytes_total", *sorted(["cache", label])] == dataset.total_bytes


def test_a_permanent_error_is_told_to_wait_and_serve_lives_on(dataset, cache, tmp_path, serve, stage):
    one = serve(source=tmp_path / "nowhere")
    progress = one.wait_state(StageState.FAILED)
    assert (progress.code, progress.reason) == (66, "RemoteMissingError")
    words = tmp_path / "words"
    words.touch()
    ended = stage("wait", "--cache-dir", cache, "--termination-log", words, env=pod())
    assert ended.code == 66
    assert "nowhere" in ended.message
    assert json.loads(words.read_text())["code"] == 66
    assert one.process.poll() is None
    assert one.end() == 143


def test_damage_at_the_source_is_a_permanent_error(dataset, cache, serve, stage):
    path = dataset.path / "train-000001.tar"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    one = serve()
    assert one.wait_state(StageState.FAILED).code == 65
    assert stage("wait", "--cache-dir", cache, env=pod()).code == 65
    assert dataset.wrong_files(cache) == []


def test_what_may_pass_is_tried_again(dataset, cache, small_disk_cache, serve, stage):
    full = small_disk_cache / "foreign"
    full.write_bytes(bytes(shutil.disk_usage(small_disk_cache).free - 64 * 1024))
    one = serve("--cache-dir", small_disk_cache / "cache")
    one.cache = small_disk_cache / "cache"
    progress = wait_for(lambda: (p := one.progress()) is not None and p.code and p)
    assert (progress.code, progress.state) == (79, StageState.STAGING)
    full.unlink()
    one.wait_state(StageState.STAGED)
    assert one.progress().code == 0
    assert dataset.is_staged(small_disk_cache / "cache")


@pytest.fixture
def small_disk_cache(tmp_path):
    """A filesystem of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    path = tmp_path / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)], check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_killed_and_started_again_it_goes_on(dataset, cache, serve, stage):
    last = f"train-{shard_order(OrderSpec(shuffle='block'), 0, 5)[-1]:06d}.tar"
    one = serve(program=(HANGING_STAGE, last))
    wait_for(lambda: (p := one.progress()) is not None and p.num_shards_staged == 4)
    one.process.kill()
    one.process.wait()
    # its last words are still there, but it does not live: nobody may take them for the truth
    ended = stage("wait", "--cache-dir", cache, "--min-shards", 1, "--deadline", "300ms", env=pod())
    assert ended.code == 75
    assert "has ended" in ended.message
    two = serve()
    two.wait_state(StageState.STAGED)
    assert two.progress().fetched_bytes < dataset.total_bytes
    assert dataset.is_staged(cache)
    assert stage("wait", "--cache-dir", cache, env=pod()).code == 0


def test_two_stagers_of_one_name_are_refused(dataset, cache, serve):
    one = serve()
    one.wait_state(StageState.STAGED)
    two = serve()
    _, err = two.process.communicate(timeout=SECONDS)
    assert two.process.returncode == 74
    assert "--holder" in err
    assert one.process.poll() is None


def test_wait_says_for_what_it_waits_when_nobody_stages(cache, stage):
    ended = stage("wait", "--cache-dir", cache, "--deadline", "300ms", env=pod())
    assert ended.code == 75
    assert "no stage serve has said anything yet as pod" in ended.message


def test_a_reader_that_holds_the_dataset_keeps_it_after_serve_ends(dataset, cache, serve):
    one = serve()
    one.wait_state(StageState.STAGED)
    with hold_dataset(str(dataset.staged_in(cache))):
        assert one.end() == 0
        assert try_exclude(str(dataset.staged_in(cache))) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--listen", "9464"), "--listen"),
        (("--window", "1GiB", "--shuffle", "full"), "exclude each other"),
        (("--min-shards", "0"), "--min-shards"),
        (("--window", "64M"), "ambiguous"),
        (("--seed", "-1"), "--seed"),
        (("-q", "-v"), "exclude each other"),
    ],
)
def test_wrong_options_are_explained(dataset, cache, stage, options, said):
    ended = stage("serve", dataset.path, "--cache-dir", cache, *options)
    assert ended.code == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
