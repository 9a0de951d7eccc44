"""Datasets of which a part is there: read in the promised order while a real stager works, or refused in its words."""

import json
import os
import subprocess
import sys
import time
from collections import Counter

import pytest

import loaders
from loaders.order import NodeSplit
from shards.errors import NotStagedError
from shards.live_files import open_live_file
from shards.progress import StageProgress, StageState

torch = pytest.importorskip("torch")

from loaders.pytorch import DataLoader, ShardDataset  # noqa: E402

NUM_SAMPLES = 90
SECONDS = 60


def number_of(sample):
    return int(sample.key.rpartition("/")[2])


@pytest.fixture
def built(build, samples_of, tmp_path):
    return build(tmp_path / "published", {"train": samples_of(NUM_SAMPLES)}, shard_samples=5)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def staged_dir(built, cache):
    return cache / "datasets" / built.dataset_id.removeprefix("blake3:")


def stage(built, cache, *options):
    command = [sys.executable, "-m", "stager", "run", built.path, "--cache-dir", str(cache), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)


@pytest.fixture
def serve(built, cache):
    running = []

    def start(*options):
        command = [sys.executable, "-m", "stager", "serve", built.path, "--cache-dir", str(cache), *options]
        process = subprocess.Popen([*command, "--holder", "pod"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        running.append(process)
        wanted = staged_dir(built, cache) / ".stage" / "manifest.json"
        deadline = time.monotonic() + SECONDS
        while not wanted.exists():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    yield start
    for process in running:
        process.kill()
        process.communicate()


def open_partial(built, cache, wait_seconds=SECONDS):
    return loaders.open_dataset(built.dataset_id, cache_dir=cache, wait_seconds=wait_seconds)


def read(dataset, **options):
    loader = DataLoader(ShardDataset(dataset, transform=number_of), batch_size=4, seed=5, **options)
    return loader, [[int(number) for batch in loader for number in batch] for _ in range(2)]


@pytest.mark.parametrize("engine", [{}, {"num_threads": 2}, {"num_workers": 2}], ids=["inline", "threads", "workers"])
def test_two_epochs_through_a_window_come_in_the_order_of_the_whole_dataset(built, cache, serve, engine):
    order = {"shuffle": "block", "window_shards": 2, **engine}
    shard_bytes = max(os.path.getsize(built.shard_path(n)) + os.path.getsize(built.index_path(n)) for n in range(18))
    serve("--window", str(6 * shard_bytes), "--seed", "5", "--window-shards", "2")
    with open_partial(built, cache) as dataset:
        assert dataset.info.partial is not None
        loader, epochs = read(dataset, **order)
        positions = list((cache / "positions").glob("*/*.json"))
        assert len(positions) == 1
        said = json.loads(positions[0].read_text())
        assert (said["epoch"], said["num_shards_passed"], said["split"]) == (1, 18, "train")
        assert len(list(staged_dir(built, cache).glob("*.tar"))) <= 7
        # shards are opened again in the second epoch, but for those that the window still held
        assert loader.snapshot().total.num_opens > 18 + 9
    with loaders.open_dataset(built.path) as whole:
        assert read(whole, **order)[1] == epochs


def test_what_is_being_staged_is_waited_for_and_counted(built, cache, serve):
    serve("--seed", "5", "--window-shards", "2")
    with open_partial(built, cache) as dataset:
        _, epochs = read(dataset, shuffle="block", window_shards=2)
    assert [Counter(epoch) for epoch in epochs] == [Counter(range(NUM_SAMPLES))] * 2


def test_a_shard_that_comes_late_is_a_shard_wait(built, cache):
    stage(built, cache, "--select", "rank=0/2")
    directory = staged_dir(built, cache)
    missing = next(name for name in built.shard_names["train"] if not (directory / name).exists())
    with open_partial(built, cache) as dataset:
        # what a stager does: the index first
        script = "import shutil, sys, time; time.sleep(0.3); [shutil.copy(*pair.split('|')) for pair in sys.argv[1:]]"
        pairs = [f"{built.path}/{name}|{directory}/{name}" for name in (f"{missing}.index.arrow", missing)]
        late = subprocess.Popen([sys.executable, "-c", script, *pairs])
        first = 5 * built.shard_names["train"].index(missing)
        assert number_of(dataset[first]) == first
        assert late.wait(SECONDS) == 0
        assert dataset.opens.num_waits == 1
        assert 0 < dataset.opens.wait_seconds < SECONDS


def test_nodes_read_the_parts_that_they_staged(built, tmp_path):
    seen = Counter()
    for node in range(2):
        cache = tmp_path / f"node{node}"
        stage(built, cache, "--select", f"rank={node}/2")
        with pytest.raises(NotStagedError, match="open it with wait_seconds"):
            loaders.open_dataset(built.dataset_id, cache_dir=cache)
        with open_partial(built, cache, wait_seconds=0) as dataset:
            _, epochs = read(dataset, shuffle=True, nodes=NodeSplit(num_nodes=2), rank=node, world_size=2)
            seen.update(epochs[0])
    assert seen == Counter(range(NUM_SAMPLES))


def test_a_shard_that_nobody_brings_is_an_error_that_says_so(built, cache):
    stage(built, cache, "--select", "rank=0/2")
    with open_partial(built, cache) as dataset, pytest.raises(NotStagedError, match="no stager of its dataset runs"):
        read(dataset, shuffle=True)


def test_what_the_stager_failed_of_is_told(built, cache):
    stage(built, cache, "--select", "rank=0/2")
    progress = StageProgress(
        holder="pod",
        state=StageState.FAILED,
        source="s3://bucket/published",
        dataset_id=built.dataset_id,
        num_shards=18,
        message="access denied",
    )
    with open_live_file(str(cache / "progress" / "pod.json")) as file:
        file.write(progress.to_json())
        with open_partial(built, cache) as dataset, pytest.raises(NotStagedError, match="last error: access denied"):
            read(dataset, shuffle=True)


def test_a_wait_has_an_end(built, cache):
    stage(built, cache, "--select", "rank=0/2")
    progress = StageProgress(holder="pod", state=StageState.STAGING, source="x", dataset_id=built.dataset_id)
    with open_live_file(str(cache / "progress" / "pod.json")) as file:
        file.write(progress.to_json())
        with (
            open_partial(built, cache, 0.1) as dataset,
            pytest.raises(NotStagedError, match=r"is Staging.*wait_seconds"),
        ):
            read(dataset, shuffle=True)
    with pytest.raises(ValueError, match="must not be negative"):
        open_partial(built, cache, -1)


def test_a_complete_dataset_is_no_partial_one(built, cache):
    stage(built, cache)
    with open_partial(built, cache) as dataset:
        assert dataset.info.partial is None
        read(dataset, shuffle=True)
    assert not (cache / "positions").exists()
