"""Pipelines of the real webdataset library over staged shards."""

import os
import subprocess
import sys
from collections import Counter

import pytest

import loaders
from loaders import DataWait
from shards.errors import LoadError

torch = pytest.importorskip("torch")
wds = pytest.importorskip("webdataset")

from loaders.webdataset import ShardSource, sample_source  # noqa: E402 - needs torch

pytestmark = pytest.mark.filterwarnings("ignore")


def keys_of(built):
    return sorted(key for key, _ in built.samples)


def test_a_pipeline_gets_what_tarfile_to_samples_gives(built):
    source = sample_source(built.path, shuffle=False)
    found = list(wds.DataPipeline(source))
    for (key, members), sample in zip(built.samples, found, strict=True):
        assert sample.pop("__url__").startswith(built.path)
        assert sample == {"__key__": key, **members}


@pytest.mark.parametrize("num_workers", [0, 3])
def test_every_sample_comes_once_an_epoch_whatever_the_workers(built, num_workers):
    source = sample_source(built.path, seed=1)
    pipeline = wds.DataPipeline(source, wds.shuffle(5), wds.map(lambda sample: sample["__key__"]))
    loader = wds.WebLoader(pipeline, batch_size=None, num_workers=num_workers)
    orders = []
    for epoch in range(2):
        source.set_epoch(epoch)
        orders.append(list(DataWait(loader, epoch=epoch)))
        assert sorted(orders[-1]) == keys_of(built)
    assert orders[0] != orders[1]


def test_ranks_get_equally_many(built):
    seen = [list(sample_source(built.path, rank=rank, world_size=4)) for rank in range(4)]
    assert [len(samples) for samples in seen] == [6] * 4
    assert {sample["__key__"] for samples in seen for sample in samples} == set(keys_of(built))


def test_webdatasets_own_decoding_goes_on_working(tmp_path, build):
    build(tmp_path / "ds", {"train": [(f"{number}", {"cls": b"%d" % number, "json": b"[1]"}) for number in range(6)]})
    pipeline = wds.DataPipeline(
        sample_source(tmp_path / "ds", shuffle=False), wds.decode(), wds.to_tuple("cls", "json")
    )
    assert list(pipeline) == [(number, [1]) for number in range(6)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_shards_are_a_source_for_webdatasets_reader(tmp_path, build, samples_of, num_workers):
    samples = samples_of(23)
    build(tmp_path / "ds", {"train": samples})
    source = ShardSource(tmp_path / "ds", seed=3)
    pipeline = wds.DataPipeline(source, wds.tarfile_to_samples(), wds.map(lambda sample: sample["__key__"]))
    loader = torch.utils.data.DataLoader(pipeline, batch_size=None, num_workers=num_workers)
    first = list(loader)
    assert sorted(first) == sorted(key for key, _ in samples)
    source.set_epoch(1)
    assert list(loader) != first


def test_ranks_and_workers_share_the_shards(tmp_path, build, samples_of):
    build(tmp_path / "ds", {"train": samples_of(23)})
    urls = [shard["url"] for rank in range(5) for shard in ShardSource(tmp_path / "ds", rank=rank, world_size=5)]
    assert len(urls) == len(set(urls)) == 5
    with pytest.raises(LoadError, match=r"5 shards are fewer than 6 readers \(6 ranks with 1 workers each\)"):
        list(ShardSource(tmp_path / "ds", rank=0, world_size=6))


def test_what_webdataset_cannot_read_is_refused(tmp_path, build, samples_of):
    build(tmp_path / "tfrecord", {"train": samples_of(3)}, format_name="tfrecord")
    with pytest.raises(LoadError, match="tar shards only"):
        ShardSource(tmp_path / "tfrecord")
    build(tmp_path / "tar", {"train": samples_of(3)})
    with loaders.open_dataset(tmp_path / "tar") as dataset:
        with pytest.raises(LoadError, match="whole shards"):
            ShardSource(dataset[1:])
        with pytest.raises(ValueError, match="only one of both"):
            sample_source(dataset, split="train")


def test_the_lease_is_held_while_the_pipeline_lives(tmp_path, build, samples_of):
    build(tmp_path / "datasets" / ("0" * 64), {"train": samples_of(3)})
    directory = tmp_path / "datasets" / ("0" * 64)
    (directory / ".stage").mkdir()
    probe = (
        "import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    with loaders.open_dataset(directory) as dataset:
        pipeline = wds.DataPipeline(sample_source(dataset))
        assert Counter(sample["__key__"] for sample in pipeline).total() == 3
        held = subprocess.run([sys.executable, "-c", probe, os.fspath(directory)], capture_output=True, check=False)
        assert b"BlockingIOError" in held.stderr
    assert subprocess.run([sys.executable, "-c", probe, os.fspath(directory)], check=False).returncode == 0
