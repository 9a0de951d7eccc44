"""Which rank this process is among those that train together."""

import os

import torch.distributed

from loaders.order import Topology
from loaders.topology import Claim, settle_topology


def find_topology(
    *,
    rank: int | None = None,
    world_size: int | None = None,
    process_group: "torch.distributed.ProcessGroup | None" = None,
    replicate: bool = False,
) -> Topology:
    """Find the rank of this process from the arguments, ``torch.distributed`` and the environment.

    Args:
        rank: of this process; only together with the world size.
        world_size: number of processes that share the epochs.
        process_group: takes rank and size from this group, and from nothing else; for training in which several
            processes need the same samples (tensor or pipeline parallel), the data-parallel group.
        replicate: this process reads everything, whatever others do.

    Raises:
        ValueError: the arguments do not go together.
        LoadError: the sources contradict each other.
    """
    if replicate:
        if rank is not None or world_size is not None or process_group is not None:
            raise ValueError("replicate=True reads everything in every process: give no rank, world_size or group")
        return Topology()
    if process_group is not None:
        if rank is not None or world_size is not None:
            raise ValueError("a process_group has its rank and size already; pass only one of both")
        return _of_group(process_group)
    framework = None
    environ = os.environ
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        framework = Claim("torch.distributed", _of_group(None))
    return settle_topology(rank=rank, world_size=world_size, environ=environ, framework=framework)


def _of_group(group: "torch.distributed.ProcessGroup | None") -> Topology:
    return Topology(rank=torch.distributed.get_rank(group), world_size=torch.distributed.get_world_size(group))
