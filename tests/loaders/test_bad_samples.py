"""Samples that cannot be read or decoded: an error, or left out, counted and named."""

import logging

import pytest

import loaders
from loaders.bad_samples import BadSampleLog, BadSamplePolicy
from loaders.sample import BadSample
from shards.errors import BadSampleBudgetError, DecodeError, DigestMismatchError

torch = pytest.importorskip("torch")

from loaders.decode import Decode  # noqa: E402
from loaders.pytorch import DataLoader, ShardDataset  # noqa: E402

BAD = {4, 11, 12}


@pytest.fixture
def path(tmp_path, build):
    """24 samples, of which three have a label that is no number."""
    samples = [(f"k{number:02d}", {"cls": b"?" if number in BAD else b"%d" % number}) for number in range(24)]
    build(tmp_path / "ds", {"train": samples})
    return tmp_path / "ds"


def make(path, **options):
    dataset = ShardDataset(path, transform=Decode().to_tuple("cls"))
    return DataLoader(dataset, **{"batch_size": 4, "max_bad_rate": 1.0, "collate_fn": list, **options})


def labels(loader):
    return [label for batch in loader for (label,) in batch]


@pytest.mark.parametrize(
    "workers",
    [{}, {"num_threads": 2}, {"num_workers": 2}, {"num_workers": 1, "multiprocessing_context": "spawn"}],
    ids=str,
)
def test_bad_samples_are_left_out_and_named(path, caplog, workers):
    loader = make(path, on_bad="skip", **workers)
    with caplog.at_level(logging.WARNING):
        assert labels(loader) == [number for number in range(24) if number not in BAD]
    assert [(bad.key, "ValueError" in bad.reason) for bad in loader.bad_samples.samples] == [
        (f"k{number:02d}", True) for number in sorted(BAD)
    ]
    assert all("byte offset" in bad.origin for bad in loader.bad_samples.samples)
    named = [record for record in caplog.records if record.message == "left out a bad sample"]
    assert [record.key for record in named] == [f"k{number:02d}" for number in sorted(BAD)]


@pytest.mark.parametrize("workers", [{}, {"num_threads": 1}, {"num_workers": 1}], ids=str)
def test_the_first_bad_sample_is_an_error_by_default(path, workers):
    with pytest.raises(DecodeError, match="k04"):
        labels(make(path, **workers))


def test_all_ranks_take_equally_many_steps(path):
    steps = [len(list(make(path, on_bad="skip", rank=rank, world_size=3))) for rank in range(3)]
    assert steps == [2, 2, 2]


def test_a_batch_that_has_only_bad_samples_is_an_error(path):
    with loaders.open_dataset(path) as dataset:
        loader = DataLoader(
            ShardDataset(dataset[10:14], transform=Decode().to_tuple("cls")),
            batch_size=1,
            on_bad="skip",
            max_bad_rate=1.0,
        )
        with pytest.raises(BadSampleBudgetError, match=r"none of the 1 samples of a batch.*\n.*k11"):
            list(loader)


@pytest.mark.parametrize(
    ("budget", "allowed"),
    [({"max_bad": 2}, 2), ({"max_bad": 0}, 0), ({"max_bad_rate": 0.1}, 1)],
)
def test_the_budget_is_kept(path, budget, allowed):
    loader = make(path, on_bad="skip", **budget)
    with pytest.raises(BadSampleBudgetError, match=rf"{allowed} are allowed .*(\n.*)*k04"):
        labels(loader)
    assert loader.bad_samples.num_bad > allowed


def test_the_budget_goes_on_after_a_restart(path):
    first = make(path, on_bad="skip", max_bad=3)
    assert len(labels(first)) == 21
    second = make(path, on_bad="skip", max_bad=3)
    second.load_state_dict(first.state_dict())
    assert (second.bad_samples.num_bad, second.bad_samples.num_seen) == (3, 24)
    with pytest.raises(BadSampleBudgetError, match="4 of 32 samples"):
        labels(second)


def test_a_damaged_member_is_a_bad_sample(path):
    with loaders.open_dataset(path) as dataset:
        shard, row = dataset.locate(7)
        offset = int(shard.index.member_offsets[shard.index.first_member[row]])
    with open(shard.file.path, "r+b") as file:
        file.seek(offset)
        file.write(b"8")
    dataset = loaders.open_dataset(path, verify="crc")
    source = ShardDataset(dataset, transform=Decode().to_tuple("cls"))
    loader = DataLoader(source, batch_size=4, on_bad="skip", max_bad_rate=1.0, collate_fn=list)
    assert 7 not in labels(loader)
    assert "k07" in {bad.key for bad in loader.bad_samples.samples}
    with pytest.raises(DigestMismatchError):
        dataset[7]["cls"]


def test_counts_and_rates():
    log = BadSampleLog(BadSamplePolicy(on_bad="skip", max_count=100, max_rate=0.01))
    bad = (BadSample("k", "shard at byte offset 0", "why"),)
    log.add(64, bad)  # one is always allowed
    log.add(300, bad * 2)
    with pytest.raises(BadSampleBudgetError, match=r"4 of 364 samples .* 3 are allowed"):
        log.add(0, bad)


@pytest.mark.parametrize("options", [{"on_bad": "ignore"}, {"max_bad": -1}, {"max_bad_rate": 1.5}])
def test_impossible_policies_are_refused(path, options):
    with pytest.raises(ValueError, match=r"on_bad|max_bad"):
        make(path, **options)
