"""How well the samples of a plan are mixed, as one number; pure.

The measure: cut the order of a split into windows of :data:`WINDOW_SAMPLES` consecutive samples and count the distinct
groups in each. The mean of that, divided by what a perfect shuffle is expected to show, is the quality: 1 is as good as
a perfect shuffle, and samples sorted by group give about (groups in a window when sorted) ÷ (expected groups). A loader
that reads shards in order with a shuffle buffer of that size sees what the windows see.

A group is the sample's class; without classes, the directory that tells most: the first one (below the split's) at
which samples differ.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from packer.plan import PackPlan

WINDOW_SAMPLES = 1000
"""A usual shuffle buffer. Splits of fewer than ten such windows are measured with windows of a tenth of the split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """Shuffle quality of the biggest split."""

    num_groups: int
    grouped_by: str
    """``"class"`` or ``"directory"``."""
    window_samples: int
    quality: float
    """Of the planned order, from near 0 (sorted) to about 1 (perfect); above 1 when mixed more evenly than chance."""
    unshuffled_quality: float
    """Of the same samples in the order of their keys."""


def measure_mixing(plan: PackPlan) -> Mixing | None:
    """Measure the biggest split; None when all its samples are of one group, so that there is nothing to mix."""
    start, end = _biggest_split(plan)
    order, classes = plan.order[start:end], plan.content.classes
    if classes is not None:
        groups: Sequence[int] = array("L", map(classes.numbers.__getitem__, order))
    else:
        groups = _directory_groups([plan.content.samples.keys[sample] for sample in order])
    counts = Counter(groups)
    if len(counts) < 2:
        return None
    window = min(WINDOW_SAMPLES, max(len(order) // 10, 2))
    expected = expected_distinct(counts.values(), window)
    by_key = sorted(range(len(order)), key=order.__getitem__)
    return Mixing(
        num_groups=len(counts),
        grouped_by="class" if classes is not None else "directory",
        window_samples=window,
        quality=mean_distinct(groups, window) / expected,
        unshuffled_quality=mean_distinct(map(groups.__getitem__, by_key), window) / expected,
    )


def _biggest_split(plan: PackPlan) -> tuple[int, int]:
    spans: dict[str, tuple[int, int]] = {}
    for shard in plan.shards:
        start, _ = spans.get(shard.split, (shard.start, 0))
        spans[shard.split] = (start, shard.end)
    return max(spans.values(), key=lambda span: span[1] - span[0], default=(0, 0))


def expected_distinct(counts: Iterable[int], window: int) -> float:
    """Expected number of distinct groups among ``window`` samples drawn without replacement.

    Args:
        counts: samples of each group, all above 0.
        window: samples drawn; more than there are counts as all.
    """
    counts = list(counts)
    total = sum(counts)
    window = min(window, total)
    # a group is missed with probability C(total - count, window) / C(total, window)
    whole = _log_choose(total, window)
    missed = (
        math.exp(_log_choose(total - count, window) - whole) if total - count >= window else 0.0 for count in counts
    )
    return len(counts) - math.fsum(missed)


def mean_distinct(groups: Iterable[int], window: int) -> float:
    """Mean number of distinct groups in windows that follow one another; a short last window counts if it is alone."""
    distinct = []
    seen: set[int] = set()
    count = 0
    for group in groups:
        seen.add(group)
        count += 1
        if count == window:
            distinct.append(len(seen))
            seen, count = set(), 0
    if not distinct:
        return float(len(seen))
    return math.fsum(distinct) / len(distinct)


def _log_choose(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def _directory_groups(keys: Sequence[str]) -> "array[int]":
    """Number the directories of keys at the first depth at which they differ."""
    depth = 0
    while True:
        numbers: dict[str, int] = {}
        groups = array("L", (numbers.setdefault(name, len(numbers)) for name in _directories_at(keys, depth)))
        if len(numbers) > 1 or not any(numbers):
            return groups
        depth += 1


def _directories_at(keys: Iterable[str], depth: int) -> Iterator[str]:
    for key in keys:
        parts = key.split("/", depth + 1)
        yield parts[depth] if len(parts) > depth + 1 else ""
