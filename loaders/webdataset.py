"""Sources for pipelines of the webdataset library: stage first, rewrite later.

::

    import webdataset as wds
    from loaders.webdataset import sample_source

    pipeline = wds.DataPipeline(
        sample_source("/data/flowers", split="train"),     # instead of shard list, splitting and tarfile_to_samples
        wds.shuffle(1000),
        wds.decode("pil"),
        wds.to_tuple("jpg", "cls"),
    )

Everything behind the source stays as it is. What is different: ranks and workers share the samples and not the shards,
so each gets equally many and one shard is enough for any number of workers; every sample comes once an epoch; and while
the pipeline lives, nobody removes the dataset from the node. This module does not import webdataset; wrap what feeds
training in :class:`loaders.DataWait` to see how long it waits.
"""

import os
from collections.abc import Iterator
from typing import Any

import torch.utils.data

from loaders.dataset import Dataset, opened_dataset
from loaders.foreign.find import Source
from loaders.order import Topology, Uneven
from loaders.pytorch.dataset import ShardDataset
from loaders.pytorch.ranks import find_topology
from loaders.pytorch.samplers import ShardSampler
from loaders.pytorch.stream import ShardStream
from loaders.sample import KEY_FIELD, Sample
from shards.epoch_order import DEFAULT_WINDOW_SHARDS, OrderSpec, Shuffle, shard_order
from shards.errors import LoadError
from shards.formats import find_format

URL_FIELD = "__url__"
"""Field in which webdataset says which shard a sample comes from."""


def sample_to_wds(sample: Sample) -> dict[str, Any]:
    """Turn a sample into the dict that webdataset's ``tarfile_to_samples`` gives: key, shard, and members as bytes."""
    return {KEY_FIELD: sample.key, URL_FIELD: sample.shard_path, **sample.to_dict()}


def sample_source(
    dataset: Dataset | Source,
    *,
    split: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    shuffle: bool | Shuffle = "block",
    seed: int = 0,
    window_shards: int = DEFAULT_WINDOW_SHARDS,
    uneven: Uneven = "pad",
    rank: int | None = None,
    world_size: int | None = None,
) -> ShardStream[dict[str, Any]]:
    """Give a source of samples, tar or TFRecord: the first stage of a ``wds.DataPipeline``.

    Call ``set_epoch`` on it before each epoch; it has a state like every :class:`loaders.pytorch.ShardStream`.

    Args:
        dataset: an open dataset, or what :func:`loaders.open_dataset` takes.
        split: for opening; may be left out when there is only one.
        cache_dir: for opening by id.
        shuffle: the order of an epoch; see :mod:`shards.epoch_order`.
        seed: of the order; the same on all ranks.
        window_shards: how many shards ``"block"`` shuffles among each other.
        uneven: what happens when samples do not divide by ranks; see :mod:`loaders.order`.
        rank: of this process, when neither ``torch.distributed`` nor the environment says it.
        world_size: goes with the rank.
    """
    opened = opened_dataset(dataset, split=split, cache_dir=cache_dir)
    sampler = ShardSampler(
        opened,
        shuffle=shuffle,
        seed=seed,
        window_shards=window_shards,
        uneven=uneven,
        rank=rank,
        world_size=world_size,
    )
    return ShardStream(ShardDataset(opened, transform=sample_to_wds), sampler)


class ShardSource(torch.utils.data.IterableDataset[dict[str, str]]):
    """A source of shard paths, ``{"url": path}``, for pipelines that read the tar files themselves.

    Ranks and workers share the shards of an epoch, in an order of its own for every epoch, so there must be at least as
    many shards as workers on all ranks, and some get more samples than others: prefer :func:`sample_source`.

    Attributes:
        dataset: the open dataset; keeps its lease.
    """

    def __init__(
        self,
        dataset: Dataset | Source,
        *,
        split: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """Describe the source; see :func:`sample_source` for the arguments.

        Raises:
            LoadError: the shards are no tar files, or the dataset is only a part of its shards.
        """
        self.dataset = opened_dataset(dataset, split=split, cache_dir=cache_dir)
        if not self.dataset.is_whole_split:
            raise LoadError("webdataset reads whole shards; give the whole split, or use sample_source for a part")
        if find_format(self.dataset.info.shard_format, where=self.dataset.info.directory).has_example_records:
            raise LoadError("webdataset reads tar shards only; use sample_source for TFRecord shards")
        self._spec = OrderSpec(shuffle="block" if shuffle else "none", seed=seed)
        self._rank, self._world_size = rank, world_size
        # in memory that worker processes share
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass; the order of another epoch is another one."""
        self._epoch[0] = epoch

    def __len__(self) -> int:
        """Shards of all ranks and workers."""
        return len(self.dataset.shards)

    def __iter__(self) -> Iterator[dict[str, str]]:
        worker = torch.utils.data.get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        topology = find_topology(rank=self._rank, world_size=self._world_size)
        shards = self.dataset.shards
        readers = topology.world_size * workers
        if len(shards) < readers:
            raise LoadError(
                f"{len(shards)} shards are fewer than {readers} readers ({topology.world_size} ranks with {workers} "
                "workers each), so some would get nothing and the others wait for them; use sample_source, fewer "
                "workers, or smaller shards"
            )
        order = shard_order(self._spec, int(self._epoch[0]), len(shards))
        for place in order[_reader(topology, number) :: readers]:
            yield {"url": shards[place].path}


def _reader(topology: Topology, worker: int) -> int:
    """Number of a reader among all: the ranks first, so that each rank's first worker has as much as any other's."""
    return worker * topology.world_size + topology.rank
