"""The samplers and the stream with PyTorch's and torchdata's own loaders."""

import json

import pytest

from shards.errors import IncompatibleStateError, LoadError

torch = pytest.importorskip("torch")
stateful = pytest.importorskip("torchdata.stateful_dataloader")

from torch.utils.data import DataLoader  # noqa: E402

from loaders.pytorch import ShardBatchSampler, ShardDataset, ShardSampler, ShardStream  # noqa: E402

NUM_SAMPLES = 40

# what torchdata itself calls, and what PyTorch says of machines with few CPUs
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


def number_of(sample):
    return int(sample.key.rpartition("/")[2])


@pytest.fixture
def numbers(build, samples_of, tmp_path):
    built = build(tmp_path / "dataset", {"train": samples_of(NUM_SAMPLES)}, shard_samples=7)
    dataset = ShardDataset(built.path, transform=number_of)
    with dataset.dataset:
        yield dataset


def flat(batches):
    return [int(number) for batch in batches for number in batch]


def test_ranks_share_an_epoch_through_pytorchs_loader(numbers):
    shares = [
        flat(DataLoader(numbers, batch_size=4, sampler=ShardSampler(numbers, rank=rank, world_size=3)))
        for rank in range(3)
    ]
    assert [len(share) for share in shares] == [14, 14, 14]
    assert sorted({number for share in shares for number in share}) == list(range(NUM_SAMPLES))


def test_a_sampler_shuffles_anew_in_each_epoch_and_as_named(numbers):
    sampler = ShardSampler(numbers, seed=3)
    first, second = list(sampler), list(sampler)
    assert first != second
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert len(sampler) == NUM_SAMPLES
    assert ShardSampler(numbers, shuffle="none").mixing < ShardSampler(numbers).mixing == 1.0


def test_a_batch_sampler_gives_the_same_batches(numbers):
    single = DataLoader(numbers, batch_size=6, sampler=ShardSampler(numbers, seed=1), drop_last=True)
    batches = ShardBatchSampler(ShardSampler(numbers, seed=1), 6, drop_last=True)
    assert [batch.tolist() for batch in DataLoader(numbers, batch_sampler=batches)] == [
        batch.tolist() for batch in single
    ]
    assert len(batches) == 6
    batches.set_epoch(4)
    assert batches.sampler.epoch == 4
    with pytest.raises(ValueError, match="at least 1"):
        ShardBatchSampler(ShardSampler(numbers), 0)


def make_loader(dataset, kind, num_workers):
    sampler = ShardSampler(dataset, seed=9)
    if kind == "sampler":
        return stateful.StatefulDataLoader(dataset, batch_size=4, sampler=sampler, num_workers=num_workers)
    if kind == "batch sampler":
        batches = ShardBatchSampler(sampler, 4)
        return stateful.StatefulDataLoader(dataset, batch_sampler=batches, num_workers=num_workers)
    return stateful.StatefulDataLoader(ShardStream(dataset, sampler), batch_size=4, num_workers=num_workers)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", ["sampler", "batch sampler", "stream"])
@pytest.mark.parametrize("num_batches", [1, 6])
def test_a_stateful_loader_goes_on_in_the_middle(numbers, kind, num_workers, num_batches):
    loader = make_loader(numbers, kind, num_workers)
    batches = iter(loader)
    first = flat([next(batches) for _ in range(num_batches)])
    state = loader.state_dict()
    rest = flat(batches)
    assert sorted(first + rest) == list(range(NUM_SAMPLES))
    restored = make_loader(numbers, kind, num_workers)
    restored.load_state_dict(state)
    assert flat(restored) == rest


@pytest.mark.parametrize("kind", ["sampler", "batch sampler"])
def test_a_stateful_loader_goes_on_with_the_next_epoch_from_an_epochs_end(numbers, kind):
    loader = make_loader(numbers, kind, 0)
    epochs = [flat(loader), flat(loader)]
    again = make_loader(numbers, kind, 0)
    assert flat(again) == epochs[0]
    restored = make_loader(numbers, kind, 0)
    restored.load_state_dict(again.state_dict())
    assert flat(restored) == epochs[1]


@pytest.mark.parametrize("num_workers", [0, 2, 5])
def test_a_stream_gives_each_sample_once_over_ranks_and_workers(numbers, num_workers):
    seen = []
    for rank in range(2):
        stream = ShardStream(numbers, ShardSampler(numbers, shuffle="block", rank=rank, world_size=2))
        seen += flat(DataLoader(stream, batch_size=4, num_workers=num_workers))
        assert len(stream) == NUM_SAMPLES // 2
    assert sorted(seen) == list(range(NUM_SAMPLES))


def test_a_stream_counts_epochs_by_itself_where_it_can_and_asks_where_it_cannot(numbers):
    stream = ShardStream(numbers, ShardSampler(numbers))
    assert list(stream) != list(stream)
    stream.set_epoch(0)
    loader = DataLoader(stream, batch_size=4, num_workers=2, persistent_workers=True)
    first = flat(loader)
    with pytest.raises(LoadError, match="call set_epoch on the ShardStream"):
        flat(loader)
    stream.set_epoch(1)
    second = flat(DataLoader(stream, batch_size=4, num_workers=2))
    assert first != second
    assert sorted(first) == sorted(second)
    with pytest.raises(ValueError, match="must not be negative"):
        stream.set_epoch(-1)


def test_persistent_workers_hear_of_the_epoch(numbers):
    stream = ShardStream(numbers, ShardSampler(numbers, shuffle="block"))
    loader = DataLoader(stream, batch_size=4, num_workers=2, persistent_workers=True)
    epochs = []
    for epoch in (0, 1, 0):
        stream.set_epoch(epoch)
        epochs.append(flat(loader))
    assert epochs[0] == epochs[2] != epochs[1]


def test_evaluation_passes_may_repeat(numbers):
    loader = DataLoader(ShardStream(numbers, ShardSampler(numbers, shuffle=False)), batch_size=4, num_workers=1)
    assert flat(loader) == flat(loader) == list(range(NUM_SAMPLES))


def test_states_of_loaders_and_streams_are_not_taken_for_one_another(numbers):
    sampler = ShardSampler(numbers)
    stream = ShardStream(numbers, sampler)
    state = json.loads(json.dumps(stream.state_dict()))
    with pytest.raises(IncompatibleStateError, match="it lacks position"):
        sampler.load_state_dict(state)
    with pytest.raises(IncompatibleStateError, match="not the state of a stream"):
        stream.load_state_dict(sampler.state_dict())
    with pytest.raises(IncompatibleStateError, match="seed: saved 0, here 4"):
        ShardStream(numbers, ShardSampler(numbers, seed=4)).load_state_dict({**state, "given": 3})
