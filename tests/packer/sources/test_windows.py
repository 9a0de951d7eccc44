"""The order of samples from sources that are read in parts."""

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.group import Samples
from packer.sources.files import WINDOW_BYTES, SourceFiles, SourcePart
from packer.windows import order_in_windows


def make(batches, parts):
    """One sample of one member for each batch number."""
    files = SourceFiles()
    for number in range(len(batches)):
        files.append(b"%06d.x" % number, 1, 0)
    files.batches, files.parts = array("L", batches), parts
    count = len(batches)
    samples = Samples(
        keys=[f"{number:06d}" for number in range(count)],
        first_member=array("Q", range(count + 1)),
        file_numbers=array("Q", range(count)),
        extension_codes=array("L", [0] * count),
        extensions=("x",),
    )
    return samples, files


part_sizes = st.sampled_from([0, 1, WINDOW_BYTES // 3, WINDOW_BYTES - 1, WINDOW_BYTES, 2 * WINDOW_BYTES])


@st.composite
def sources(draw):
    parts = [
        SourcePart(size, run)
        for run in range(draw(st.integers(1, 4)))
        for size in draw(st.lists(part_sizes, min_size=1, max_size=6))
    ]
    batches = draw(st.lists(st.integers(0, len(parts) - 1), max_size=40))
    return *make(batches, parts), draw(st.none() | st.integers(0, 5))


def parts_in_order(order, files):
    return [files.batches[number] for number in order]


@given(sources())
def test_every_sample_comes_once_and_parts_are_left_for_good(source):
    samples, files, seed = source
    order = order_in_windows(range(len(samples)), samples, files, seed)
    assert sorted(order) == list(range(len(samples)))
    # a reader that keeps two windows and one part reads every part once
    last_use = {part: place for place, part in enumerate(parts_in_order(order, files))}
    first_use = {part: place for place, part in reversed(list(enumerate(parts_in_order(order, files))))}
    for place in range(len(order)):
        in_use = [part for part in first_use if first_use[part] <= place <= last_use[part]]
        assert sum(sorted(files.parts[part].size_bytes for part in in_use)[:-1]) <= WINDOW_BYTES


@given(sources())
def test_a_run_is_only_ever_read_forward_but_for_its_window(source):
    samples, files, seed = source
    order = order_in_windows(range(len(samples)), samples, files, seed)
    for left, right in pairwise(parts_in_order(order, files)):
        if right < left and files.parts[left].run == files.parts[right].run:
            assert sum(part.size_bytes for part in files.parts[right:left]) <= WINDOW_BYTES


def test_seed_changes_which_parts_meet():
    samples, files = make(
        [part for part in range(40) for _ in range(5)], [SourcePart(WINDOW_BYTES // 4, n) for n in range(40)]
    )
    first_windows = {
        frozenset(parts_in_order(order_in_windows(range(200), samples, files, seed)[:20], files)) for seed in range(5)
    }
    assert len(first_windows) == 5
    assert all(len(window) == 4 for window in first_windows)


@pytest.mark.parametrize("numbers", [[], [3], [1, 3, 5]])
def test_only_the_samples_of_the_split_are_ordered(numbers):
    samples, files = make([0, 0, 1, 1, 2, 2], [SourcePart(1, n) for n in range(3)])
    assert sorted(order_in_windows(numbers, samples, files, 0)) == numbers
