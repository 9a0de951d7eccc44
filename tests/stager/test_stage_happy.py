"""Staging a good dataset: what comes out, how often bytes are read, what a second run does."""

import os
import stat
import time

import pytest


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_dataset_is_mirrored_byte_for_byte(dataset, cache, stage_here):
    staged = stage_here(dataset, cache)
    assert dataset.is_staged(cache)
    assert staged.report.result == "Staged"
    assert staged.report.path == str(dataset.staged_in(cache))
    assert staged.report.fetched_bytes == staged.report.total_bytes == dataset.total_bytes
    assert staged.remote.data_bytes == dataset.total_bytes
    assert sorted(os.listdir(dataset.staged_in(cache) / ".stage")) == ["manifest.json", "status.json", "used.json"]


def test_a_second_run_reads_the_manifest_and_nothing_else(dataset, cache, stage_here):
    stage_here(dataset, cache)
    before = {name: (dataset.staged_in(cache) / name).stat() for name in dataset.names}
    again = stage_here(dataset, cache)
    assert again.report.result == "AlreadyStaged"
    assert again.report.kept_bytes == dataset.total_bytes
    assert list(again.remote.read_bytes) == ["manifest.json"]
    assert {name: (dataset.staged_in(cache) / name).stat() for name in dataset.names} == before


def test_full_verification_reads_nothing_from_the_source(dataset, cache, stage_here):
    from stager.verify import Verify

    stage_here(dataset, cache)
    again = stage_here(dataset, cache, verify=Verify.FULL)
    assert again.report.result == "AlreadyStaged"
    assert again.remote.data_bytes == 0


def test_a_thousand_staged_shards_are_recognised_in_under_a_second(publish, tmp_path, cache, stage, stage_here):
    dataset = publish(tmp_path / "many", [64 + number for number in range(1000)])
    stage_here(dataset, cache)
    started_at = time.monotonic()
    ended = stage("run", dataset.path, "--cache-dir", cache, "--json")
    seconds = time.monotonic() - started_at
    assert ended.report["result"] == "AlreadyStaged"
    assert seconds < 3.0  # of the whole process, on a machine that does other things
    assert ended.report["seconds"] < 1.0
    assert dataset.is_staged(cache)


def test_shards_in_subdirectories_are_staged_where_the_manifest_says(publish, tmp_path, cache, stage_here):
    dataset = publish(tmp_path / "deep", [1000, 200_000], prefix="train/part 1/")
    stage_here(dataset, cache)
    assert dataset.is_staged(cache)
    assert (dataset.staged_in(cache) / "train" / "part 1" / "train-000001.tar").exists()


def test_two_datasets_share_a_cache(publish, tmp_path, cache, stage_here):
    first, second = publish(tmp_path / "a", [1000], seed=1), publish(tmp_path / "b", [1000], seed=2)
    stage_here(first, cache)
    stage_here(second, cache)
    assert first.is_staged(cache)
    assert second.is_staged(cache)


def test_the_same_content_from_another_place_is_not_fetched_again(publish, dataset, tmp_path, cache, stage_here):
    stage_here(dataset, cache)
    copy = publish(tmp_path / "elsewhere", [shard.size_bytes for _, shard in dataset.manifest.shards()])
    assert copy.manifest.dataset_id == dataset.manifest.dataset_id
    assert stage_here(copy, cache).report.result == "AlreadyStaged"


def test_a_manifest_with_other_options_replaces_the_staged_one(dataset, cache, stage_here):
    from dataclasses import replace

    stage_here(dataset, cache)
    changed = replace(dataset.manifest, packer={"shuffle": 7}).to_json()
    (dataset.path / "manifest.json").write_bytes(changed)
    assert stage_here(dataset, cache).report.result == "AlreadyStaged"
    assert (dataset.staged_in(cache) / "manifest.json").read_bytes() == changed


@pytest.mark.parametrize("umask", ["077", "000"])
def test_modes_do_not_depend_on_the_umask(dataset, cache, stage, umask):
    shell = ("sh", "-c", f'umask {umask}; exec "$@"', "sh")
    ended = stage("run", dataset.path, "--cache-dir", cache, prefix=shell)
    assert ended.code == 0, ended.stderr
    staged = dataset.staged_in(cache)
    assert {mode_of(staged / name) for name in [*dataset.names, "manifest.json"]} == {0o444}
    assert {mode_of(path) for path in (cache, cache / "datasets", staged, staged / ".stage")} == {0o755}
    assert [mode_of(path) for path in (cache / "leases").rglob("*.json")] == [0o600]


def test_links_point_at_the_staged_dataset_and_move_with_it(publish, tmp_path, cache, stage_here):
    first, second = publish(tmp_path / "a", [1000], seed=1), publish(tmp_path / "b", [1000], seed=2)
    links = tuple(str(tmp_path / "links" / name) for name in ("current", "also"))
    stage_here(first, cache, links=links)
    assert {os.readlink(link) for link in links} == {str(first.staged_in(cache))}
    stage_here(second, cache, links=links[:1])
    assert os.readlink(links[0]) == str(second.staged_in(cache))
    assert sorted(os.listdir(tmp_path / "links")) == ["also", "current"]


def test_memory_is_connections_times_block(publish, tmp_path, cache, stage):
    block_bytes = 1024 * 1024
    dataset = publish(tmp_path / "big", [48 * block_bytes] * 4, block_bytes=block_bytes)
    # the peak of the whole process, with what Python and Arrow take (which one small shard shows)
    small = publish(tmp_path / "small", [1000], block_bytes=block_bytes)
    code = (
        "import resource, sys; from stager.cli import cli; cli(sys.argv[1:], standalone_mode=False); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )

    def peak_bytes(source):
        import subprocess
        import sys

        command = [sys.executable, "-c", code, "run", str(source.path), "--cache-dir", str(cache), "--quiet", "--json"]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return 1024 * int(out.splitlines()[-1])

    grown = peak_bytes(dataset) - peak_bytes(small)
    assert dataset.is_staged(cache)
    # buffers, and 16 MiB for stacks of threads and the allocator
    assert grown < (8 + 16) * block_bytes
