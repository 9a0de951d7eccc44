"""Data wait: the arithmetic with a clock that we move, and real slow loaders."""

import logging
import time

import pytest

from loaders.metrics import DataWait, EpochWait


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def ignore(_wait):
    pass


def slow_loader(clock, waits, tail=0.0):
    """A loader that takes waits[i] for batch i and `tail` to find out that there are no more."""
    for number, seconds in enumerate(waits):
        clock.sleep(seconds)
        yield number
    clock.sleep(tail)


def test_wait_is_the_time_at_next_and_step_the_time_between():
    clock = Clock()
    waits = DataWait(ListLoader(clock, [2.0, 0.5, 0.25], tail=0.125), on_epoch=ignore, clock=clock)
    seen = []
    for batch in waits:
        seen.append(batch)
        clock.sleep(10.0)
    assert seen == [0, 1, 2]
    assert waits.last == EpochWait(
        epoch=0, num_batches=3, wait_seconds=2.875, step_seconds=30.0, first_batch_seconds=2.0, is_complete=True
    )
    assert waits.last.total_seconds == 32.875
    assert waits.ratio == waits.last.ratio == 2.875 / 32.875


class ListLoader:
    """Restartable, unlike a generator, as a DataLoader is."""

    def __init__(self, clock, waits, tail=0.0, start=0.0):
        self.clock, self.waits, self.tail, self.start = clock, waits, tail, start

    def __iter__(self):
        self.clock.sleep(self.start)
        return slow_loader(self.clock, self.waits, self.tail)

    def __len__(self):
        return len(self.waits)


def test_starting_the_workers_belongs_to_the_first_wait():
    clock = Clock()
    waits = DataWait(ListLoader(clock, [1.0], start=5.0), on_epoch=ignore, clock=clock)
    assert list(waits) == [0]
    assert waits.first_batch_seconds == 6.0
    assert waits.wait_seconds == 6.0


def test_each_pass_is_an_epoch_of_its_own():
    clock = Clock()
    finished = []
    waits = DataWait(ListLoader(clock, [1.0, 1.0]), epoch=3, on_epoch=finished.append, clock=clock)
    list(waits)
    list(waits)
    assert [wait.epoch for wait in finished] == [3, 4]
    assert [wait.wait_seconds for wait in finished] == [2.0, 2.0]
    assert waits.last is finished[1]


def test_break_ends_the_epoch_and_counts_the_last_step():
    clock = Clock()
    finished = []
    waits = DataWait(ListLoader(clock, [1.0, 1.0, 1.0]), on_epoch=finished.append, clock=clock)
    for batch in waits:
        clock.sleep(4.0)
        if batch == 1:
            break
    assert len(finished) == 1
    assert (finished[0].num_batches, finished[0].wait_seconds, finished[0].step_seconds) == (2, 2.0, 8.0)
    assert not finished[0].is_complete
    assert str(finished[0]).endswith("(stopped early)")


def test_exception_in_the_step_ends_the_epoch_and_passes():
    clock = Clock()
    finished = []
    waits = DataWait(ListLoader(clock, [1.0, 1.0]), on_epoch=finished.append, clock=clock)
    with pytest.raises(ZeroDivisionError):
        train_until_it_breaks(waits)
    assert [wait.num_batches for wait in finished] == [1]


def train_until_it_breaks(batches):
    for batch in batches:
        _ = 1 // batch


def test_exception_of_the_loader_counts_as_waiting_and_passes():
    clock = Clock()

    def broken():
        yield 0
        clock.sleep(7.0)
        raise RuntimeError("disk on fire")

    finished = []
    with pytest.raises(RuntimeError, match="disk on fire"):
        list(DataWait(broken(), on_epoch=finished.append, clock=clock))
    assert finished[0].wait_seconds == 7.0
    assert not finished[0].is_complete


def test_loader_without_batches_gives_an_epoch_without_a_first_batch():
    clock = Clock()
    waits = DataWait([], on_epoch=ignore, clock=clock)
    assert list(waits) == []
    assert waits.last.first_batch_seconds is None
    assert waits.last.ratio == 0.0
    assert str(waits.last) == "epoch 0: waited 0.00 s of 0.00 s (0 %) for data, 0 batches"


def test_properties_grow_during_the_pass():
    clock = Clock()
    waits = DataWait(ListLoader(clock, [1.0, 2.0]), on_epoch=ignore, clock=clock)
    assert waits.num_batches == 0
    assert waits.last is None
    seen = []
    for _ in waits:
        seen.append((waits.epoch, waits.num_batches, waits.wait_seconds, waits.step_seconds))
        clock.sleep(0.5)
    assert seen == [(0, 1, 1.0, 0.0), (0, 2, 3.0, 0.5)]


def test_line_reads_as_a_sentence():
    wait = EpochWait(
        epoch=3, num_batches=412, wait_seconds=1.2, step_seconds=28.9, first_batch_seconds=0.21, is_complete=True
    )
    assert str(wait) == "epoch 3: waited 1.2 s of 30.1 s (4 %) for data, 412 batches, first batch after 0.21 s"


def test_epoch_is_logged_with_its_facts(caplog):
    clock = Clock()
    with caplog.at_level(logging.INFO, logger="loaders.metrics"):
        list(DataWait(ListLoader(clock, [1.0]), clock=clock))
    [record] = caplog.records
    assert record.getMessage() == "epoch 0: waited 1.0 s of 1.0 s (100 %) for data, 1 batch, first batch after 1.0 s"
    assert record.wait_seconds == 1.0


def test_length_is_the_loaders():
    assert len(DataWait([1, 2, 3])) == 3
    with pytest.raises(TypeError, match="generator has no length"):
        len(DataWait(number for number in range(3)))


def test_a_really_slow_loader_is_seen_as_slow_and_a_slow_step_is_not():
    def loader():
        for _ in range(4):
            time.sleep(0.02)
            yield None

    data_bound = DataWait(loader(), on_epoch=ignore)
    for _ in data_bound:
        pass
    assert data_bound.last.wait_seconds >= 0.08
    assert data_bound.last.ratio > 0.9

    compute_bound = DataWait([None] * 4, on_epoch=ignore)
    for _ in compute_bound:
        time.sleep(0.02)
    assert compute_bound.last.step_seconds >= 0.08
    assert compute_bound.last.ratio < 0.1
