"""Packed datasets as map-style PyTorch datasets.

Worker processes get a dataset by fork or by pickle (spawn, forkserver) and open the shards on first use.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import torch.utils.data

from loaders.dataset import Dataset, opened_dataset
from loaders.foreign.find import Source
from loaders.metered import ReadMeter, metered_samples
from loaders.sample import Sample, sample_to_dict

Item = TypeVar("Item")


class ShardDataset(torch.utils.data.Dataset[Item], Generic[Item]):
    """Samples of a split by position, each through a transform.

    With the default transform an item is what :func:`sample_to_dict` gives, and PyTorch's default collate function
    makes a batch of ``{"__key__": list of str, extension: list of bytes, …}``, provided that all samples have the same
    extensions. For samples that have not, use :func:`collate_ragged`.

    Attributes:
        dataset: the :class:`loaders.Dataset` behind it; its ``close()`` releases the lease.
        transform: as given.
    """

    def __init__(
        self,
        dataset: Dataset | Source,
        *,
        split: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        transform: Callable[[Sample], Item] | None = None,
    ) -> None:
        """Wrap an open dataset, or open one.

        Args:
            dataset: an open dataset (or a slice of one), or what :func:`loaders.open_dataset` takes.
            split: for opening; may be left out when there is only one.
            cache_dir: for opening by id.
            transform: makes an item of a sample, in the worker. Must be picklable when workers are spawned.

        Raises:
            ValueError: a split or cache directory was given with an open dataset.
        """
        self.dataset = opened_dataset(dataset, split=split, cache_dir=cache_dir)
        self.transform = transform if transform is not None else cast("Callable[[Sample], Item]", sample_to_dict)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, position: int) -> Item:
        return self.transform(self.dataset[position])

    def __getitems__(self, positions: Sequence[int]) -> list[Item]:
        """Give the items of a whole batch, all read from the disk at once; PyTorch calls this when it is there."""
        if type(self).__getitem__ is not ShardDataset.__getitem__:
            return [self[position] for position in positions]
        dataset, transform = self.dataset, self.transform
        dataset.prefetch(positions)
        return [transform(dataset[position]) for position in positions]

    def metered_items(self, positions: Sequence[int], meter: ReadMeter) -> Sequence[Item]:
        """Give the items of a batch like :meth:`__getitems__`, and add what the reads cost to a meter.

        In a subclass that makes its items itself, their reads are not seen.
        """
        kind = type(self)
        if kind.__getitem__ is not ShardDataset.__getitem__ or kind.__getitems__ is not ShardDataset.__getitems__:
            return self.__getitems__(positions)
        self.dataset.prefetch(positions)
        return [self.transform(sample) for sample in metered_samples(self.dataset, positions, meter)]


def collate_ragged(items: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Collate mappings whose fields differ: a list per field, None where an item has no such field.

    Args:
        items: for instance from :func:`sample_to_dict`.

    Returns:
        Field → one value per item, in the order of the items. Fields are in order of first appearance.
    """
    fields = dict.fromkeys(field for item in items for field in item)
    return {field: [item.get(field) for item in items] for field in fields}
