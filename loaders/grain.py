"""Packed datasets as a data source for Grain, the loader of the JAX world.

::

    import grain
    from loaders.grain import ShardSource

    source = ShardSource("/data/flowers", split="train", transform=Decode().to_tuple("jpg", "cls"))
    dataset = grain.MapDataset.source(source).shuffle(seed=0).batch(64)

Grain does the shuffling, the sharding over processes and the checkpoints; of samples that do not divide by the
processes, its samplers leave the last ones out. This module does not import Grain.
"""

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from loaders.dataset import Dataset, opened_dataset
from loaders.foreign.find import Source
from loaders.sample import Sample, sample_to_dict

Item = TypeVar("Item")


class ShardSource(Generic[Item]):
    """A ``grain.sources.RandomAccessDataSource``: samples of a split by position, each through a transform.

    Reading is deterministic and may be done by many threads. Worker processes get the source by pickle, and open the
    shards on first use.

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
            transform: makes an item of a sample. Must be picklable when Grain has worker processes.

        Raises:
            ValueError: a split or cache directory was given with an open dataset.
        """
        self.dataset = opened_dataset(dataset, split=split, cache_dir=cache_dir)
        self.transform = transform if transform is not None else cast("Callable[[Sample], Item]", sample_to_dict)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Item:
        """Give the item at a position: an integer in ``[0, len - 1]``."""
        return self.transform(self.dataset[index])

    def __repr__(self) -> str:
        """Name the data, for Grain compares this text before it goes on from a checkpoint.

        It names what the data are and not where they lie, so that a checkpoint is good on any node.
        """
        info = self.dataset.info
        return f"ShardSource(dataset_id={info.dataset_id!r}, split={info.split!r}, samples={len(self)})"
