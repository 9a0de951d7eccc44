"""Where the time goes: the sums with clocks that we set, and a real loader's with what it really read."""

import json
import os

import pytest

import loaders
from loaders.batches import BatchReader
from loaders.io_meter import IoMeter
from loaders.io_metrics import HISTOGRAM_BOUNDS, MEASURED_EVERY, BatchTimings, Histogram, IoSnapshot, WorkerIo
from loaders.parts import OpenCounts

torch = pytest.importorskip("torch")

from loaders.pytorch import DataLoader, ShardDataset  # noqa: E402


def timings(worker=0, finished_at=0.0, **values):
    defaults = {
        "process": 1,
        "num_samples": 4,
        "items_seconds": 0.5,
        "collate_seconds": 0.25,
        "num_opens": 0,
        "open_seconds": 0.0,
        "num_shard_waits": 0,
        "shard_wait_seconds": 0.0,
    }
    measured = {"is_measured": False, "read_seconds": 0.0, "verify_seconds": 0.0, "read_bytes": 0}
    return BatchTimings(worker=worker, finished_at=finished_at, **{**defaults, **measured, **values})


def test_waits_first_batch_and_transfer():
    meter = IoMeter(rank=3)
    meter.begin(OpenCounts(9))
    meter.add(timings(finished_at=11.5), asked_at=10.0, received_at=12.0)
    meter.add(timings(finished_at=12.5), asked_at=13.0, received_at=13.0)
    meter.wait(0.5)
    seen = meter.snapshot()
    assert (seen.rank, seen.num_batches, seen.num_samples) == (3, 2, 8)
    assert (seen.wait_seconds, seen.first_batch_seconds) == (2.5, 2.0)
    assert (seen.transfer_seconds, seen.num_transfers) == (0.5, 1)
    assert sum(seen.wait_histogram.counts) == 2
    assert seen.wait_histogram.counts[0] == 1
    assert seen.wait_histogram.quantile(1.0) == 2.0


def test_ready_batches_are_those_that_lay_there_when_one_was_asked_for():
    meter = IoMeter()
    meter.begin(OpenCounts(9))
    # asked for at 10, 11, 12; ready at 1, 2 and 11.5: two lay there at 10, one at 11, one at 12
    for finished_at, asked_at in ((1.0, 10.0), (2.0, 11.0), (11.5, 12.0)):
        meter.add(timings(finished_at=finished_at), asked_at=asked_at, received_at=asked_at)
    assert meter.snapshot().num_ready_batches == 4
    assert meter.snapshot().mean_ready_batches == 4 / 3


def test_reading_is_scaled_up_from_the_measured_batches():
    meter = IoMeter()
    meter.begin(OpenCounts(9))
    meter.add(
        timings(is_measured=True, read_seconds=0.2, verify_seconds=0.1, read_bytes=400), asked_at=0, received_at=1
    )
    for _ in range(3):
        meter.add(timings(), asked_at=0, received_at=1)
    [worker] = meter.snapshot().workers
    assert (worker.num_samples, worker.num_measured_samples, worker.num_bytes) == (16, 4, 1600)
    assert worker.read_seconds == pytest.approx(0.8)
    assert worker.verify_seconds == pytest.approx(0.4)
    assert worker.decode_seconds == pytest.approx(2.0 - 0.8 - 0.4)


def test_opens_belong_to_processes_and_those_from_before_to_nobody():
    meter = IoMeter()
    meter.begin(OpenCounts(1, 5, 1.0))
    for number, (process, opens, seconds) in enumerate([(1, 6, 1.5), (2, 3, 0.25), (1, 8, 2.0), (2, 3, 0.25)]):
        meter.add(
            timings(worker=number % 2, process=process, num_opens=opens, open_seconds=seconds),
            asked_at=0,
            received_at=0,
        )
    first, second = meter.snapshot().workers
    assert (first.num_opens, first.open_seconds, second.num_opens, second.open_seconds) == (3, 1.0, 3, 0.25)


def test_snapshots_merge_and_are_plain():
    meter = IoMeter(rank=1)
    meter.begin(OpenCounts(9))
    meter.add(timings(worker=2, finished_at=1.0), asked_at=0.0, received_at=2.0)
    one = meter.snapshot()
    both = one.merge(
        IoSnapshot(rank=0, num_batches=3, wait_seconds=1.0, first_batch_seconds=5.0, workers=(WorkerIo(),))
    )
    assert (both.rank, both.num_ranks, both.num_batches, both.wait_seconds) == (0, 2, 4, 3.0)
    assert (both.first_batch_seconds, len(both.workers), both.total.num_samples) == (5.0, 2, 4)
    plain = json.loads(json.dumps(both.to_dict()))
    assert plain["wait_histogram"]["bounds"] == list(HISTOGRAM_BOUNDS)
    assert plain["workers"][0]["decode_seconds"] == 0.5


def test_quantiles_of_nothing_and_of_very_long_waits():
    assert Histogram().quantile(0.5) == 0.0
    counts = (0,) * len(HISTOGRAM_BOUNDS) + (1,)
    assert Histogram(counts).quantile(0.5) == float("inf")


@pytest.mark.parametrize("verify", ["none", "crc"])
@pytest.mark.parametrize("engine", [{}, {"num_threads": 2}, {"num_workers": 2}], ids=["inline", "threads", "workers"])
def test_a_real_loader_counts_what_it_read(build, samples_of, tmp_path, engine, verify):
    samples = [(key, {"jpg": members["jpg"] * 50}) for key, members in samples_of(40)]
    built = build(tmp_path / "dataset", {"train": samples})
    with loaders.open_dataset(built.path, verify=verify) as dataset:
        loader = DataLoader(ShardDataset(dataset, transform=lambda sample: len(sample["jpg"])), batch_size=40, **engine)
        for _ in range(2):
            assert sum(batch.sum().item() for batch in loader) == sum(len(members["jpg"]) for _, members in samples)
        seen = loader.snapshot()
    assert (seen.num_batches, seen.num_samples) == (2, 80)
    total = seen.total
    # the first batch of each worker is measured, and here all batches hold the same bytes
    assert total.num_bytes == 2 * sum(len(members["jpg"]) for _, members in samples)
    assert total.read_seconds > 0
    assert (total.verify_seconds > 0) == (verify == "crc")
    assert total.num_opens >= 8
    assert 0 < total.open_seconds <= total.items_seconds
    assert 0 < seen.first_batch_seconds <= seen.wait_seconds


def test_one_of_many_batches_is_measured(built):
    with loaders.open_dataset(built.path) as dataset:
        reader = BatchReader(ShardDataset(dataset), list)
        measured = [reader.read([0, 1], worker=0)[1].is_measured for _ in range(2 * MEASURED_EVERY)]
    assert [number for number, is_measured in enumerate(measured) if is_measured] == [0, MEASURED_EVERY]


def test_measured_samples_are_the_same_samples(built):
    from loaders.metered import ReadMeter, metered_samples

    with loaders.open_dataset(built.path, verify="crc") as dataset:
        meter = ReadMeter()
        for sample, plain in zip(metered_samples(dataset, range(len(dataset)), meter), dataset, strict=True):
            assert (sample.key, sample.number, sample.to_dict()) == (plain.key, plain.number, plain.to_dict())
            assert sample.get("nothing") is None
            assert bytes(sample.view("jpg")) == plain["jpg"]
        assert meter.num_bytes > sum(len(data) for _, members in built.samples for data in members.values())


def test_a_damaged_member_is_found_in_measured_batches_too(built):
    from loaders.metered import ReadMeter, metered_samples
    from shards.errors import DigestMismatchError

    with loaders.open_dataset(built.path, verify="crc") as dataset:
        shard, _ = dataset.locate(0)
        offset = shard.index.member_offsets[0]
        os.chmod(shard.file.path, 0o644)
        with open(shard.file.path, "r+b") as file:
            file.seek(int(offset))
            file.write(b"\xff")
        [sample] = metered_samples(dataset, [0], ReadMeter())
        with pytest.raises(DigestMismatchError, match=r"member sample/00000\.jpg"):
            _ = sample["jpg"]


def test_a_subclass_that_makes_its_own_items_is_asked_for_them(built):
    class Doubled(ShardDataset):
        def __getitem__(self, position):
            return 2 * position

    with loaders.open_dataset(built.path) as dataset:
        loader = DataLoader(Doubled(dataset), batch_size=23)
        assert [batch.tolist() for batch in loader] == [[2 * number for number in range(23)]]
