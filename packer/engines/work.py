"""What every engine is given, and what it gives back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from packer.plan import PackPlan
from packer.sources.origin import Origin
from packer.write import ReportProgress, ShardResult


@dataclass(frozen=True, slots=True)
class Setting:
    """What is the same for all shards; travels to each worker once."""

    origin: Origin
    """Where the members' bytes lie."""
    directory: str
    """Of the dataset, absolute."""
    read_threads: int | None
    """Reading threads in each process; None measures."""


class Engine(Protocol):
    """Finishes all shards of a plan."""

    def __call__(
        self, plan: PackPlan, setting: Setting, report: ReportProgress, check: Callable[[], None]
    ) -> Mapping[int, ShardResult]:
        """Finish every shard.

        Args:
            plan: of the dataset; each shard's plan is unfolded when its turn comes.
            setting: for the workers.
            report: called in this process with (samples, bytes) as the work goes on.
            check: called often; raises when the work has to stop.

        Returns:
            Result by shard number.

        Raises:
            PackError, NoSpaceError, StoppedError, OSError: the first failure; all workers have ended, finished shards
                stay, partials may be left.
        """
