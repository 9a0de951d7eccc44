"""Shards without a manifest: read once, hashed on the way, and made a dataset of."""

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from loaders import open_dataset
from shards.errors import DamagedShardsError, ForeignShardsError, RemoteChangedError, SelectionError
from shards.selection import Selection
from tests.stager.conftest import CountingRemote


def write_tar(path, number, *, num_samples=3, member_bytes=5000):
    with tarfile.open(path, "w") as tar:
        for sample in range(num_samples):
            for extension in ("jpg", "cls"):
                info = tarfile.TarInfo(f"{number:03d}{sample:03d}.{extension}")
                data = (extension * member_bytes)[:member_bytes].encode() + bytes([number, sample])
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


@pytest.fixture
def plain(tmp_path):
    """Four shards of somebody else's, and files that are none."""
    root = tmp_path / "plain"
    root.mkdir()
    for number in range(4):
        write_tar(root / f"train-{number:06d}.tar", number)
    (root / "README.txt").write_text("pictures")
    return root


@pytest.fixture
def stage_plain(plain, cache, stage_here):
    def run(**options):
        class Source:
            path = plain

        remote = options.pop("remote", None) or CountingRemote(str(plain), 4)
        return stage_here(Source, cache, remote, without_manifest=True, **options)

    return run


def names_in(directory):
    return sorted(name for name in os.listdir(directory) if name.endswith(".tar"))


def test_plain_shards_become_a_dataset_that_can_be_read(plain, stage_plain):
    staged = stage_plain()
    assert names_in(staged.report.path) == names_in(plain)
    for name in names_in(plain):
        assert (plain / name).read_bytes() == Path(staged.report.path, name).read_bytes()
    dataset = open_dataset(staged.report.path, split="train")
    assert len(dataset) == 12
    assert dataset[5]["cls"].endswith(bytes([1, 2]))


def test_each_byte_is_read_once(plain, stage_plain):
    staged = stage_plain()
    size = sum((plain / name).stat().st_size for name in names_in(plain))
    assert staged.remote.data_bytes == size
    assert staged.report.fetched_bytes == size
    assert staged.report.retries == 0


def test_the_same_listing_is_not_read_again(stage_plain):
    first, again = stage_plain(), stage_plain()
    assert again.remote.data_bytes == 0
    assert again.report.result == "AlreadyStaged"
    assert again.report.dataset_id == first.report.dataset_id


def test_a_changed_source_is_another_dataset_and_what_did_not_change_is_named_the_same(plain, stage_plain):
    first = stage_plain()
    write_tar(plain / "train-000004.tar", 4)
    second = stage_plain()
    assert second.report.dataset_id != first.report.dataset_id
    assert len(names_in(second.report.path)) == 5
    (plain / "train-000004.tar").unlink()
    third = stage_plain()
    assert third.report.dataset_id == first.report.dataset_id
    assert third.remote.data_bytes == 0


def test_the_same_shards_elsewhere_are_the_same_dataset(plain, tmp_path, cache, stage_here, stage_plain):
    first = stage_plain()

    class Copy:
        path = tmp_path / "copy"

    shutil.copytree(plain, Copy.path, copy_function=shutil.copyfile)
    second = stage_here(Copy, cache, without_manifest=True)
    assert second.report.dataset_id == first.report.dataset_id


def test_a_run_that_was_killed_is_gone_on_with(plain, stage_plain):
    class Dying(CountingRemote):
        async def stat(self, name):
            if name == "train-000003.tar":
                raise KeyboardInterrupt
            return await super().stat(name)

    with pytest.raises(KeyboardInterrupt):
        stage_plain(remote=Dying(str(plain), 1), connections=1)
    again = stage_plain()
    sizes = {name: (plain / name).stat().st_size for name in names_in(plain)}
    assert again.remote.data_bytes < sum(sizes.values())
    assert again.remote.data_bytes >= sizes["train-000003.tar"]
    assert names_in(again.report.path) == names_in(plain)


def test_a_shard_that_is_replaced_while_it_is_read_ends_the_run(plain, stage_plain):
    class Replacing(CountingRemote):
        async def read_range(self, name, offset, buffer, version):
            await super().read_range(name, offset, buffer, version)
            if name == "train-000002.tar":
                write_tar(plain / "new", 9)
                os.replace(plain / "new", plain / name)

    with pytest.raises(RemoteChangedError):
        stage_plain(remote=Replacing(str(plain), 4))
    assert len(names_in(stage_plain().report.path)) == 4


def test_damaged_shards_are_all_named(plain, stage_plain):
    for number in (1, 3):
        with open(plain / f"train-{number:06d}.tar", "r+b") as file:
            file.truncate(7000)
    with pytest.raises(DamagedShardsError, match=r"(?s)train-000001.*train-000003"):
        stage_plain()


def test_a_part_cannot_be_selected(stage_plain):
    with pytest.raises(SelectionError, match="pack adopt"):
        stage_plain(selection=Selection(splits=("train",)))


def test_a_place_without_shards_is_refused(plain, stage_plain):
    for name in names_in(plain):
        (plain / name).unlink()
    with pytest.raises(ForeignShardsError, match="no shard"):
        stage_plain()


def test_without_the_flag_a_missing_manifest_stays_an_error(plain, cache, stage):
    done = stage("run", plain, "--cache-dir", cache)
    assert done.code == 66
    assert "--without-manifest" in done.stderr
    done = stage("run", plain, "--cache-dir", cache, "--without-manifest", "--json")
    assert done.code == 0, done.stderr
    assert done.report["num_samples"] == 12


def test_adopting_the_shards_gives_the_same_dataset(plain, tmp_path, stage_plain):
    from packer.adopt.run import AdoptConfig, adopt

    output = str(tmp_path / "adopted")
    adopted = adopt(AdoptConfig(source=str(plain), output=output), lambda: None, lambda samples, num_bytes: None)
    assert stage_plain().report.dataset_id == adopted.manifest.dataset_id
