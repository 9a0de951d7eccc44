"""Things in a cache, and in its options, that are not what they should be: fifos, directories, links, nonsense."""

import os
import shutil

import pytest

from shards.errors import CacheNotWritableError, IndexFormatError
from stager.config import MAX_LEASE_TTL_SECONDS

NAME = "train-000001.tar"


def make_directory(path, victim):
    (path / "full").mkdir(parents=True)


def make_fifo(path, victim):
    os.mkfifo(path)


def make_link(path, victim):
    path.symlink_to(victim)


def make_dangling_link(path, victim):
    path.symlink_to(victim.with_name("nowhere"))


def make_garbage(path, victim):
    path.write_bytes(os.urandom(1_000_000))


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize(
    "place", ["manifest.json", NAME, f"{NAME}.index.arrow", f".stage/{NAME}.partial", ".stage/status.json"]
)
@pytest.mark.parametrize("make", [make_directory, make_fifo, make_link, make_dangling_link, make_garbage])
def test_whatever_lies_under_a_name_of_the_cache_is_replaced_and_nothing_else_is_touched(
    dataset, cache, tmp_path, stage_here, make, place, is_complete
):
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    stage_here(dataset, cache)
    staged = dataset.staged_in(cache)
    if not is_complete:
        for name in (NAME, "manifest.json"):
            (staged / name).unlink()
    if os.path.lexists(staged / place):
        remove(staged / place)
    make(staged / place, victim)
    stage_here(dataset, cache)
    assert dataset.is_staged(cache)
    for name in [*dataset.names, "manifest.json"]:
        assert (staged / name).is_file()
        assert not (staged / name).is_symlink()
    assert victim.read_bytes() == b"mine"
    assert list((cache / "trash").glob("*")) == []


def test_directory_under_the_name_of_a_leftover_stays(dataset, cache, stage_here):
    foreign = dataset.staged_in(cache) / ".x.0123456789abcdef.partial"
    foreign.mkdir(parents=True)
    stage_here(dataset, cache)
    assert dataset.is_staged(cache)
    assert foreign.is_dir()


def test_fifo_as_lease_file_is_named(dataset, cache, stage_here):
    stage_here(dataset, cache)
    (lease,) = cache.glob("leases/*/test.json")
    lease.unlink()
    os.mkfifo(lease)
    with pytest.raises(CacheNotWritableError, match=r"test\.json is not a regular file; remove it"):
        stage_here(dataset, cache)


def test_fifo_as_version_file_is_named_and_not_waited_for(dataset, cache, stage):
    cache.mkdir()
    os.mkfifo(cache / "VERSION")
    ended = stage("run", dataset.path, "--cache-dir", cache)
    assert ended.code == 78
    assert "VERSION: it is not a regular file; choose another cache directory" in ended.message


def test_fifo_as_termination_log_is_not_waited_for(dataset, cache, tmp_path, stage):
    os.mkfifo(tmp_path / "fifo")
    assert stage("run", dataset.path, "--cache-dir", cache, "--termination-log", tmp_path / "fifo").code == 0


def test_link_with_a_slash_at_its_end_is_made_and_moved(dataset, cache, tmp_path, publish, stage_here):
    link = tmp_path / "current"
    stage_here(dataset, cache, links=(f"{link}/",))
    assert link.resolve() == dataset.staged_in(cache)
    other = publish(tmp_path / "other", [10], seed=1)
    stage_here(other, cache, links=(f"{link}/",))
    assert link.resolve() == other.staged_in(cache)


@pytest.mark.parametrize("length", [233, 255])
def test_link_may_have_any_name_that_a_file_may_have(dataset, cache, tmp_path, stage_here, length):
    link = tmp_path / ("x" * length)
    stage_here(dataset, cache, links=(str(link),))
    assert link.resolve() == dataset.staged_in(cache)


def test_link_with_an_impossible_name_is_refused_before_anything_is_fetched(dataset, cache, tmp_path, stage_here):
    with pytest.raises(CacheNotWritableError, match="too long; give another --link"):
        stage_here(dataset, cache, links=(str(tmp_path / ("x" * 256)),))
    assert not cache.exists()


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("--cache-dir", ""), "the path is empty"),
        (("--cache-dir", "cache", "--link", ""), "a link's path is empty"),
        (("--cache-dir", "cache", "--lease-ttl", f"{MAX_LEASE_TTL_SECONDS + 1:.0f}"), "between 0 s and 10 years"),
        (("--cache-dir", "cache", "--lease-ttl", "99999999999999999999d"), "between 0 s and 10 years"),
    ],
)
def test_values_that_make_no_sense_are_wrong_usage(dataset, tmp_path, stage, args, part):
    ended = stage("run", dataset.path, *args)
    assert ended.code == 2
    assert part in ended.stderr
    assert "Traceback" not in ended.stderr


def test_empty_cache_dir_of_status_is_wrong_usage(stage):
    assert stage("status", "--cache-dir", "").code == 2


def test_control_characters_of_a_damaged_file_are_escaped_in_the_message():
    assert "\x1b" not in str(IndexFormatError("x", None, "shard is \x1b[2J\nstage: all is well"))
    assert "\n" not in str(IndexFormatError("x", None, "shard is \x1b[2J\nstage: all is well"))


def test_file_too_large_for_this_process_is_named(dataset, cache, stage):
    ended = stage("run", dataset.path, "--cache-dir", cache, prefix=("prlimit", "--fsize=100000"))
    assert ended.code == 74
    assert f"{NAME}.partial: File too large" in ended.message or "train-000000.tar.partial: File too" in ended.message
    assert dataset.wrong_files(cache) == []
