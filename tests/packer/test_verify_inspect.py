import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from packer.build import build
from packer.config import PackConfig
from packer.inspect import find_samples, read_manifest, read_member, summary_as_json, summary_as_text
from packer.preview import preview_build
from packer.stop import StopFlag
from packer.verify import verify_dataset
from shardferry.console import Progress
from shards.errors import FormatError, IntegrityError, MissingMemberError, NotStagedError
from shards.index import IndexBuilder, ShardIndex


@pytest.fixture(params=["tar", "tfrecord"])
def dataset(request, tmp_path, make_tree, many_files):
    destination = str(tmp_path / "out")
    config = PackConfig(
        source=make_tree(many_files),
        destination=destination,
        format_name=request.param,
        shard_size_bytes=50_000,
        jobs=1,
        read_threads=1,
    )
    build(config, preview_build(config, StopFlag()), StopFlag(), lambda *_: nullcontext(Progress("packing")))
    return destination


def verify(path, *, is_deep=False):
    return verify_dataset(path, read_manifest(path), is_deep=is_deep, report_bytes=lambda _: None)


def shard_path(path, number=0):
    return os.path.join(path, [shard.name for _, shard in read_manifest(path).shards()][number])


def flip(path, offset):
    os.chmod(path, 0o644)
    data = bytearray(Path(path).read_bytes())
    data[offset] ^= 1
    Path(path).write_bytes(data)


def test_whole_dataset_has_no_faults(dataset):
    found = verify(dataset, is_deep=True)
    assert not found.faults
    assert not found.remarks
    assert found.num_samples == 120
    assert "all is well" in found.as_text()


@pytest.mark.parametrize("offset", [0, 700, 20_000, -1])
def test_flipped_bit_of_a_shard_is_found_with_its_block(dataset, offset):
    flip(shard_path(dataset), offset)
    assert len(verify(dataset).faults) == 1
    assert "digest mismatch in train-000000" in verify(dataset).faults[0]
    assert "block 0 (byte offset 0)" in verify(dataset).faults[0]


@pytest.mark.parametrize("offset", [0, 700, -1])
def test_flipped_bit_of_an_index_is_found(dataset, offset):
    flip(f"{shard_path(dataset)}.index.arrow", offset)
    assert "digest mismatch" in verify(dataset).faults[0]


def test_all_faults_are_listed(dataset):
    flip(shard_path(dataset, 0), 100)
    os.truncate(shard_path(dataset, 1), 100)
    os.unlink(shard_path(dataset, 2))
    os.unlink(f"{shard_path(dataset, 3)}.index.arrow")
    faults = verify(dataset, is_deep=True).faults
    assert len(faults) == 4
    for part, fault in zip(["digest", "size", "No such file", "No such file"], faults, strict=True):
        assert part in fault


def test_deep_check_finds_an_index_that_belongs_to_other_content(dataset):
    """Everything agrees with everything by digests; only the scan can tell that the index lies."""
    manifest = read_manifest(dataset)
    [(_, entry), *_] = manifest.shards()
    builder = IndexBuilder()
    with ShardIndex.open(os.path.join(dataset, entry.index_name)) as index:
        for number in range(index.num_samples):
            key = "another" if number == 3 else index.key(number)
            builder.add(key, index.sample_offset(number), [tuple(member) for member in index.members(number)])
        header = index.header
    data = builder.finish(shard_name=entry.name, format_name=header.format_name, blocks=header.blocks)
    path = Path(dataset, entry.index_name)
    path.chmod(0o644)
    path.write_bytes(data)
    from dataclasses import replace

    from shards.digests import hash_bytes

    [split] = manifest.splits
    lying = replace(split.shards[0], index_size_bytes=len(data), index_digest=hash_bytes(data))
    lies = replace(manifest, splits=(replace(split, shards=(lying, *split.shards[1:])),))
    assert not verify_dataset(dataset, lies, is_deep=False, report_bytes=lambda _: None).faults
    [fault] = verify_dataset(dataset, lies, is_deep=True, report_bytes=lambda _: None).faults
    assert "sample 3" in fault
    assert "another" in fault


def test_what_does_not_belong_is_remarked(dataset):
    Path(dataset, "notes.txt").write_bytes(b"1")
    Path(dataset, ".train-000000.tar.0123456789abcdef.partial").write_bytes(b"1")
    found = verify(dataset)
    assert not found.faults
    assert len(found.remarks) == 2


def test_unfinished_and_missing_datasets_are_told_apart(dataset, tmp_path):
    os.unlink(f"{dataset}/manifest.json")
    with pytest.raises(NotStagedError, match="not a finished dataset"):
        read_manifest(dataset)
    with pytest.raises(NotStagedError, match="there is no dataset directory"):
        read_manifest(str(tmp_path / "nothing"))


def test_summary_tells_splits_and_extensions(dataset):
    manifest = read_manifest(dataset)
    text = summary_as_text(manifest)
    assert "split train: 120 samples" in text
    assert "jpg" in text
    assert summary_as_json(manifest)["num_samples"] == 120


def test_sample_is_found_with_its_members(dataset, many_files):
    [sample] = find_samples(dataset, read_manifest(dataset), "class1/img0001")
    data = Path(dataset, sample.shard_name).read_bytes()
    for member in sample.members:
        assert data[member.offset : member.offset + member.size] == many_files[f"class1/img0001.{member.extension}"]
    assert "class1/img0001: split train" in sample.as_text()
    assert find_samples(dataset, read_manifest(dataset), "nothing") == []


def test_member_is_read_and_checked(dataset, many_files):
    manifest = read_manifest(dataset)
    assert read_member(dataset, manifest, "class1/img0001.json") == many_files["class1/img0001.json"]
    with pytest.raises(MissingMemberError, match="it has: jpg, json"):
        read_member(dataset, manifest, "class1/img0001.png")
    with pytest.raises(NotStagedError, match="no sample"):
        read_member(dataset, manifest, "class1/img9999.png")
    [sample] = find_samples(dataset, manifest, "class1/img0001")
    flip(os.path.join(dataset, sample.shard_name), sample.members[1].offset)
    with pytest.raises(IntegrityError, match="is damaged"):
        read_member(dataset, manifest, "class1/img0001.json")


def test_manifest_that_is_a_fifo_or_huge_is_refused_and_not_waited_for(tmp_path):
    path = tmp_path / "manifest.json"
    os.mkfifo(path)
    with pytest.raises(FormatError, match="not a regular file"):
        read_manifest(str(tmp_path))
    path.unlink()
    with path.open("wb") as file:
        file.truncate(10 * 1024**3)
    with pytest.raises(FormatError, match="are accepted"):
        read_manifest(str(tmp_path))
