"""Selections, concatenations and mixtures are datasets like any other."""

import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders import open_dataset
from loaders.views import MIX_SLOTS, concatenate, exclude, mix, select
from shards.errors import LoadError


@pytest.fixture(scope="module")
def datasets(tmp_path_factory, build, samples_of):
    """Open datasets of 23, 7 and 1 samples with different keys."""
    opened = []
    for prefix, count in (("a", 23), ("b", 7), ("c", 1)):
        path = tmp_path_factory.mktemp(prefix) / "dataset"
        build(path, {"train": samples_of(count, prefix=prefix)})
        opened.append(open_dataset(path))
    yield opened
    for dataset in opened:
        dataset.close()


def keys(dataset):
    return [sample.key for sample in dataset]


@given(positions=st.lists(st.integers(0, 22), max_size=40))
@settings(max_examples=50, deadline=None)
def test_a_selection_is_what_was_selected(datasets, positions):
    base = datasets[0]
    chosen = select(base, positions)
    assert len(chosen) == len(positions)
    assert keys(chosen) == [base.key(position) for position in positions]
    assert [dict(chosen[place]) for place in range(len(chosen))] == [dict(base[position]) for position in positions]
    assert sum(part.num_samples for part in chosen.parts) == len(chosen)
    if positions == sorted(positions):
        assert {part.name for part in chosen.parts} <= {shard.name for shard in base.shards}
    for position in positions:
        assert chosen.find(base.key(position)) == positions.index(position)


def test_a_selection_of_a_slice_counts_in_the_slice(datasets):
    base = datasets[0][10:20:2]
    assert keys(select(base, [4, 0])) == [datasets[0].key(18), datasets[0].key(10)]
    assert keys(select(datasets[0], np.array([3, 5]))[1:]) == [datasets[0].key(5)]


@pytest.mark.parametrize("position", [-1, 23])
def test_a_selection_of_what_is_not_there_is_refused(datasets, position):
    with pytest.raises(IndexError, match=f"position {position} is not in a dataset of 23"):
        select(datasets[0], [1, position])


def test_exclude_leaves_out_what_is_listed(datasets):
    base = datasets[0]
    out = [base.key(3), base.key(22)]
    kept = exclude(base, out)
    assert keys(kept) == [key for key in keys(base) if key not in out]
    assert kept.find(out[0]) is None
    assert keys(exclude(base, [*out, "nobody"], on_missing="ignore")) == keys(kept)
    with pytest.raises(LoadError, match=r"1 of 3 keys to leave out are not in the dataset:\n  nobody"):
        exclude(base, [*out, "nobody"])


def test_a_concatenation_has_all_in_order(datasets):
    together = concatenate([datasets[1], datasets[0][5:8], datasets[2]])
    expected = keys(datasets[1]) + keys(datasets[0])[5:8] + keys(datasets[2])
    assert keys(together) == expected
    assert [together.key(place) for place in range(len(together))] == expected
    assert [together.find(key) for key in expected] == list(range(len(expected)))
    assert together.find(datasets[0].key(0)) is None
    assert keys(together[-3:]) == expected[-3:]
    assert [part.num_samples for part in together.parts] == [5, 2, 3, 1]
    assert together.extensions == tuple(sorted(set(datasets[0].extensions) | set(datasets[2].extensions)))


@given(weights=st.lists(st.floats(0.01, 100), min_size=3, max_size=3), seed=st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_a_mixture_keeps_the_weights_and_sees_everything(datasets, weights, seed):
    try:
        mixed = mix(datasets, weights, seed=seed)
    except LoadError:
        assert min(weights) / sum(weights) < 1 / MIX_SLOTS
        return
    counts = Counter(key for key in keys(mixed))
    assert counts.keys() == {key for dataset in datasets for key in keys(dataset)}
    run = Counter(mixed.key(place)[0] for place in range(min(MIX_SLOTS, len(mixed))))
    if len(mixed) >= MIX_SLOTS:
        for name, weight in zip("abc", weights, strict=True):
            assert abs(run[name] - weight / sum(weights) * MIX_SLOTS) < 1
    for dataset in datasets:  # no sample of a dataset comes twice before every other one has come once
        seen = [counts[key] for key in keys(dataset)]
        assert max(seen) - min(seen) <= 1
    for key in list(counts)[:5]:
        assert mixed.key(mixed.find(key)) == key


def test_a_mixture_may_end_with_the_first_dataset(datasets):
    mixed = mix(datasets[:2], [1, 1], stop="first")
    counts = Counter(key[0] for key in keys(mixed))
    assert set(Counter(keys(mixed)).values()) == {1}
    assert counts["b"] in {6, 7}
    assert counts["a"] < 23


def test_ids_are_those_of_the_recipe(datasets):
    first, second, _ = datasets
    recipes = [
        lambda: select(first, [1, 2]),
        lambda: select(first, [2, 1]),
        lambda: select(first[1:], [0, 1]),
        lambda: concatenate([first, second]),
        lambda: concatenate([second, first]),
        lambda: concatenate([first[:20], second]),
        lambda: mix([first, second], [1, 2]),
        lambda: mix([first, second], [1, 3]),
        lambda: mix([first, second], [1, 2], seed=1),
        lambda: mix([first, second], [1, 2], stop="first"),
    ]
    ids = [recipe().dataset_id for recipe in recipes]
    assert len(set(ids)) == len(ids)
    assert [recipe().dataset_id for recipe in recipes] == ids
    assert mix([first, second], [2, 4]).dataset_id == mix([first, second], [1, 2]).dataset_id


def test_views_of_views_go_to_worker_processes(datasets):
    view = select(mix([concatenate(datasets[:2]), datasets[2]], [9, 1]), range(0, 30, 3))
    again = pickle.loads(pickle.dumps(view))
    assert keys(again) == keys(view)
    again.close()


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [([1], ValueError, "one positive weight"), ([1, 0], ValueError, "positive"), ([1, 1e-6], LoadError, "one in 1000")],
)
def test_weights_that_cannot_be_met_are_refused(datasets, weights, error, message):
    with pytest.raises(error, match=message):
        mix(datasets[:2], weights)


def test_class_tables_that_differ_are_refused(tmp_path, build, samples_of, datasets):
    opened = []
    for name, classes in (("x", ("cat", "dog")), ("y", ("dog", "cat"))):
        build(tmp_path / name, {"train": samples_of(3)}, classes=classes)
        opened.append(open_dataset(tmp_path / name))
    with pytest.raises(LoadError, match="class tables"):
        concatenate(opened)
    assert concatenate([datasets[0], opened[0]]).classes == ("cat", "dog")
    with pytest.raises(LoadError, match="no dataset"):
        concatenate([])


@pytest.mark.parametrize("shuffle", ["full", "block", "none"])
def test_a_mixture_is_shuffled_and_resumed_like_any_dataset(datasets, shuffle):
    pytest.importorskip("torch")
    from loaders.pytorch import DataLoader

    mixed = mix(datasets, [5, 4, 1])

    def loader(batch_size):
        return DataLoader(mixed, batch_size=batch_size, shuffle=shuffle, seed=3, collate_fn=lambda items: items)

    whole = [item["__key__"] for batch in loader(4) for item in batch]
    assert Counter(whole) == Counter(keys(mixed))
    first = loader(4)
    begun = []
    for number, batch in enumerate(first):
        begun += [item["__key__"] for item in batch]
        if number == 2:
            break
    second = loader(5)
    second.load_state_dict(first.state_dict())
    assert begun + [item["__key__"] for batch in second for item in batch] == whole
