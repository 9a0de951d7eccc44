"""Grain reads packed datasets: everything once, in its own orders, with its own checkpoints."""

import pickle

import pytest

import loaders
from loaders.grain import ShardSource

grain = pytest.importorskip("grain")


@pytest.fixture
def source(built):
    source = ShardSource(built.path)
    yield source
    source.dataset.close()


def test_it_is_what_grain_calls_a_source(source, built):
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    assert len(source) == len(built.samples)
    key, members = built.samples[3]
    assert source[3] == {"__key__": key, **members}


@pytest.mark.parametrize("num_threads", [1, 8])
def test_a_shuffled_epoch_has_every_sample_once(source, built, num_threads):
    options = grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=4)
    dataset = grain.MapDataset.source(source).shuffle(seed=3).map(lambda item: item["__key__"])
    keys = list(dataset.to_iter_dataset(options))
    assert sorted(keys) == sorted(key for key, _ in built.samples)
    assert keys != [key for key, _ in built.samples]


@pytest.mark.parametrize("world_size", [1, 3])
def test_processes_share_an_epoch(source, built, world_size):
    keys = []
    for rank in range(world_size):
        sampler = grain.samplers.IndexSampler(
            len(source),
            shuffle=True,
            seed=1,
            num_epochs=1,
            shard_options=grain.sharding.ShardOptions(shard_index=rank, shard_count=world_size),
        )
        keys += [item["__key__"] for item in grain.DataLoader(data_source=source, sampler=sampler, worker_count=0)]
    assert len(keys) == len(set(keys)) == len(source) // world_size * world_size  # Grain leaves the rest out


def test_a_checkpoint_goes_on_with_a_source_that_lies_elsewhere(source, built, tmp_path):
    import shutil

    shutil.copytree(built.path, tmp_path / "elsewhere")
    elsewhere = ShardSource(tmp_path / "elsewhere")

    def loader(of):
        sampler = grain.samplers.IndexSampler(len(of), shuffle=True, seed=5, num_epochs=1)
        return iter(grain.DataLoader(data_source=of, sampler=sampler, worker_count=0))

    whole = [item["__key__"] for item in loader(source)]
    first = loader(source)
    begun = [next(first)["__key__"] for _ in range(9)]
    second = loader(elsewhere)
    second.set_state(first.get_state())
    assert begun + [item["__key__"] for item in second] == whole


def test_a_checkpoint_of_other_data_is_refused(source, built, build, samples_of, tmp_path):
    build(tmp_path / "other", {"train": samples_of(len(built.samples), prefix="other")})
    other = ShardSource(tmp_path / "other")

    def loader(of):
        sampler = grain.samplers.IndexSampler(len(of), shuffle=True, seed=5, num_epochs=1)
        return iter(grain.DataLoader(data_source=of, sampler=sampler, worker_count=0))

    with pytest.raises(ValueError, match=r"[Dd]ata ?[Ss]ource"):
        loader(other).set_state(loader(source).get_state())


def test_it_goes_to_worker_processes(source, built):
    again = pickle.loads(pickle.dumps(source))
    assert again[2] == source[2]
    again.dataset.close()


def test_a_transform_makes_the_items(built):
    source = ShardSource(loaders.open_dataset(built.path), transform=lambda sample: sample.key)
    assert [source[place] for place in range(3)] == [key for key, _ in built.samples[:3]]
    with pytest.raises(ValueError, match="only one of both"):
        ShardSource(source.dataset, split="train")
