"""Several stagers on one cache: they share the work, and nothing depends on their locks."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from shards.leases import hold_dataset, try_exclude
from stager.holders import read_leases

SLOW_STAGE = Path(__file__).with_name("slow_stage.py")


def start(dataset, cache, delay_seconds):
    command = [sys.executable, str(SLOW_STAGE), str(dataset.path), str(cache), str(delay_seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_bytes_of(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return int(out.splitlines()[-1])


def test_two_stagers_read_the_source_about_once_together(publish, tmp_path, cache):
    dataset = publish(tmp_path / "published", [6 * 65536 + number for number in range(20)])
    both = [start(dataset, cache, 0.03) for _ in range(2)]
    read = [read_bytes_of(process) for process in both]
    assert dataset.is_staged(cache)
    assert dataset.total_bytes <= sum(read) <= 1.1 * dataset.total_bytes
    assert min(read) > 0.2 * dataset.total_bytes  # each did its part


def test_eight_stagers_read_the_source_exactly_once_together(publish, tmp_path, cache):
    dataset = publish(tmp_path / "published", [3 * 65536 + number for number in range(24)])
    read = [read_bytes_of(process) for process in [start(dataset, cache, 0.02) for _ in range(8)]]
    assert dataset.is_staged(cache)
    assert sum(read) == dataset.total_bytes


def test_four_stagers_one_of_them_killed_finish_together(publish, tmp_path, cache):
    dataset = publish(tmp_path / "published", [6 * 65536 + number for number in range(20)])
    all_of_them = [start(dataset, cache, 0.03) for _ in range(4)]
    victim = all_of_them.pop(1)
    assert victim.stdout.readline() == "started\n"
    time.sleep(0.3)
    victim.kill()
    victim.communicate()
    read = [read_bytes_of(process) for process in all_of_them]
    assert dataset.is_staged(cache)
    # what the killed one read but did not finish may be read again
    assert sum(read) <= 1.3 * dataset.total_bytes


def test_a_stager_waits_for_a_shard_that_another_one_has_and_takes_it_over_when_that_ends(
    publish, tmp_path, cache, stage_here
):
    dataset = publish(tmp_path / "published", [3 * 65536, 2 * 65536])
    stage_dir = dataset.staged_in(cache) / ".stage"
    stage_dir.mkdir(parents=True)
    held = os.open(stage_dir / "train-000000.tar.partial", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    staged = []
    waiting = threading.Thread(target=lambda: staged.append(stage_here(dataset, cache)))
    waiting.start()
    other = dataset.staged_in(cache) / "train-000001.tar"
    while not other.exists():
        time.sleep(0.01)
    time.sleep(0.3)
    assert waiting.is_alive()
    assert not (dataset.staged_in(cache) / "manifest.json").exists()
    os.close(held)
    waiting.join(20)
    assert dataset.is_staged(cache)
    assert staged[0].report.fetched_bytes == dataset.total_bytes


def test_a_shard_that_another_stager_commits_meanwhile_is_not_fetched(publish, tmp_path, cache, stage_here):
    dataset = publish(tmp_path / "published", [3 * 65536, 2 * 65536])
    staged = dataset.staged_in(cache)

    from stager.remotes.posix import PosixRemote

    class PeerAtWork(PosixRemote):
        """While the first shard is read, somebody else commits the second one."""

        def __init__(self):
            super().__init__(str(dataset.path), 1)
            self.names = []

        async def read_range(self, name, offset, buffer, version):
            self.names.append(name)
            if name == "train-000000.tar":
                for peer in ("train-000001.tar.index.arrow", "train-000001.tar"):
                    (staged / peer).write_bytes((dataset.path / peer).read_bytes())
            await super().read_range(name, offset, buffer, version)

    remote = PeerAtWork()
    report = stage_here(dataset, cache, remote=remote, connections=1).report
    assert "train-000001.tar" not in remote.names
    assert report.peer_bytes == sum((dataset.path / name).stat().st_size for name in dataset.names[2:])
    assert dataset.is_staged(cache)


def test_without_working_locks_two_stagers_still_end_with_the_right_bytes(publish, tmp_path, cache):
    from shards.cache import CacheLayout
    from stager.cache import DatasetDirectory
    from stager.claims import Claim
    from stager.plan import Inventory, plan_staging
    from stager.status import DatasetStatus
    from stager.verify import Verify

    dataset = publish(tmp_path / "published", [2 * 65536])
    directory = DatasetDirectory(
        CacheLayout(str(cache)),
        dataset.manifest.dataset_id,
        dataset.names,
        DatasetStatus.of_manifest(dataset.manifest, ""),
    )
    directory.prepare()
    (step,) = plan_staging(dataset.manifest, Inventory(), Verify.SIZE).steps
    first = directory.claim(step)
    assert isinstance(first, Claim)
    # a second stager that got the same partial, as where every lock is granted
    path = directory.partial_path(step.shard.name)
    second = Claim(
        os.open(path, os.O_RDWR),
        name=step.shard.name,
        size_bytes=step.shard.size_bytes,
        partial_path=path,
        final_path=directory.final_path(step.shard.name),
        on_commit=lambda: None,
    )
    data = (dataset.path / step.shard.name).read_bytes()
    os.pwrite(first.fd, data[:65536], 0)
    os.pwrite(second.fd, data, 0)
    with first, second:
        second.commit()
        os.pwrite(first.fd, data, 0)
        first.commit()
    assert (dataset.staged_in(cache) / step.shard.name).read_bytes() == data


def test_the_dataset_is_held_while_it_is_staged_and_protected_afterwards(publish, tmp_path, cache, stage_here):
    from shards.cache import CacheLayout
    from stager.remotes.posix import PosixRemote

    dataset = publish(tmp_path / "published", [3 * 65536])
    staged, layout = dataset.staged_in(cache), CacheLayout(str(cache))
    seen = []

    class Looking(PosixRemote):
        async def read_range(self, name, offset, buffer, version):
            if name != "manifest.json":
                seen.append((try_exclude(str(staged)), read_leases(layout, dataset.manifest.dataset_id)))
            await super().read_range(name, offset, buffer, version)

    stage_here(dataset, cache, remote=Looking(str(dataset.path), 2), holder="job-7", lease_ttl_seconds=60.0)
    assert all(excluded is None for excluded, _ in seen)
    assert [(lease.holder, lease.is_locked) for lease in seen[0][1]] == [("job-7", True)]
    (after,) = read_leases(layout, dataset.manifest.dataset_id)
    assert not after.is_locked
    assert 50 < after.seconds_left <= 60
    with try_exclude(str(staged)) as alone:
        assert alone is not None


def test_a_failed_run_leaves_its_grace_as_well(publish, tmp_path, cache, stage_here):
    from shards.cache import CacheLayout
    from shards.errors import RemoteMissingError

    dataset = publish(tmp_path / "published", [3 * 65536])
    (dataset.path / "train-000000.tar").unlink()
    with pytest.raises(RemoteMissingError):
        stage_here(dataset, cache)
    (lease,) = read_leases(CacheLayout(str(cache)), dataset.manifest.dataset_id)
    assert lease.seconds_left > 800


def test_runs_of_one_holder_at_once_have_a_lease_file_each_and_later_runs_use_them_again(dataset, cache, stage_here):
    from shards.cache import CacheLayout

    stage_here(dataset, cache, holder="h")
    layout = CacheLayout(str(cache))
    busy = os.open(layout.lease_path(dataset.manifest.dataset_id, "h"), os.O_RDWR)
    fcntl.flock(busy, fcntl.LOCK_EX)
    stage_here(dataset, cache, holder="h")
    os.close(busy)
    stage_here(dataset, cache, holder="h")
    names = sorted(os.listdir(layout.leases_dir(dataset.manifest.dataset_id)))
    assert names == ["h.2.json", "h.json"]


def test_a_reader_that_holds_the_dataset_does_not_disturb_a_second_run(dataset, cache, stage_here):
    stage_here(dataset, cache)
    with hold_dataset(str(dataset.staged_in(cache))):
        assert stage_here(dataset, cache).report.result == "AlreadyStaged"


def test_many_connections_of_one_run_never_read_a_block_twice(publish, tmp_path, cache, stage_here):
    dataset = publish(tmp_path / "published", [13 * 65536 + 5] * 7)
    staged = stage_here(dataset, cache, connections=16)
    assert staged.remote.data_bytes == dataset.total_bytes
    assert dataset.is_staged(cache)
