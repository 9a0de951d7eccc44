"""The keyed permutation: one-to-one, as described, the same for ever, and as even as chance."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.permutation import MAX_SIZE, Permutation

MASK = 2**64 - 1


def mix(value):
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def permute_by_the_document(number, size, label):
    """The text of docs/format.md, word by word, in plain integers."""
    material = blake3(f"{label}/{size}".encode(), derive_key_context="shardferry order v1").digest(length=128)
    keys = [int.from_bytes(material[start : start + 8], "little") for start in range(0, 128, 8)]
    rows = math.isqrt(size - 1) + 1
    columns = -(-size // rows)
    while True:
        left, right = divmod(number, columns)
        for first in range(0, 16, 2):
            left = (left + mix((right + keys[first]) & MASK) % rows) % rows
            right = (right + mix((left + keys[first + 1]) & MASK) % columns) % columns
        number = left * columns + right
        if number < size:
            return number


@given(size=st.integers(1, 3000), label=st.text(st.characters(max_codepoint=127), max_size=8))
@settings(deadline=None)
def test_every_number_comes_exactly_once(size, label):
    assert sorted(Permutation(size, label)(np.arange(size)).tolist()) == list(range(size))


@given(data=st.data(), size=st.integers(2, MAX_SIZE))
@settings(deadline=None)
def test_it_is_what_the_document_describes(data, size):
    number = data.draw(st.integers(0, size - 1))
    assert Permutation(size, "label")([number]).tolist() == [permute_by_the_document(number, size, "label")]


def test_vectors_of_the_document():
    assert Permutation(10, "example")(range(10)).tolist() == [4, 7, 1, 9, 3, 5, 0, 8, 6, 2]
    assert Permutation(10**9, "example")([0, 1, 2, 999_999_999]).tolist() == [
        592336135,
        861712506,
        689927456,
        475110569,
    ]


def test_none_and_one():
    assert Permutation(0, "x")([]).tolist() == []
    assert Permutation(1, "x")([0, 0]).tolist() == [0, 0]


@pytest.mark.parametrize("numbers", [[5], [-1], [0, 9, 5]])
def test_numbers_outside_are_refused(numbers):
    with pytest.raises(ValueError, match="numbers must be 0 to 4"):
        Permutation(5, "x")(numbers)


@pytest.mark.parametrize("size", [-1, MAX_SIZE + 1])
def test_sizes_outside_are_refused(size):
    with pytest.raises(ValueError, match="size must be"):
        Permutation(size, "x")


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_small_orders_come_as_evenly_as_chance(size):
    draws = 4000
    seen = Counter(tuple(Permutation(size, f"draw {draw}")(range(size)).tolist()) for draw in range(draws))
    freedom = math.factorial(size) - 1
    expected = draws / (freedom + 1)
    square = sum((seen[order] - expected) ** 2 / expected for order in itertools.permutations(range(size)))
    assert square < freedom + 5 * math.sqrt(2 * freedom)


def test_big_orders_are_not_correlated():
    size = 200_000
    order = Permutation(size, "big")(np.arange(size)).astype(float)
    tolerance = 5 / math.sqrt(size)
    assert abs(np.corrcoef(np.arange(size), order)[0, 1]) < tolerance
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < tolerance
    other = Permutation(size, "another")(np.arange(size)).astype(float)
    assert abs(np.corrcoef(order, other)[0, 1]) < tolerance
