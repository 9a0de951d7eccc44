"""Which rank this process is, from what was said, from the launcher's environment, and from a framework; pure.

Rules:
    * What is said in several places must agree. A wrong world size would repeat samples, or leave some out, in silence.
    * A process that nobody calls a rank is the only one.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from loaders.order import Topology
from shards.errors import LoadError, printable

LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
"""Variables that say a process's rank and the number of ranks; the first launcher whose both are set is believed.
``SLURM_NTASKS`` is not among them: the batch script of a job has it too, and is one process."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one source says of this process."""

    source: str
    topology: Topology


def settle_topology(
    *,
    rank: int | None,
    world_size: int | None,
    environ: Mapping[str, str],
    framework: Claim | None = None,
) -> Topology:
    """Settle which rank this process is.

    Args:
        rank: as the caller gave it, or None.
        world_size: as the caller gave it, or None; both or none must be given.
        environ: the process's environment.
        framework: what a framework that is set up already says; it then stands for the environment.

    Raises:
        ValueError: only one of rank and world size was given, or they do not go together.
        LoadError: the sources contradict each other; names both.
    """
    claims = []
    if (rank is None) != (world_size is None):
        raise ValueError(f"give rank and world_size together: rank is {rank}, world_size is {world_size}")
    if rank is not None and world_size is not None:
        claims.append(Claim("the arguments", Topology(rank=rank, world_size=world_size)))
    if framework is not None:
        claims.append(framework)
    launched = _read_launcher(environ)
    if launched is not None:
        claims.append(launched)
    for first, second in itertools.pairwise(claims):
        if first.topology != second.topology:
            raise LoadError(
                f"{first.source} say{'s' if first is framework else ''} rank {first.topology.rank} of "
                f"{first.topology.world_size}, {second.source} rank {second.topology.rank} of "
                f"{second.topology.world_size}; for ranks within a group of processes pass process_group, to read "
                "everything in every process pass replicate=True"
            )
    return claims[0].topology if claims else Topology()


def _read_launcher(environ: Mapping[str, str]) -> Claim | None:
    for launcher, rank_name, size_name in LAUNCHERS:
        rank, world_size = environ.get(rank_name), environ.get(size_name)
        if rank is None or world_size is None:
            continue
        try:
            topology = Topology(rank=int(rank), world_size=int(world_size))
        except ValueError:
            raise LoadError(
                f"{rank_name}={printable(rank)} and {size_name}={printable(world_size)} in the environment are not a "
                "rank and a number of ranks"
            ) from None
        return Claim(f"the environment ({rank_name} and {size_name}, as {launcher} sets them)", topology)
    return None
