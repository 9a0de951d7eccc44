"""Room in a real cache: what is evicted for what, what stays whatever happens, and what is left after a kill."""

import fcntl
import json
import os
import subprocess
import threading

import pytest

from shards.cache import CacheLayout
from shards.errors import NoSpaceError
from shards.leases import hold_dataset
from stager.limits import Retain, SpaceLimits
from stager.marks import read_mark
from stager.reclaim import clean, hold_gc_lock
from stager.space import Reason
from stager.usage import observe_usage

MIB = 1024 * 1024
NEVER_IDLE = {"min_idle_seconds": 0.0}


def disk_bytes(path):
    done = subprocess.run(["du", "-s", "-B1", str(path)], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[0])


def clean_now(cache, **limits):
    layout = CacheLayout(str(cache))
    with hold_gc_lock(layout):
        return clean(layout, SpaceLimits(**{**NEVER_IDLE, **limits}))


@pytest.fixture
def published(publish, tmp_path):
    """Datasets of 2 MiB each, all different."""
    return lambda number: publish(tmp_path / f"published-{number}", [MIB, MIB - 100], seed=number)


def test_used_bytes_are_what_du_counts(published, cache, stage_here):
    for number in range(2):
        stage_here(published(number), cache)
    (cache / "datasets" / "notes.txt").write_text("mine")
    assert observe_usage(CacheLayout(str(cache))).used_bytes == disk_bytes(cache)


def test_the_least_recently_used_dataset_makes_room(published, cache, stage_here, expire_leases):
    limits = SpaceLimits(quota_bytes=7 * MIB, high_watermark=1.0, low_watermark=1.0, **NEVER_IDLE)
    first, second, third = (published(number) for number in range(3))
    stage_here(first, cache, space=limits)
    stage_here(second, cache, space=limits)
    stage_here(first, cache, space=limits)
    expire_leases(cache)
    num_bytes = disk_bytes(second.staged_in(cache))
    assert stage_here(third, cache, space=limits).report.evicted_bytes == num_bytes
    assert first.is_staged(cache)
    assert third.is_staged(cache)
    assert not second.staged_in(cache).exists()
    assert list((cache / "trash").iterdir()) == []
    assert disk_bytes(cache) <= 7 * MIB


def test_leased_and_young_datasets_refuse_instead_and_say_who_holds_what(published, cache, stage, expire_leases):
    options = ("--cache-dir", cache, "--holder", "job-7")
    first, second = published(1), published(2)
    assert stage("run", first.path, *options, "--quota", "4MiB").code == 0
    ended = stage("run", second.path, *options, "--quota", "4MiB")
    assert ended.code == 79
    assert f"{first.manifest.dataset_id} (2.0 MiB) is held by job-7" in ended.message
    assert "the quota is 4194304 bytes" in ended.message
    assert "evictable 0 bytes" in ended.message
    expire_leases(cache)
    ended = stage("run", second.path, *options, "--quota", "4MiB")
    assert ended.code == 79
    assert "1 unused datasets are kept for 10" in ended.message
    assert "wait until they are released" in ended.message
    assert first.is_staged(cache)
    assert list(second.staged_in(cache).rglob("*.tar*")) == []
    ended = stage("run", second.path, "--cache-dir", cache.parent / "empty", "--quota", "2MiB")
    assert ended.code == 79
    assert "wait until" not in ended.message
    assert stage("run", second.path, *options, "--quota", "4MiB", "--min-idle", "0s").code == 0
    assert not first.staged_in(cache).exists()


def test_a_dataset_that_is_read_is_never_evicted(published, cache, stage_here, expire_leases):
    first, second = published(1), published(2)
    stage_here(first, cache)
    expire_leases(cache)
    limits = SpaceLimits(quota_bytes=4 * MIB, **NEVER_IDLE)
    with hold_dataset(str(first.staged_in(cache))):
        with pytest.raises(NoSpaceError, match="is held by a reader"):
            stage_here(second, cache, space=limits)
        assert first.is_staged(cache)
    stage_here(second, cache, space=limits)
    assert not first.staged_in(cache).exists()


def test_a_dataset_bigger_than_the_quota_is_refused_and_evicts_nothing(
    publish, published, tmp_path, cache, stage_here, expire_leases
):
    small, big = published(1), publish(tmp_path / "big", [5 * MIB, 5 * MIB], seed=9)
    stage_here(small, cache)
    expire_leases(cache)
    with pytest.raises(NoSpaceError) as refused:
        stage_here(big, cache, space=SpaceLimits(quota_bytes=8 * MIB, **NEVER_IDLE))
    assert refused.value.evictable_bytes >= 2 * MIB
    assert small.is_staged(cache)


def test_files_of_others_stay_where_they_are_when_a_dataset_goes(published, cache, stage_here, tmp_path, expire_leases):
    dataset = published(1)
    stage_here(dataset, cache)
    expire_leases(cache)
    staged = dataset.staged_in(cache)
    (staged / "notes").mkdir()
    foreign = [staged / "notes.txt", staged / "notes" / "deep.txt", staged / ".stage" / "mine.txt"]
    foreign += [cache / "mine", cache / "datasets" / "mine", cache / "trash" / "mine", cache / "leases" / "mine.json"]
    (cache / "trash").mkdir(exist_ok=True)
    for path in foreign:
        path.write_text("mine")
    (staged / "link").symlink_to(tmp_path)
    report = clean_now(cache, quota_bytes=2 * MIB)
    assert [victim.reason for victim in report.evicted] == [Reason.WATERMARK]
    assert all(path.read_text() == "mine" for path in foreign)
    assert (staged / "link").is_symlink()
    assert not any((staged / name).exists() for name in [*dataset.names, "manifest.json"])
    assert sorted(path.name for path in (cache / "trash").iterdir()) == ["mine"]
    stage_here(dataset, cache)
    assert dataset.is_staged(cache)
    assert all(path.read_text() == "mine" for path in foreign)


def test_a_copy_that_somebody_laid_there_by_hand_is_never_evicted(published, cache, stage_here):
    dataset, other = published(1), published(2)
    staged = dataset.staged_in(cache)
    staged.mkdir(parents=True)
    for name in [*dataset.names, "manifest.json"]:
        (staged / name).write_bytes((dataset.path / name).read_bytes())
    with pytest.raises(NoSpaceError, match="1 datasets were not made by the stager and are never evicted"):
        stage_here(other, cache, space=SpaceLimits(quota_bytes=4 * MIB, **NEVER_IDLE))
    assert clean_now(cache, quota_bytes=2 * MIB).evicted == []
    assert dataset.is_staged(cache)


def test_retain_delete_goes_with_the_next_cleaning_once_nobody_protects_it(published, cache, stage_here, expire_leases):
    dataset, kept = published(1), published(2)
    stage_here(dataset, cache, retain=Retain.DELETE)
    stage_here(kept, cache)
    assert clean_now(cache).evicted == []
    expire_leases(cache)
    (victim,) = clean_now(cache).evicted
    assert (victim.name, victim.reason) == (dataset.manifest.dataset_id, Reason.DELETE)
    assert not dataset.staged_in(cache).exists()
    assert kept.is_staged(cache)


def test_the_last_run_decides_what_becomes_of_a_dataset(published, cache, stage_here, expire_leases):
    dataset = published(1)
    stage_here(dataset, cache, retain=Retain.DELETE)
    stage_here(dataset, cache)
    expire_leases(cache)
    assert clean_now(cache).evicted == []


def test_cleaning_sees_a_reader_and_marks_the_dataset_as_used(published, cache, stage_here, expire_leases):
    dataset = published(1)
    stage_here(dataset, cache)
    expire_leases(cache)
    layout, dataset_id = CacheLayout(str(cache)), dataset.manifest.dataset_id
    before = read_mark(layout, dataset_id)
    with hold_dataset(str(dataset.staged_in(cache))):
        clean_now(cache)
    assert read_mark(layout, dataset_id).boottime_seconds > before.boottime_seconds


def test_a_mark_of_an_earlier_boot_makes_a_dataset_as_idle_as_the_boot_is_old(published, cache, stage_here):
    dataset = published(1)
    stage_here(dataset, cache)
    mark_path = dataset.staged_in(cache) / ".stage" / "used.json"
    mark = json.loads(mark_path.read_text())
    mark_path.chmod(0o644)
    mark_path.write_text(json.dumps({**mark, "boot_id": "0" * 8 + "-0000-0000-0000-" + "0" * 12}))
    (usage,) = observe_usage(CacheLayout(str(cache))).datasets
    assert usage.idle_seconds > 0
    assert usage.used_at == pytest.approx(mark["used_at"])


def test_leases_that_protect_nothing_go_and_others_stay(published, cache, stage_here):
    for number, holder in [(1, "ended"), (2, "valid"), (3, "locked")]:
        stage_here(published(number), cache, holder=holder)
    paths = {path.stem: path for path in cache.glob("leases/*/*.json")}
    for name in ("ended", "locked"):
        record = json.loads(paths[name].read_text())
        paths[name].write_text(json.dumps({**record, "boottime_deadline_seconds": 0.0}))
    killed = paths["valid"].with_name("killed.json")
    killed.touch()
    held = os.open(paths["locked"], os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert clean_now(cache).num_leases_removed == 2
    os.close(held)
    assert sorted(path.stem for path in cache.glob("leases/*/*.json")) == ["locked", "valid"]
    assert not paths["ended"].parent.exists()


def test_a_stager_whose_lease_file_is_removed_between_open_and_lock_takes_another(
    published, cache, stage_here, expire_leases
):
    dataset = published(1)
    stage_here(dataset, cache)
    expire_leases(cache)
    stop = threading.Event()

    def remove_leases():
        while not stop.is_set():
            clean_now(cache)

    thread = threading.Thread(target=remove_leases)
    thread.start()
    try:
        for number in range(10):
            stage_here(dataset, cache, lease_ttl_seconds=0.0, holder=f"h{number % 2}")
    finally:
        stop.set()
        thread.join()
    assert dataset.is_staged(cache)


def test_trash_of_a_killed_eviction_goes_with_the_next_run(published, cache, stage_here):
    first, second = published(1), published(2)
    stage_here(first, cache)
    trash = cache / "trash" / ("ab" * 16)
    trash.parent.mkdir()
    first.staged_in(cache).rename(trash)
    stage_here(second, cache)
    assert not trash.exists()


def test_reserved_partials_of_a_killed_stager_promise_nothing_and_go(published, cache, stage_here):
    dataset = published(1)
    stage_dir = dataset.staged_in(cache) / ".stage"
    stage_dir.mkdir(parents=True)
    (stage_dir / "manifest.json").write_bytes(dataset.manifest.to_json())
    for name in dataset.names:
        with (stage_dir / f"{name}.partial").open("wb") as file:
            file.truncate(MIB)
    assert observe_usage(CacheLayout(str(cache))).promised_bytes == 0
    stage_here(published(2), cache)
    assert list(stage_dir.glob("*.partial")) == []


def test_room_that_is_promised_to_a_running_stager_is_not_given_to_another(published, cache, stage_here):
    from stager.remotes.posix import PosixRemote

    first, second = published(1), published(2)
    limits = SpaceLimits(quota_bytes=4 * MIB, **NEVER_IDLE)
    refusals = []

    class Meanwhile(PosixRemote):
        """Before the first byte of the first dataset is read, somebody wants the second one."""

        async def read_range(self, name, offset, buffer, version):
            if name.endswith(".tar") and not refusals:
                refusals.append(None)
                usage = observe_usage(CacheLayout(str(cache)))
                assert usage.used_bytes < MIB
                assert usage.promised_bytes > 2 * MIB
                done = []
                thread = threading.Thread(target=lambda: done.append(try_second()))
                thread.start()
                thread.join()
                refusals[:] = done
            await super().read_range(name, offset, buffer, version)

    def try_second():
        try:
            stage_here(second, cache, space=limits, holder="second")
        except NoSpaceError as error:
            return str(error)
        return "staged"

    stage_here(first, cache, remote=Meanwhile(str(first.path), 1), space=limits, holder="first")
    assert "bytes are reserved by running stagers" in refusals[0]
    assert "is held by first" in refusals[0]
    assert first.is_staged(cache)


def test_a_run_that_is_refused_leaves_nothing_that_promises_room(published, cache, stage_here, expire_leases):
    with pytest.raises(NoSpaceError):
        stage_here(published(1), cache, space=SpaceLimits(quota_bytes=2 * MIB))
    assert observe_usage(CacheLayout(str(cache))).promised_bytes == 0
    expire_leases(cache)
    clean_now(cache)
    assert list((cache / "datasets").iterdir()) == []
    assert list((cache / "leases").iterdir()) == []
