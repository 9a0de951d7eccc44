"""A source that is not what its manifest promises, and a cache that was damaged."""

import json
import os
from dataclasses import replace

import pytest

from shards.digests import hash_bytes
from shards.errors import (
    DigestMismatchError,
    IndexFormatError,
    ManifestFormatError,
    RemoteChangedError,
    RemoteMissingError,
)
from stager.remotes.posix import PosixRemote
from stager.verify import Verify


def flip(path, offset):
    mode = path.stat().st_mode
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    path.chmod(mode)


def rewrite_shard(dataset, number, **changes):
    """Change what the manifest says about a shard, and give the dataset that results."""
    split = dataset.manifest.splits[0]
    shards = list(split.shards)
    shards[number] = replace(shards[number], **changes)
    manifest = replace(dataset.manifest, splits=(replace(split, shards=tuple(shards)),))
    (dataset.path / "manifest.json").write_bytes(manifest.to_json())
    return replace(dataset, manifest=manifest)


def test_flipped_byte_at_the_source_is_never_committed_and_names_the_block(dataset, cache, stage):
    name = "train-000001.tar"
    flip(dataset.path / name, 2 * 65536 + 99)
    ended = stage("run", dataset.path, "--cache-dir", cache)
    assert ended.code == 65
    index = dataset.manifest.splits[0].shards[1]
    data = (dataset.path / name).read_bytes()
    actual = hash_bytes(data[2 * 65536 : 3 * 65536])
    assert f"{name} block 2 (byte offset 131072): expected blake3:" in ended.message
    assert f"actual {actual}" in ended.message
    assert str(dataset.path) in ended.message
    staged = dataset.staged_in(cache)
    assert not (staged / name).exists()
    assert not (staged / index.index_name).exists()
    assert not (staged / "manifest.json").exists()
    assert dataset.wrong_files(cache) == []


def test_the_fields_of_a_digest_error_can_be_read(dataset, cache, stage_here):
    flip(dataset.path / "train-000000.tar", 4 * 65536)
    with pytest.raises(DigestMismatchError) as caught:
        stage_here(dataset, cache)
    error = caught.value
    assert (error.name, error.block, error.offset) == ("train-000000.tar", 4, 4 * 65536)
    assert error.expected != error.actual


def test_a_mended_source_is_staged_by_the_next_run_which_fetches_what_is_missing(dataset, cache, stage_here):
    flip(dataset.path / "train-000000.tar", 4 * 65536)
    with pytest.raises(DigestMismatchError):
        stage_here(dataset, cache, connections=1)
    flip(dataset.path / "train-000000.tar", 4 * 65536)
    again = stage_here(dataset, cache)
    assert dataset.is_staged(cache)
    assert again.report.resumed_bytes == 4 * 65536
    assert again.remote.read_bytes["train-000000.tar"] == 65536


class FlippingOnceRemote(PosixRemote):
    """The first answer for each range has a flipped byte, as from a network card that fails now and then."""

    def __init__(self, root: str) -> None:
        super().__init__(root, 4)
        self.seen = set()
        self.num_reads = 0

    async def read_range(self, name, offset, buffer, version):
        await super().read_range(name, offset, buffer, version)
        if name != "manifest.json":
            self.num_reads += 1
            if (name, offset) not in self.seen:
                self.seen.add((name, offset))
                buffer[-1] ^= 1


def test_a_block_that_was_damaged_on_the_way_is_fetched_once_more(dataset, cache, stage_here):
    remote = FlippingOnceRemote(str(dataset.path))
    stage_here(dataset, cache, remote=remote)
    assert dataset.is_staged(cache)
    assert remote.num_reads == 2 * len(remote.seen)


@pytest.mark.parametrize("change", [-1, 1, 65536, -300_000])
def test_a_source_of_another_length_is_refused_before_a_byte_is_read(dataset, cache, stage, change):
    path = dataset.path / "train-000000.tar"
    expected = path.stat().st_size
    os.truncate(path, expected + change)
    ended = stage("run", dataset.path, "--cache-dir", cache)
    assert ended.code == 65
    assert f"train-000000.tar: expected {expected} bytes, actual {expected + change} bytes" in ended.message
    assert not (dataset.staged_in(cache) / "train-000000.tar").exists()


@pytest.mark.parametrize("name", ["train-000002.tar", "train-000002.tar.index.arrow", "manifest.json"])
def test_a_file_missing_at_the_source_is_exit_66_and_named(dataset, cache, stage, name):
    (dataset.path / name).unlink()
    ended = stage("run", dataset.path, "--cache-dir", cache)
    assert ended.code == 66
    assert str(dataset.path / name) in ended.message
    assert not (dataset.staged_in(cache) / "manifest.json").exists()


def test_a_directory_in_place_of_a_shard_is_refused(dataset, cache, stage):
    path = dataset.path / "train-000002.tar"
    path.unlink()
    path.mkdir()
    ended = stage("run", dataset.path, "--cache-dir", cache)
    assert ended.code == 66
    assert f"{path} is not a regular file" in ended.message


def test_damaged_index_is_refused_by_its_digest(dataset, cache, stage_here):
    name = "train-000001.tar.index.arrow"
    flip(dataset.path / name, 700)
    with pytest.raises(DigestMismatchError) as caught:
        stage_here(dataset, cache)
    assert (caught.value.name, caught.value.block) == (name, None)
    assert not (dataset.staged_in(cache) / name).exists()


def test_index_whose_blocks_do_not_give_the_shard_digest_is_refused(dataset, cache, stage_here):
    wrong = hash_bytes(b"another shard")
    changed = rewrite_shard(dataset, 0, digest=wrong)
    with pytest.raises(IndexFormatError, match=f"shard digest.*manifest says {wrong}"):
        stage_here(changed, cache)
    assert not (changed.staged_in(cache) / "train-000000.tar").exists()


def test_index_of_another_shard_is_refused(dataset, cache, stage_here):
    other = dataset.manifest.splits[0].shards[4]
    changed = rewrite_shard(
        dataset, 0, index_size_bytes=other.index_size_bytes, index_digest=other.index_digest, digest=other.digest
    )
    data = (dataset.path / other.index_name).read_bytes()
    (dataset.path / "train-000000.tar.index.arrow").write_bytes(data)
    with pytest.raises(IndexFormatError, match=r"train-000000\.tar\.index\.arrow.*shard is train-000004\.tar"):
        stage_here(changed, cache)


def test_index_that_is_no_arrow_file_is_refused_though_its_digest_fits(dataset, cache, stage_here):
    data = b"ARROW1\0\0 but nothing else"
    changed = rewrite_shard(dataset, 0, index_size_bytes=len(data), index_digest=hash_bytes(data))
    (dataset.path / "train-000000.tar.index.arrow").write_bytes(data)
    with pytest.raises(IndexFormatError, match=r"train-000000\.tar\.index\.arrow"):
        stage_here(changed, cache)


def test_manifest_from_the_future_is_refused_with_both_versions(dataset, cache, stage):
    document = json.loads((dataset.path / "manifest.json").read_bytes())
    document["format_version"] = "2.0"
    (dataset.path / "manifest.json").write_text(json.dumps(document))
    ended = stage("run", dataset.path, "--cache-dir", cache)
    assert ended.code == 65
    assert "2.0" in ended.message
    assert "1.0" in ended.message
    assert not cache.exists()


def test_cut_manifest_is_refused(dataset, cache, stage_here):
    os.truncate(dataset.path / "manifest.json", 200)
    with pytest.raises(ManifestFormatError, match=r"manifest\.json"):
        stage_here(dataset, cache)


class ReplacingRemote(PosixRemote):
    """Replaces a shard, by content of equal length, after its first range was read."""

    def __init__(self, path, *, in_place):
        super().__init__(str(path.parent), 1)
        self.path = path
        self.in_place = in_place
        self.is_done = False

    async def read_range(self, name, offset, buffer, version):
        await super().read_range(name, offset, buffer, version)
        if name == self.path.name and not self.is_done:
            self.is_done = True
            data = bytes(self.path.stat().st_size)
            if self.in_place:
                self.path.write_bytes(data)
            else:
                new = self.path.with_suffix(".new")
                new.write_bytes(data)
                new.replace(self.path)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_shard_replaced_while_it_is_copied_is_told_apart_from_damage(dataset, cache, stage_here, in_place):
    remote = ReplacingRemote(dataset.path / "train-000000.tar", in_place=in_place)
    with pytest.raises(RemoteChangedError, match="was replaced while it was being staged"):
        stage_here(dataset, cache, remote=remote, connections=1)
    assert not (dataset.staged_in(cache) / "train-000000.tar").exists()


@pytest.mark.parametrize("name", ["train-000001.tar", "train-000001.tar.index.arrow"])
def test_a_staged_file_that_changed_is_found_and_fetched_again(dataset, cache, stage_here, name):
    stage_here(dataset, cache)
    flip(dataset.staged_in(cache) / name, 800)  # its mtime tells
    again = stage_here(dataset, cache)
    assert dataset.is_staged(cache)
    assert list(again.remote.read_bytes) == ["manifest.json", name]
    assert list(cache.glob("trash/*")) == []


def test_damage_that_stat_does_not_show_is_found_by_full_verification(dataset, cache, stage_here):
    stage_here(dataset, cache)
    path = dataset.staged_in(cache) / "train-000000.tar"
    before = path.stat()
    flip(path, 65536)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert stage_here(dataset, cache).remote.data_bytes == 0
    again = stage_here(dataset, cache, verify=Verify.FULL)
    assert dataset.is_staged(cache)
    assert again.remote.data_bytes == before.st_size
    assert again.report.kept_bytes == dataset.total_bytes - before.st_size


@pytest.mark.parametrize("name", ["train-000000.tar", "train-000000.tar.index.arrow"])
@pytest.mark.parametrize("what", ["cut", "gone", "directory", "symlink"])
def test_whatever_became_of_a_staged_file_the_next_run_mends_it(dataset, cache, stage_here, what, name):
    stage_here(dataset, cache)
    path = dataset.staged_in(cache) / name
    path.chmod(0o644)
    if what == "cut":
        os.truncate(path, 700)
    else:
        path.unlink()
    if what == "directory":
        path.mkdir()
        (path / "x").write_text("x")
    if what == "symlink":
        path.symlink_to(dataset.path / name)
    stage_here(dataset, cache)
    assert dataset.is_staged(cache)
    assert path.is_file()
    assert not path.is_symlink()
    assert (dataset.path / name).exists()


def test_a_shard_that_was_only_touched_is_hashed_and_kept(dataset, cache, stage_here):
    stage_here(dataset, cache)
    os.utime(dataset.staged_in(cache) / "train-000000.tar")
    assert stage_here(dataset, cache).remote.data_bytes == 0
    os.utime(dataset.staged_in(cache) / "train-000000.tar.index.arrow")
    assert stage_here(dataset, cache).report.result == "AlreadyStaged"


def test_lost_status_costs_hashing_and_no_fetching(dataset, cache, stage_here):
    stage_here(dataset, cache)
    (dataset.staged_in(cache) / ".stage" / "status.json").unlink()
    assert stage_here(dataset, cache).remote.data_bytes == 0
    assert (dataset.staged_in(cache) / ".stage" / "status.json").exists()


def test_the_manifest_is_taken_back_while_a_damaged_dataset_is_mended(dataset, cache, stage_here):
    stage_here(dataset, cache)
    manifest = dataset.staged_in(cache) / "manifest.json"
    (dataset.staged_in(cache) / "train-000000.tar").unlink()
    seen = []

    class Watching(PosixRemote):
        async def read_range(self, name, offset, buffer, version):
            if name != "manifest.json":
                seen.append(manifest.exists())
            await super().read_range(name, offset, buffer, version)

    stage_here(dataset, cache, remote=Watching(str(dataset.path), 2))
    assert set(seen) == {False}
    assert manifest.exists()


def test_foreign_files_are_never_touched(dataset, cache, stage_here):
    cache.mkdir()
    (cache / "mine.txt").write_text("mine")
    stage_here(dataset, cache)
    staged = dataset.staged_in(cache)
    (staged / "notes.txt").write_text("notes")
    (staged / ".stage" / "other.partial").write_text("other")
    (cache / "datasets" / "not-an-id").mkdir()
    (staged / "train-000000.tar").unlink()
    stage_here(dataset, cache)
    assert (cache / "mine.txt").read_text() == "mine"
    assert (staged / "notes.txt").read_text() == "notes"
    assert (staged / ".stage" / "other.partial").read_text() == "other"
    assert (cache / "datasets" / "not-an-id").is_dir()


def test_a_source_that_is_no_dataset_is_missing(tmp_path, cache, stage_here, dataset):
    with pytest.raises(RemoteMissingError, match=r"nowhere/manifest\.json"):
        stage_here(replace(dataset, path=tmp_path / "nowhere"), cache)
    assert not cache.exists()
