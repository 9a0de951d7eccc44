"""Orders as numbers in flat arrays: where each value comes when values ascend; pure."""

import itertools
from array import array
from collections.abc import Sequence


def sorted_numbers(values: "Sequence[str] | array[int]") -> Sequence[int]:
    """Numbers of values in ascending order of the values; a range, which takes no memory, if they ascend already."""
    if all(left <= right for left, right in itertools.pairwise(values)):  # type: ignore[operator]
        return range(len(values))
    return array("I", sorted(range(len(values)), key=values.__getitem__))


def inverse(order: Sequence[int]) -> Sequence[int]:
    """Rank of each number in an order of 0 … n-1."""
    if isinstance(order, range):
        return order
    rank = array("I", [0]) * len(order)
    for place, number in enumerate(order):
        rank[number] = place
    return rank
