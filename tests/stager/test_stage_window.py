"""A window over a dataset that is bigger than the disk: what it holds, by values and with real readers."""

import json
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.digests import hash_bytes
from shards.epoch_order import ORDER_VERSION, OrderSpec, shard_order
from shards.live_files import open_live_file
from shards.manifest import ShardEntry
from shards.positions import ReadingPosition
from shards.progress import StageProgress, StageState
from stager.tracker import Tracker, bytes_of
from stager.window import Place, least_window_bytes, plan_window

BLOCK = 64 * 1024
NUM_SHARDS = 18
SECONDS = 60


def wait_for(condition, what="the condition"):
    deadline = time.monotonic() + SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.02)
    return result


# --- values


def make_shards(sizes):
    return [
        ShardEntry(
            name=f"s{number}",
            size_bytes=size,
            digest=hash_bytes(b""),
            num_samples=1,
            index_name=f"i{number}",
            index_size_bytes=1,
            index_digest=hash_bytes(b""),
        )
        for number, size in enumerate(sizes)
    ]


@pytest.fixture
def shards(publish, tmp_path):
    return [shard for _, shard in publish(tmp_path / "p", [1000 * (1 + n % 3) for n in range(10)]).manifest.shards()]


def test_nearest_comes_first_and_the_window_is_never_exceeded(shards):
    sequences = {0: shards, 1: shards[::-1], 2: shards}
    room = sum(bytes_of(shard) for shard in shards[2:6])
    plan = plan_window([Place(0, 2, sequences.__getitem__)], {shards[0].name: shards[0]}, room)
    assert list(plan.wanted) == list(plan.missing) == shards[2:6]
    assert list(plan.drop) == [shards[0]]


@given(data=st.data())
def test_any_window_holds_what_comes_next_and_no_more(data):
    shards = make_shards(data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=8)))
    sequences = {epoch: data.draw(st.permutations(shards)) for epoch in range(4)}
    places = [
        Place(data.draw(st.integers(0, 2)), data.draw(st.integers(0, len(shards))), sequences.__getitem__)
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    staged = {shard.name: shard for shard in data.draw(st.sets(st.sampled_from(shards)))}
    room = data.draw(st.integers(0, 300))
    plan = plan_window(places, staged, room)
    names = [shard.name for shard in plan.wanted]
    assert len(set(names)) == len(names)
    assert sum(map(bytes_of, plan.wanted)) <= room
    assert set(plan.missing) == {shard for shard in plan.wanted if shard.name not in staged}
    assert {shard.name for shard in plan.drop} == set(staged) - set(names)
    # what a lone reader needs next is there before anything that it needs later
    if len(places) == 1:
        (place,) = places
        upcoming = [*sequences[place.epoch][place.num_passed :], *sequences[place.epoch + 1]]
        order = list(dict.fromkeys(shard.name for shard in upcoming))
        assert names == order[: len(names)]


def test_readers_are_served_in_turn(shards):
    plan = plan_window([Place(0, 0, lambda epoch: shards), Place(0, 5, lambda epoch: shards)], {}, 10**9)
    assert list(plan.wanted)[:4] == [shards[0], shards[5], shards[1], shards[6]]
    assert set(plan.wanted) == set(shards)


def test_at_the_end_of_an_epoch_the_next_one_comes(shards):
    sequences = {0: shards, 1: shards[::-1]}
    room = sum(bytes_of(shard) for shard in [shards[9], shards[8], shards[7]])
    plan = plan_window([Place(0, 9, sequences.__getitem__)], {}, room)
    assert list(plan.wanted) == [shards[9], shards[8], shards[7]]


def test_the_least_window_holds_what_any_epoch_needs_at_once(shards):
    biggest = sorted(map(bytes_of, shards))[-3:]
    assert least_window_bytes(shards, 2) == sum(biggest)
    assert least_window_bytes(shards[:2], 8) == sum(map(bytes_of, shards[:2]))


@given(data=st.data())
def test_the_tracker_counts_like_a_list(data):
    wanted = make_shards(range(8))
    tracker, there, ready = Tracker(wanted), set(), 0
    for number in data.draw(st.lists(st.integers(0, 8), max_size=30)):
        is_removal = number in there and data.draw(st.booleans())
        (tracker.remove if is_removal else tracker.add)(f"s{number}")
        (there.discard if is_removal else there.add)(number)
        while ready < 8 and ready in there:
            ready += 1
        there.discard(8)
        assert (tracker.num_staged, tracker.num_ready) == (len(there), ready)
        assert tracker.staged_bytes == sum(bytes_of(wanted[n]) for n in there)
        assert tracker.ready_bytes == sum(map(bytes_of, wanted[:ready]))


# --- real processes


@pytest.fixture
def big(publish, tmp_path):
    return publish(tmp_path / "big", [BLOCK + 100 * number for number in range(NUM_SHARDS)])


class Reader:
    """Reads as a loader with block shuffle does, and says how far it is."""

    def __init__(self, published, cache, spec, name="reader"):
        self.published, self.cache, self.spec = published, cache, spec
        self.dataset_id = published.manifest.dataset_id
        self.shards = [shard for _, shard in published.manifest.shards()]
        path = cache / "positions" / self.dataset_id.removeprefix("blake3:") / f"{name}.json"
        self.name = name
        self.live = open_live_file(str(path), directory_mode=0o1777)

    def say(self, epoch, num_passed, **changes):
        values = {
            "reader": self.name,
            "dataset_id": self.dataset_id,
            "split": "train",
            "order_version": ORDER_VERSION,
            "shuffle": self.spec.shuffle,
            "seed": self.spec.seed,
            "window_shards": self.spec.window_shards,
            "epoch": epoch,
            "num_shards": len(self.shards),
            "num_shards_passed": num_passed,
            **changes,
        }
        self.live.write(ReadingPosition(**values).to_json())

    def read_epoch(self, epoch, start=0, end=None):
        sequence = shard_order(self.spec, epoch, len(self.shards))
        width = self.spec.window_shards
        for first in range(start, len(self.shards) if end is None else end, width):
            self.say(epoch, first)
            for place in sequence[first : first + width]:
                shard = self.shards[place]
                path = self.published.staged_in(self.cache) / shard.name
                wait_for(path.exists, shard.name)
                assert path.with_name(shard.index_name).exists()
                assert path.read_bytes() == (self.published.path / shard.name).read_bytes()


@pytest.fixture
def serve(big, cache):
    running = []

    def start(*options):
        command = [sys.executable, "-m", "stager", "serve", str(big.path), "--cache-dir", str(cache)]
        process = subprocess.Popen(
            [*command, "--holder", "pod", "--connections", "2", *map(str, options)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def progress_of(cache):
    try:
        return StageProgress.from_json((cache / "progress" / "pod.json").read_bytes(), name="p")
    except FileNotFoundError:
        return None


def wait_state(cache, process, state=StageState.STAGED):
    def reached():
        assert process.poll() is None, process.stderr.read()
        progress = progress_of(cache)
        return progress if progress is not None and progress.state is state else None

    return wait_for(reached, state)


class Meter(threading.Thread):
    """Watches the size of what is staged, all the time; partials of indexes are holes, and there for a moment."""

    def __init__(self, published, cache):
        super().__init__()
        self.directory = published.staged_in(cache)
        self.most_bytes = 0
        self.stop = threading.Event()

    def run(self):
        while not self.stop.wait(0.002):
            total = 0
            for path in [*self.directory.glob("train-*"), *self.directory.glob(".stage/*.tar.partial")]:
                try:
                    total += path.stat().st_size
                except FileNotFoundError:
                    continue
            self.most_bytes = max(self.most_bytes, total)


def staged_places(published, cache):
    return {int(path.stem.removeprefix("train-")) for path in published.staged_in(cache).glob("train-*.tar")}


def test_two_epochs_through_a_window_of_a_third_read_every_byte_and_never_exceed_it(big, cache, serve):
    window = big.total_bytes // 3
    spec = OrderSpec(shuffle="block", seed=5, window_shards=2)
    process = serve("--window", window, "--seed", 5, "--window-shards", 2)
    meter = Meter(big, cache)
    meter.start()
    try:
        filled = wait_state(cache, process)
        assert filled.is_ready
        assert filled.num_shards_ready == filled.num_shards_staged >= 5
        assert not (big.staged_in(cache) / "manifest.json").exists()
        reader = Reader(big, cache, spec)
        for epoch in (0, 1):
            reader.read_epoch(epoch)
        reader.live.close()
        assert process.poll() is None
    finally:
        meter.stop.set()
        meter.join()
    assert window / 2 < meter.most_bytes <= window


def test_without_a_living_reader_nothing_is_dropped(big, cache, serve):
    spec = OrderSpec(shuffle="block", window_shards=2)
    process = serve("--window", big.total_bytes // 3, "--window-shards", 2)
    wait_state(cache, process)
    reader = Reader(big, cache, spec)
    reader.read_epoch(0, end=6)
    sequence = shard_order(spec, 0, NUM_SHARDS)
    wait_for(lambda: staged_places(big, cache).issuperset(sequence[4:9]), "the window after four shards")
    wait_for(lambda: not staged_places(big, cache) & set(sequence[:4]), "the dropping of four shards")
    held = staged_places(big, cache)
    reader.live.close()  # it dies
    wait_for(lambda: not any((cache / "positions").glob("*/*.json")), "the dead reader's end to be noticed")
    assert staged_places(big, cache) >= held
    # goes on from a checkpoint that is older
    again = Reader(big, cache, spec)
    again.read_epoch(0, start=2)
    again.live.close()


def test_the_lease_of_another_job_keeps_everything(big, cache, serve, stage):
    ended = stage("run", big.path, "--cache-dir", cache, "--select", "*00[0-3].tar", "--holder", "other")
    assert ended.code == 0, ended.stderr
    process = serve("--window", big.total_bytes // 2, "--window-shards", 2)
    wait_for(lambda: len(staged_places(big, cache)) >= 7)
    reader = Reader(big, cache, OrderSpec(shuffle="block", window_shards=2))
    reader.say(0, 16)
    line = next(line for line in process.stderr if "others have a lease" in line)
    assert json.loads(line)["holders"] == "other"
    assert staged_places(big, cache) >= {0, 1, 2, 3}
    reader.live.close()


def test_a_reader_of_another_order_stops_the_dropping(big, cache, serve):
    process = serve("--window", big.total_bytes // 3, "--window-shards", 2)
    wait_state(cache, process)
    before = staged_places(big, cache)
    reader = Reader(big, cache, OrderSpec(shuffle="block", window_shards=2))
    reader.say(0, 10, order_version=ORDER_VERSION + 1)
    assert next(line for line in process.stderr if "nothing is dropped" in line)
    assert staged_places(big, cache) == before
    reader.live.close()


def test_a_complete_dataset_is_left_alone(big, cache, serve, stage):
    stage("run", big.path, "--cache-dir", cache, "--lease-ttl", "0")
    process = serve("--window", big.total_bytes // 3, "--window-shards", 2)
    wait_for(lambda: (p := progress_of(cache)) is not None and p.num_shards_staged == NUM_SHARDS)
    reader = Reader(big, cache, OrderSpec(shuffle="block", window_shards=2))
    reader.read_epoch(0)
    reader.live.close()
    assert big.is_staged(cache)
    assert process.poll() is None


def test_a_window_that_is_too_small_says_how_big_it_must_be(big, cache, serve, stage):
    process = serve("--window", 3 * BLOCK, "--window-shards", 4)
    progress = wait_state(cache, process, StageState.FAILED)
    assert progress.code == 64
    assert "needs up to 5 shards at once" in progress.message
    ended = stage("wait", "--cache-dir", cache, "--holder", "pod")
    assert ended.code == 64
