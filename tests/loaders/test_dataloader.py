"""loaders.pytorch.DataLoader: PyTorch's loader in what it gives, exact in what it shares and where it goes on."""

import json
import logging
import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import loaders
from shards.errors import IncompatibleStateError, LoadError

torch = pytest.importorskip("torch")

from loaders.pytorch import DataLoader, ShardDataset  # noqa: E402

NUM_SAMPLES = 23


def number_of(sample):
    return int(sample.key.rpartition("/")[2])


def number_and_process(sample):
    return number_of(sample), os.getpid()


def broken(sample):
    raise RuntimeError(f"cannot decode {sample.key}")


def noise(_sample):
    return torch.rand(()).item()


@pytest.fixture
def built(build, samples_of, tmp_path):
    return build(tmp_path / "dataset", {"train": samples_of(NUM_SAMPLES)})


@pytest.fixture
def numbers(built):
    with ShardDataset(built.path, transform=number_of).dataset as dataset:
        yield ShardDataset(dataset, transform=number_of)


def flat(batches):
    return [int(number) for batch in batches for number in batch]


ENGINES = [
    pytest.param({}, id="inline"),
    pytest.param({"num_threads": 3}, id="threads"),
    pytest.param({"num_workers": 2, "multiprocessing_context": "fork"}, id="fork"),
    pytest.param({"num_workers": 2, "multiprocessing_context": "spawn"}, id="spawn"),
    pytest.param({"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True}, id="persistent"),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_epochs_are_complete_differ_and_do_not_depend_on_the_engine(numbers, engine):
    loader = DataLoader(numbers, batch_size=4, shuffle=True, seed=5, **engine)
    epochs = [[batch.tolist() for batch in loader] for _ in range(2)]
    assert [len(batch) for batch in epochs[0]] == [4, 4, 4, 4, 4, 3]
    assert len(loader) == 6
    for epoch in epochs:
        assert sorted(flat(epoch)) == list(range(NUM_SAMPLES))
    assert epochs[0] != epochs[1]
    assert epochs == [[batch.tolist() for batch in DataLoader(numbers, 4, "full", seed=5)] for _ in [0]] + [epochs[1]]


@pytest.mark.parametrize("engine", ENGINES[:3])
def test_what_was_handed_out_counts_and_not_what_was_prefetched(numbers, engine):
    loader = DataLoader(numbers, batch_size=4, shuffle=True, **engine)
    batches = iter(loader)
    before = loader.state_dict()
    first = flat([next(batches), next(batches)])
    state = json.loads(json.dumps(loader.state_dict()))
    assert (before["position"], state["epoch"], state["position"]) == (0, 0, 8)
    rest = DataLoader(numbers, batch_size=5, shuffle=True)
    rest.load_state_dict(state)
    assert sorted(first + flat(rest)) == list(range(NUM_SAMPLES))
    again = DataLoader(numbers, batch_size=4, shuffle=True)
    again.load_state_dict(before)
    assert flat(again)[:8] == first
    assert sorted(first + flat(batches)) == list(range(NUM_SAMPLES))


@given(data=st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_sample_of_an_epoch_over_restarts_on_other_topologies(numbers, data):
    shuffle = data.draw(st.sampled_from(["full", "block", "none"]))
    uneven = data.draw(st.sampled_from(["pad", "exact"]))
    epoch = data.draw(st.integers(0, 3))
    seen, state = Counter(), None
    for is_last in data.draw(st.sampled_from([[True], [False, True], [False, False, True]])):
        world_size, batch_size = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
        threads = data.draw(st.sampled_from([0, 0, 2]))
        loaders_of_ranks = [
            DataLoader(
                numbers,
                batch_size,
                shuffle,
                window_shards=2,
                uneven=uneven,
                num_threads=threads,
                rank=rank,
                world_size=world_size,
            )
            for rank in range(world_size)
        ]
        position = 0 if state is None else state["position"]
        whole_steps = (NUM_SAMPLES - position) // (world_size * batch_size)
        steps = None if is_last else data.draw(st.integers(0, whole_steps))
        states, counts = [], []
        for loader in loaders_of_ranks:
            if state is not None:
                loader.load_state_dict(state)
            loader.set_epoch(epoch)
            batches = iter(loader)
            taken = list(batches) if steps is None else [next(batches) for _ in range(steps)]
            seen.update(flat(taken))
            counts.append([len(batch) for batch in taken])
            states.append(loader.state_dict())
        assert all(other == states[0] for other in states)
        if uneven == "pad" or not is_last:
            assert all(other == counts[0] for other in counts)
        state = states[0]
    assert set(seen) == set(range(NUM_SAMPLES))
    assert seen.total() - NUM_SAMPLES in (range(world_size) if uneven == "pad" else [0])
    after = DataLoader(numbers, shuffle=shuffle, window_shards=2)
    after.load_state_dict(state)
    assert sorted(flat(after)) == list(range(NUM_SAMPLES))
    assert after.epoch == epoch + 1


def test_set_epoch_keeps_a_restored_position_and_another_epoch_leaves_it_aloud(numbers, caplog):
    loader = DataLoader(numbers, batch_size=4, shuffle=True)
    loader.set_epoch(2)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    loader.load_state_dict(state)
    loader.set_epoch(2)
    assert len(flat(loader)) == NUM_SAMPLES - 4
    loader.load_state_dict(state)
    with caplog.at_level(logging.WARNING):
        loader.set_epoch(3)
    assert "leaves the restored position 4 of epoch 2" in caplog.text
    assert len(flat(loader)) == NUM_SAMPLES


def test_drop_last_and_drop_leave_out_the_same_on_all_ranks(numbers):
    steps = [
        [len(batch) for batch in DataLoader(numbers, 4, drop_last=True, uneven="drop", rank=rank, world_size=2)]
        for rank in range(2)
    ]
    assert steps == [[4, 4], [4, 4]]
    loader = DataLoader(numbers, 4, drop_last=True, rank=0, world_size=2)
    assert len(loader) == 3
    assert len(list(loader)) == 3
    assert loader.state_dict()["position"] == NUM_SAMPLES


def test_ranks_that_get_nothing_are_an_error_at_the_start(numbers):
    with pytest.raises(LoadError, match="23 samples are fewer than 64 ranks"):
        list(DataLoader(numbers, uneven="drop", rank=0, world_size=64))
    assert [len(list(DataLoader(numbers, rank=rank, world_size=64))) for rank in (0, 63)] == [1, 1]


def test_single_items_without_a_batch_size(numbers):
    assert list(DataLoader(numbers, batch_size=None)) == list(range(NUM_SAMPLES))
    assert len(DataLoader(numbers, batch_size=None)) == NUM_SAMPLES


def test_an_open_dataset_gives_dictionaries(built):
    with loaders.open_dataset(built.path) as dataset:
        batch = next(iter(DataLoader(dataset, batch_size=2)))
        assert batch["__key__"] == ["sample/00000", "sample/00001"]


def test_slices_are_shuffled_and_remembered_as_slices(built):
    with loaders.open_dataset(built.path) as dataset:
        for part in (dataset[3:17], dataset[::3], dataset[::-1], dataset[22:22]):
            loader = DataLoader(ShardDataset(part, transform=number_of), batch_size=3, shuffle="block", window_shards=2)
            assert sorted(flat(loader)) == sorted(part.numbers)
        first = DataLoader(dataset[:10], batch_size=2, collate_fn=list)
        next(iter(first))
        with pytest.raises(IncompatibleStateError, match=r"samples: saved \(0, 10, 1\), here \(10, 20, 1\)"):
            DataLoader(dataset[10:20]).load_state_dict(first.state_dict())


@pytest.mark.parametrize("engine", ENGINES[:3])
def test_an_error_in_the_transform_arrives_with_the_key(numbers, engine):
    loader = DataLoader(ShardDataset(numbers.dataset, transform=broken), batch_size=4, **engine)
    with pytest.raises(RuntimeError, match="cannot decode sample/0000"):
        list(loader)


def test_workers_work_and_threads_stay_in_the_process(numbers):
    dataset = ShardDataset(numbers.dataset, transform=number_and_process)
    forked = {int(pid) for _, pids in DataLoader(dataset, 4, num_workers=2) for pid in pids}
    assert len(forked) == 2
    assert os.getpid() not in forked
    threaded = {int(pid) for _, pids in DataLoader(dataset, 4, num_threads=2) for pid in pids}
    assert threaded == {os.getpid()}


def test_a_pass_that_is_left_ends_its_threads(numbers):
    import threading

    before = threading.active_count()
    for _ in DataLoader(numbers, 2, num_threads=3):
        break
    assert threading.active_count() == before


def test_random_numbers_of_workers_depend_on_the_place_in_training_alone(numbers):
    dataset = ShardDataset(numbers.dataset, transform=noise)

    def draw():
        loader = DataLoader(dataset, 4, num_workers=2)
        return [batch.tolist() for batch in loader], [batch.tolist() for batch in loader]

    first, second = draw()
    assert (first, second) == draw()
    assert first != second


def test_an_older_pass_does_not_move_the_state_of_a_newer_one(numbers):
    loader = DataLoader(numbers, batch_size=4)
    older = iter(loader)
    next(older)
    newer = iter(loader)
    next(newer)
    next(newer)
    next(older)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 8)


def test_another_dataset_is_refused_by_name(built, build, samples_of, tmp_path):
    other = build(tmp_path / "other", {"train": samples_of(9)})
    with loaders.open_dataset(built.path) as dataset, loaders.open_dataset(other.path) as another:
        loader = DataLoader(dataset, collate_fn=list)
        state = loader.state_dict()
        with pytest.raises(IncompatibleStateError, match=f"dataset_id: saved {dataset.dataset_id}"):
            DataLoader(another).load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"num_workers": 1, "num_threads": 1}, "worker processes or threads"),
        ({"num_workers": -1}, "must not be negative"),
        ({"persistent_workers": True}, "need num_workers"),
        ({"prefetch_factor": 2}, "needs workers or threads"),
        ({"shuffle": "shards"}, "one of full, block, none"),
    ],
)
def test_options_that_do_not_go_together_are_refused(numbers, options, message):
    with pytest.raises(ValueError, match=message):
        DataLoader(numbers, **options)


def test_pinning_without_a_gpu_is_said_to_have_no_effect(numbers, caplog):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert len(flat(DataLoader(numbers, batch_size=4, pin_memory=True))) == NUM_SAMPLES
    assert "pin_memory has no effect" in caplog.text


def test_nodes_that_hold_some_of_the_shards_read_those_alone(build, samples_of, tmp_path):
    from loaders.order import NodeSplit

    built = build(tmp_path / "many", {"train": samples_of(60)}, shard_samples=5)
    with ShardDataset(built.path, transform=number_of).dataset as dataset:
        seen, shards = Counter(), []
        for rank in range(4):
            loader = DataLoader(
                ShardDataset(dataset, transform=number_of),
                batch_size=4,
                shuffle=True,
                nodes=NodeSplit(num_nodes=2),
                rank=rank,
                world_size=4,
            )
            mine = flat(loader)
            seen.update(mine)
            shards.append({number // 5 for number in mine})
    assert seen == Counter(range(60))
    assert shards[0] == shards[1]
    assert shards[2] == shards[3]
    assert not shards[0] & shards[2]
