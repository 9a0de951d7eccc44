"""``stage gc``, ``stage janitor``, ``stage verify`` and the quarantine: what they do to a real cache."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from shards.cache import CacheLayout
from stager.scrub import Scrubber
from stager.stage_metrics import short_id
from stager.verify import Verify

MIB = 1024 * 1024


@pytest.fixture
def staged(publish, tmp_path, cache, stage_here, expire_leases):
    """A dataset of 2 MiB that is staged, and that nobody protects any more."""
    dataset = publish(tmp_path / "published", [MIB, MIB - 100])
    stage_here(dataset, cache)
    expire_leases(cache)
    return dataset


def flip(path, offset=1000):
    """Flip a bit of a file behind everybody's back, as a disk does: size, time and inode stay."""
    status = os.stat(path)
    os.chmod(path, 0o644)
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
    os.chmod(path, 0o444)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def quarantined(cache):
    return [json.loads(path.read_text()) for path in cache.glob("quarantine/*/note.json")]


def test_gc_shows_first_and_then_does_what_it_showed(staged, cache, stage):
    options = ("--cache-dir", cache, "--quota", "2MiB", "--min-idle", "0s")
    shown = stage("gc", *options, "--dry-run", "--json").report
    assert [item["name"] for item in shown["evicted"]] == [staged.manifest.dataset_id]
    assert staged.is_staged(cache)
    assert "would evict" in stage("gc", *options, "--dry-run").stdout
    done = stage("gc", *options, "--json").report
    assert done["evicted"] == shown["evicted"]
    assert done["num_leases_removed"] == 1
    assert done["used_bytes"] < 100_000
    assert not staged.staged_in(cache).exists()
    assert "nothing to evict" in stage("gc", *options).stdout


def test_gc_without_limits_keeps_what_is_staged(staged, cache, stage):
    assert stage("gc", "--cache-dir", cache, "--kubelet-disk", "none").code == 0
    assert staged.is_staged(cache)


def test_the_kubelets_thresholds_are_kept_with_a_margin():
    from stager.kubelet import KubeletDisk, find_kubelet_disk, floors_of

    assert [floor.of(1000) for floor in floors_of(KubeletDisk.NODEFS)] == [150, 100]
    assert [floor.of(1000) for floor in floors_of(KubeletDisk.IMAGEFS)] == [200, 100]
    assert [floor.of(1000) for floor in floors_of(KubeletDisk.NONE)] == [0, 0]
    # no disk has this directory, whatever runs on this machine
    assert find_kubelet_disk("/proc/nowhere/cache", {}) is KubeletDisk.NONE


def test_gc_of_nothing_is_exit_66(cache, stage):
    ended = stage("gc", "--cache-dir", cache)
    assert ended.code == 66
    assert "nothing was staged there" in ended.message


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--quota", "100"), "leaves no room"),
        (("--high-watermark", "50%", "--low-watermark", "60%"), "low <= high"),
        (("--high-watermark", "50"), "write for instance 80%"),
        (("--min-free-bytes", "many"), "or a percentage of the disk"),
        (("--min-free-inodes", "1.5"), "or a percentage of the disk"),
        (("--min-free-bytes", "100%"), "less than 100%"),
    ],
)
def test_limits_that_make_no_sense_are_wrong_usage(staged, cache, stage, options, part):
    for command in (("gc",), ("run", staged.path), ("janitor",)):
        ended = stage(*command, "--cache-dir", cache, *options)
        assert ended.code == 2
        assert part in ended.stderr


def test_limits_come_from_the_environment_as_well(staged, cache, stage):
    env = {"STAGE_QUOTA": "2MiB", "STAGE_MIN_IDLE": "0s", "STAGE_CACHE_DIR": str(cache)}
    assert stage("gc", "--json", env=env).report["evicted_bytes"] > 2 * MIB


def test_a_damaged_shard_is_found_set_aside_and_fetched_again(staged, cache, stage, stage_here):
    path = staged.staged_in(cache) / "train-000000.tar"
    flip(path)
    assert stage_here(staged, cache).report.result == "AlreadyStaged"  # size, time and inode are as they were
    again = stage_here(staged, cache, verify=Verify.FULL)
    assert staged.is_staged(cache)
    assert again.remote.read_bytes.keys() == {"manifest.json", "train-000000.tar"}
    (note,) = quarantined(cache)
    assert note["path"].endswith("train-000000.tar")
    (kept,) = cache.glob("quarantine/*/file")
    assert kept.stat().st_size == MIB


def test_verify_names_what_is_damaged_and_changes_nothing_unless_told_to(staged, cache, stage, stage_here):
    assert "all is right" in stage("verify", "--cache-dir", cache).stdout
    path = staged.staged_in(cache) / "train-000001.tar.index.arrow"
    flip(path)
    ended = stage("verify", "--cache-dir", cache)
    assert ended.code == 65
    assert f"{path}: digest" in ended.message
    assert path.exists()
    ended = stage("verify", staged.manifest.dataset_id, "--cache-dir", cache, "--quarantine", "--json")
    assert ended.code == 65
    assert [item["name"] for item in ended.report["bad"]] == ["train-000001.tar.index.arrow"]
    assert not path.exists()
    assert not (staged.staged_in(cache) / "manifest.json").exists()
    stage_here(staged, cache)
    assert staged.is_staged(cache)
    assert stage("verify", "--cache-dir", cache).code == 0


def test_verify_of_a_dataset_that_is_not_there_is_exit_66(staged, cache, stage):
    ended = stage("verify", "blake3:" + "0" * 64, "--cache-dir", cache)
    assert ended.code == 66
    assert "see stage status" in ended.message


def test_what_is_quarantined_makes_room_first(staged, publish, tmp_path, cache, stage, stage_here):
    flip(staged.staged_in(cache) / "train-000000.tar")
    stage("verify", "--cache-dir", cache, "--quarantine")
    options = ("--cache-dir", cache, "--quota", "3500KiB", "--high-watermark", "100%", "--low-watermark", "100%")
    assert stage("run", staged.path, *options).code == 0
    assert staged.is_staged(cache)
    assert list((cache / "quarantine").iterdir()) == []


def test_a_directory_in_the_way_is_set_aside_and_never_deleted(staged, cache, stage, stage_here, expire_leases):
    path = staged.staged_in(cache) / "train-000000.tar"
    path.unlink()
    (path / "deep").mkdir(parents=True)
    (path / "deep" / "mine.txt").write_text("mine")
    stage_here(staged, cache)
    assert staged.is_staged(cache)
    expire_leases(cache)
    stage("gc", "--cache-dir", cache, "--quota", "2MiB", "--min-idle", "0s")
    (kept,) = cache.glob("quarantine/*/file/deep/mine.txt")
    assert kept.read_text() == "mine"


def test_scrubbing_finds_damage_goes_on_where_it_was_and_ends_when_told(staged, cache):
    layout, stop = CacheLayout(str(cache)), threading.Event()
    bad = staged.staged_in(cache) / "train-000001.tar"
    flip(bad)
    (cache / "scrub.json").write_text(
        json.dumps({"dataset_id": staged.manifest.dataset_id, "name": "train-000001.tar.index.arrow"})
    )
    scrubber = Scrubber(layout, 1 << 40, stop)
    scrubber.scrub_round()
    assert scrubber.totals.num_bad == 1
    assert scrubber.totals.num_bytes == MIB - 100
    assert not bad.exists()
    assert not (staged.staged_in(cache) / "manifest.json").exists()
    scrubber.scrub_round()
    assert scrubber.totals.num_bad == 1
    slow = Scrubber(layout, 1, stop)
    thread = threading.Thread(target=slow.run)
    thread.start()
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


def test_a_bad_file_with_a_name_in_another_dataset_is_hashed_there_as_well(staged, cache, stage, stage_here, publish):
    """The file with two names is the same on disk, so it is bad under both."""
    other = publish(staged.path.parent / "other", [MIB, 12345])
    stage_here(other, cache)
    shared = other.staged_in(cache) / "train-000000.tar"
    assert shared.stat().st_ino == (staged.staged_in(cache) / "train-000000.tar").stat().st_ino
    flip(shared)
    stage_here(staged, cache, verify=Verify.FULL)
    assert staged.is_staged(cache)
    stage_here(other, cache)
    assert other.is_staged(cache)


def test_what_another_dataset_has_is_linked_and_what_is_damaged_there_is_not(staged, cache, stage_here, publish):
    good = publish(staged.path.parent / "good", [MIB, 12345])
    done = stage_here(good, cache)
    assert done.remote.read_bytes.keys() & {"train-000000.tar"} == set()
    assert done.report.linked_bytes >= MIB
    assert done.report.kept_bytes == 0
    assert good.is_staged(cache)
    flip(staged.staged_in(cache) / "train-000000.tar")
    late = publish(staged.path.parent / "late", [MIB, 54321])
    assert "train-000000.tar" in stage_here(late, cache).remote.read_bytes
    assert late.is_staged(cache)
    stage_here(staged, cache)  # which noticed that its file is not what it was
    assert staged.is_staged(cache)


class Janitor:
    """The program, until it is stopped."""

    def __init__(self, cache, *options):
        command = [sys.executable, "-m", "stager", "janitor", "--cache-dir", str(cache), "--metrics", "127.0.0.1:0"]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        assert "metrics on port" in line, line + self.process.stderr.read()
        self.port = int(line.split()[-1])

    def get(self, page):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{page}", timeout=10) as answer:
            return answer.read().decode()

    def value(self, name):
        return next(float(line.split()[-1]) for line in self.get("/metrics").splitlines() if line.startswith(name))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=20)
        return self.process.returncode, err


@pytest.fixture
def start_janitor(cache):
    started = []

    def start(*options):
        started.append(Janitor(cache, *options))
        return started[-1]

    yield start
    for janitor in started:
        janitor.process.kill()
        janitor.process.communicate()


def wait_until(is_true):
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_janitor_deletes_what_is_over_and_ends_cleanly(
    start_janitor, publish, tmp_path, cache, stage_here, expire_leases
):
    from stager.limits import Retain

    kept, gone = publish(tmp_path / "kept", [100_000]), publish(tmp_path / "gone", [200_000], seed=1)
    stage_here(kept, cache)
    stage_here(gone, cache, retain=Retain.DELETE)
    janitor = start_janitor("--interval", "100ms", "--min-idle", "0s", "--scrub-rate", "1GiB")
    wait_until(lambda: janitor.value("shardferry_cache_passes_total") >= 1)
    assert gone.is_staged(cache)
    assert janitor.value('shardferry_cache_datasets{state="held"}') == 2
    expire_leases(cache)
    wait_until(lambda: not gone.staged_in(cache).exists())
    wait_until(lambda: janitor.value('shardferry_cache_evicted_bytes_total{reason="delete"}') >= 200_000)
    wait_until(lambda: janitor.value("shardferry_cache_scrubbed_bytes_total") >= 100_000)
    fetched = f'shardferry_stage_bytes_total{{dataset="{short_id(gone.manifest.dataset_id)}",origin="source"}}'
    assert janitor.value(fetched) >= 100_000
    assert janitor.get("/livez") == "alive\n"
    code, err = janitor.stop()
    assert code == 0, err
    assert "Traceback" not in err
    assert kept.is_staged(cache)


def test_the_janitor_goes_on_when_a_pass_fails(start_janitor, staged, cache):
    janitor = start_janitor("--interval", "50ms", "--scrub-rate", "0")
    (cache / "gc.lock").unlink(missing_ok=True)
    (cache / "gc.lock").mkdir()
    wait_until(lambda: janitor.value("shardferry_cache_errors_total") >= 2)
    (cache / "gc.lock").rmdir()
    before = janitor.value("shardferry_cache_passes_total")
    wait_until(lambda: janitor.value("shardferry_cache_passes_total") > before)
    assert janitor.stop()[0] == 0
