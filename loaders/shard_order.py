"""From an open dataset to its order: which shards its samples lie in."""

from bisect import bisect_left, bisect_right
from itertools import accumulate

from loaders.dataset import Dataset
from loaders.order import DatasetOrder, NodeSplit
from loaders.order_state import OrderIdentity
from shards.epoch_order import OrderSpec


def plan_order(dataset: Dataset, spec: OrderSpec, nodes: NodeSplit | None = None) -> DatasetOrder:
    """Describe the order of a dataset; sample numbers in it are positions in the dataset.

    Args:
        dataset: a split, or a slice of one. A slice that leaves out samples between others, or runs backwards, is
            shuffled as if it were one shard.
        spec: the order.
        nodes: when each node holds some of the shards only.

    Raises:
        ValueError: a slice cannot be split among nodes.
    """
    names = tuple(shard.name for shard in dataset.shards)
    samples = tuple(shard.num_samples for shard in dataset.shards)
    numbers = dataset.numbers
    if nodes is not None and not dataset.is_whole_split:
        raise ValueError("a slice of a split cannot be shared among nodes that hold different shards")
    if not dataset.is_whole_split:
        names, samples = _cut(names, samples, numbers)
    return DatasetOrder(shard_names=names, shard_samples=samples, spec=spec, nodes=nodes)


def identify_order(dataset: Dataset, order: DatasetOrder) -> OrderIdentity:
    """Give what a position in the dataset's order depends on."""
    return OrderIdentity.of(dataset.dataset_id, dataset.info.split, dataset.numbers, order.spec, order.nodes)


def _cut(names: tuple[str, ...], samples: tuple[int, ...], numbers: range) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if numbers.step != 1 or not numbers:
        return ("slice",), (len(numbers),)
    starts = list(accumulate(samples, initial=0))
    first = bisect_right(starts, numbers.start) - 1
    end = bisect_left(starts, numbers.stop)
    sizes = (min(starts[shard + 1], numbers.stop) - max(starts[shard], numbers.start) for shard in range(first, end))
    return names[first:end], tuple(sizes)
