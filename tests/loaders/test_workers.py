"""Worker processes: each maps the shards itself, and together they give each sample exactly once."""

import multiprocessing
import pickle
import subprocess
import sys

import pytest

import loaders

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, default_collate  # noqa: E402

from loaders.pytorch import ShardDataset, collate_ragged, sample_to_dict  # noqa: E402


def key_and_label(sample):
    return sample.key, int(sample["cls"])


def keys_in(batches):
    return [key for keys, _ in batches for key in keys]


def read_in_child(dataset, connection):
    connection.send([(sample.key, dict(sample)) for sample in dataset])
    connection.close()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_an_opened_dataset_reads_in_a_child_process(built, method):
    # the child of a fork inherits maps of the parent, the others get a pickle
    context = multiprocessing.get_context(method)
    with loaders.open_dataset(built.path) as dataset:
        assert dataset[0].key == "sample/00000"
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=read_in_child, args=(dataset, sender))
        child.start()
        sender.close()
        assert receiver.recv() == built.samples
        child.join(30)
        assert child.exitcode == 0
        assert dict(dataset[22]) == built.samples[22][1]


@pytest.mark.parametrize(("num_workers", "method"), [(0, None), (2, "fork"), (2, "spawn")])
def test_data_loader_gives_each_sample_exactly_once_in_each_epoch(built, num_workers, method):
    with ShardDataset(built.path, transform=key_and_label).dataset as dataset:
        loader = DataLoader(
            ShardDataset(dataset, transform=key_and_label),
            batch_size=4,
            shuffle=True,
            num_workers=num_workers,
            multiprocessing_context=method,
            persistent_workers=num_workers > 0,
        )
        epochs = [keys_in(loader) for _ in range(2)]
    for keys in epochs:
        assert sorted(keys) == [key for key, _ in built.samples]
    assert epochs[0] != epochs[1]


def test_default_items_collate_to_lists_of_bytes(build, samples_of, tmp_path):
    samples = [(key, {"jpg": members["jpg"], "cls": members["cls"]}) for key, members in samples_of(6)]
    built = build(tmp_path / "uniform", {"train": samples})
    dataset = ShardDataset(built.path)
    assert len(dataset) == 6
    assert dataset[1] == {"__key__": samples[1][0], **samples[1][1]}
    [batch] = DataLoader(dataset, batch_size=6)
    assert batch == {
        "__key__": [key for key, _ in samples],
        "jpg": [members["jpg"] for _, members in samples],
        "cls": [members["cls"] for _, members in samples],
    }
    dataset.dataset.close()


def test_ragged_samples_collate_with_none(built):
    with ShardDataset(built.path).dataset as dataset:
        [batch] = DataLoader(ShardDataset(dataset[:4]), batch_size=4, collate_fn=collate_ragged)
        assert list(batch) == ["__key__", "jpg", "cls", "seg.png"]
        assert batch["seg.png"] == [None, None, built.samples[2][1]["seg.png"], None]
        assert batch["__key__"] == [key for key, _ in built.samples[:4]]
    assert collate_ragged([]) == {}


def test_a_batch_is_read_in_one_call(built):
    with loaders.open_dataset(built.path) as dataset:
        items = ShardDataset(dataset).__getitems__([22, 0, 7])
        assert items == [sample_to_dict(dataset[number]) for number in (22, 0, 7)]
        assert default_collate([item["__key__"] for item in items]) == ["sample/00022", "sample/00000", "sample/00007"]


def test_split_and_cache_are_only_for_opening(built):
    with loaders.open_dataset(built.path) as dataset, pytest.raises(ValueError, match="pass only one of both"):
        ShardDataset(dataset, split="train")


def test_an_item_pickles_with_its_transform(built):
    with ShardDataset(built.path, transform=key_and_label).dataset as dataset:
        copy = pickle.loads(pickle.dumps(ShardDataset(dataset, transform=key_and_label)))
        assert copy[3] == ("sample/00003", 3)
        copy.dataset.close()


def test_data_wait_around_a_data_loader_with_workers(built):
    with loaders.open_dataset(built.path) as dataset:
        loader = DataLoader(ShardDataset(dataset, transform=key_and_label), batch_size=5, num_workers=2)
        waits = loaders.DataWait(loader, on_epoch=lambda wait: None)
        assert len(waits) == 5
        assert len(keys_in(waits)) == 23
    assert waits.last.num_batches == 5
    assert 0 < waits.last.first_batch_seconds <= waits.last.wait_seconds


def test_mapped_shards_stay_within_the_descriptors_of_the_process(build, samples_of, tmp_path):
    built = build(tmp_path / "many", {"train": samples_of(120)}, shard_samples=1)
    code = f"""
import os, random, resource, loaders
before = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with loaders.open_dataset({built.path!r}) as dataset:
    for _ in range(3):
        order = list(range(len(dataset)))
        random.shuffle(order)
        assert [dataset[number]["cls"] for number in order] == [b"%d" % (number % 10) for number in order]
    assert len(os.listdir("/proc/self/fd")) - before <= 32
assert len(os.listdir("/proc/self/fd")) == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_memory_stays_flat_over_epochs(build, tmp_path):
    samples = [(f"{number:06d}", {"bin": bytes([number % 251]) * 20_000}) for number in range(3000)]
    built = build(tmp_path / "big", {"train": samples}, shard_samples=500)
    with loaders.open_dataset(built.path) as dataset:
        total = 0
        for epoch in range(4):
            total += sum(len(sample["bin"]) for sample in dataset)
            total += sum(len(dataset[(number * 977) % 3000]["bin"]) for number in range(3000))
            if epoch == 0:
                anonymous_bytes = read_anonymous_bytes()
        assert total == 4 * 2 * 3000 * 20_000
        assert read_anonymous_bytes() - anonymous_bytes < 2_000_000


def read_anonymous_bytes():
    with open("/proc/self/status", encoding="ascii") as file:
        [line] = [line for line in file if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024
