"""Samples that cannot be read or decoded: an error, or left out within a budget, each of them named.

Rules:
    * Leaving out is asked for, never the default.
    * A batch that has lost samples is smaller, and still comes: ranks take equally many steps. Only a batch that has
      lost all of them is an error whatever the budget.
    * Every sample that was left out is logged with shard, byte offset, key and reason, and counts towards the budget,
      which is kept by each rank and goes on after a restart.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from loaders.dataset import Dataset
from loaders.sample import BadSample
from shards.errors import BadSampleBudgetError, NotStagedError, list_offenders

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

OnBad = Literal["error", "skip"]

DEFAULT_MAX_COUNT = 1000
DEFAULT_MAX_RATE = 0.001

KEPT_DESCRIPTIONS = 1000
"""Bad samples of which more than the number is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadSamplePolicy:
    """What to do about bad samples."""

    on_bad: OnBad = "error"
    max_count: int = DEFAULT_MAX_COUNT
    """Most that a rank may leave out, over all epochs."""
    max_rate: float = DEFAULT_MAX_RATE
    """Most of the samples seen that a rank may leave out; one is always allowed."""

    def __post_init__(self) -> None:
        if self.on_bad not in get_args(OnBad):
            raise ValueError(f"on_bad must be one of {', '.join(get_args(OnBad))}, not {self.on_bad!r}")
        if self.max_count < 0 or not 0 <= self.max_rate <= 1:
            raise ValueError(
                f"max_bad must not be negative and max_bad_rate be 0 to 1: {self.max_count}, {self.max_rate}"
            )


def keep_good(
    dataset: Dataset, positions: Sequence[int], make: Callable[[Sequence[int]], Sequence[Item]]
) -> tuple[list[Item], tuple[BadSample, ...]]:
    """Make items one by one, after making them together has failed.

    Args:
        dataset: that they are of.
        positions: in the dataset.
        make: gives the items of some positions.

    Raises:
        NotStagedError: a shard is not there: that is not the fault of a sample.
        BadSampleBudgetError: not one is good.
    """
    items: list[Item] = []
    bad = []
    for position in positions:
        try:
            items += make([position])
        except (NotStagedError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a user's transform raises on a damaged sample
            bad.append(_describe(dataset, position, error))
    if positions and not items:
        raise BadSampleBudgetError(
            f"none of the {len(bad)} samples of a batch can be used:\n{list_offenders([str(one) for one in bad])}\n"
            "if the transform is right, pack or stage the dataset again"
        )
    return items, tuple(bad)


class BadSampleLog:
    """What a rank has left out, against its budget.

    Attributes:
        policy: as given.
        num_bad: samples left out, before a restart too.
        num_seen: samples seen, the bad ones among them.
        samples: the first :data:`KEPT_DESCRIPTIONS` that this process has left out.
    """

    def __init__(self, policy: BadSamplePolicy) -> None:
        self.policy = policy
        self.num_bad = 0
        self.num_seen = 0
        self.samples: list[BadSample] = []

    def add(self, num_seen: int, bad: Sequence[BadSample]) -> None:
        """Count a batch.

        Raises:
            BadSampleBudgetError: the budget is spent; lists what was left out.
        """
        self.num_seen += num_seen
        if not bad:
            return
        self.num_bad += len(bad)
        self.samples += bad[: KEPT_DESCRIPTIONS - len(self.samples)]
        for one in bad:
            logger.warning("left out a bad sample", extra=one._asdict())
        allowed = min(self.policy.max_count, max(1, int(self.num_seen * self.policy.max_rate)))
        if self.num_bad > allowed:
            raise BadSampleBudgetError(
                f"{self.num_bad} of {self.num_seen} samples of this rank were bad, {allowed} are allowed (max_bad "
                f"{self.policy.max_count}, max_bad_rate {self.policy.max_rate:g}):\n"
                f"{list_offenders([str(one) for one in self.samples])}\n"
                "pack or stage the dataset again, leave these keys out, or allow more"
            )

    def state_dict(self) -> dict[str, Any]:
        """Give the counts, for a checkpoint; nothing when bad samples are errors."""
        if self.policy.on_bad == "error":
            return {}
        return {"num_bad": self.num_bad, "num_seen": self.num_seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from counts; from none when the state has none."""
        self.num_bad, self.num_seen = int(state.get("num_bad", 0)), int(state.get("num_seen", 0))


def _describe(dataset: Dataset, position: int, error: Exception) -> BadSample:
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    try:
        sample = dataset[position]
        return BadSample(sample.key, sample.origin, reason)
    except Exception:  # noqa: BLE001 - the index may be what is damaged
        return BadSample("", f"sample at position {position}", reason)
