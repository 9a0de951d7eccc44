"""From an open dataset to its order: which shards its samples lie in."""

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
    if nodes is not None and not dataset.is_whole_split:
        raise ValueError("a part of a split cannot be shared among nodes that hold different shards")
    parts = dataset.parts
    return DatasetOrder(
        shard_names=tuple(part.name for part in parts),
        shard_samples=tuple(part.num_samples for part in parts),
        spec=spec,
        nodes=nodes,
    )


def identify_order(dataset: Dataset, order: DatasetOrder) -> OrderIdentity:
    """Give what a position in the dataset's order depends on."""
    return OrderIdentity.of(dataset.dataset_id, dataset.info.split, dataset.numbers, order.spec, order.nodes)
