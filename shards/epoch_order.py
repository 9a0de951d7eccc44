"""In which order the samples of an epoch come: a function of seed, epoch and shards, computed on demand; pure.

Loaders read in this order, and whoever brings shards to a node while training runs brings them in it. docs/format.md
describes it, with test vectors; a change of any bit is a new :data:`ORDER_VERSION`.

=========  ===================================================  ==============================================
shuffle    order                                                for
=========  ===================================================  ==============================================
``full``   any sample may come at any position                  shards on an SSD
``block``  shards in random order, and the samples of           slow disks; shards that are still being staged
           ``window_shards`` consecutive ones among each other
``none``   as in the manifest                                   evaluation
=========  ===================================================  ==============================================
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from shards.permutation import Permutation

ORDER_VERSION = 1
"""Version of the algorithm. A position in an epoch means nothing under another one."""

Shuffle = Literal["full", "block", "none"]

DEFAULT_WINDOW_SHARDS = 8
"""Shards whose samples are shuffled among each other by ``block``: 2 GiB of shards of the usual size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSpec:
    """Everything but the epoch that decides an order."""

    shuffle: Shuffle = "full"
    seed: int = 0
    """0 to 2**63 - 1; has no effect on ``none``."""
    window_shards: int = DEFAULT_WINDOW_SHARDS
    """Has an effect on ``block`` alone."""

    def __post_init__(self) -> None:
        if self.shuffle not in get_args(Shuffle):
            raise ValueError(f"shuffle must be one of {', '.join(get_args(Shuffle))}, not {self.shuffle!r}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be 0 to 2**63 - 1, not {self.seed}")
        if self.window_shards < 1:
            raise ValueError(f"window_shards must be at least 1, not {self.window_shards}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Consecutive positions of an epoch that need certain shards and no others."""

    start: int
    """First position."""
    end: int
    """Position behind the last one."""
    shards: tuple[int, ...]
    """Places of the shards in their split, in the order in which they are to be brought."""


def shard_order(spec: OrderSpec, epoch: int, num_shards: int) -> list[int]:
    """Give the places of a split's shards in the order in which an epoch needs them.

    With ``full`` an epoch needs all shards from its first batch on; they are given in manifest order.

    Args:
        spec: the order.
        epoch: 0-based.
        num_shards: of the split.
    """
    _check_epoch(epoch)
    if spec.shuffle != "block":
        return list(range(num_shards))
    order: list[int] = Permutation(num_shards, f"shards/{spec.seed}/{epoch}")(np.arange(num_shards)).tolist()
    return order


class EpochOrder:
    """The samples of one epoch by position. Memory and the time to make it grow with the shards, not the samples.

    Attributes:
        num_samples: positions are 0 to one less.
    """

    def __init__(
        self, spec: OrderSpec, epoch: int, shard_samples: Sequence[int], *, selected: Sequence[int] | None = None
    ) -> None:
        """Lay out an epoch.

        Args:
            spec: the order.
            epoch: 0-based.
            shard_samples: number of samples in each shard of the split, in manifest order.
            selected: places of the shards that take part, ascending; all when None.
        """
        self._spec = spec
        self._epoch = epoch
        samples = np.asarray(shard_samples, np.int64)
        chosen = np.arange(len(samples)) if selected is None else np.asarray(selected, np.int64)
        self._shards = chosen[np.asarray(shard_order(spec, epoch, len(chosen)), np.int64)]
        self._sample_starts = _starts(samples)
        self._starts = _starts(samples[self._shards])
        width = self._window_shards = _window_shards(spec, len(chosen))
        self._window_starts = self._starts[:-1:width]
        self._is_manifest_order = selected is None and spec.shuffle != "block"
        self.num_samples = int(self._starts[-1])

    def numbers(self, positions: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Give the samples at some positions.

        Args:
            positions: 0 to ``num_samples - 1``, one-dimensional.

        Returns:
            int64: numbers of the samples in their split.
        """
        places = np.asarray(positions, np.int64)
        if places.size and not 0 <= int(places.min()) <= int(places.max()) < self.num_samples:
            raise ValueError(f"positions must be 0 to {self.num_samples - 1}")
        if self._spec.shuffle != "none":
            places = self._shuffle(places)
        if self._is_manifest_order:
            return places
        rank = np.searchsorted(self._starts, places, side="right") - 1
        numbers: npt.NDArray[np.int64] = self._sample_starts[self._shards[rank]] + places - self._starts[rank]
        return numbers

    def _shuffle(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        shuffled = np.empty_like(positions)
        windows = np.searchsorted(self._window_starts, positions, side="right") - 1
        for window in np.unique(windows).tolist():
            where = windows == window
            start, end = self._bounds(window)
            permute = Permutation(end - start, f"window/{self._spec.seed}/{self._epoch}/{window}")
            shuffled[where] = permute(positions[where] - start) + start
        return shuffled

    def window(self, position: int) -> Window:
        """Give the window in which a position lies; the last one for the epoch's end.

        Args:
            position: 0 to ``num_samples``.
        """
        at = max(0, min(position, self.num_samples - 1))
        return self._window(max(0, int(np.searchsorted(self._window_starts, at, side="right")) - 1))

    def windows(self) -> list[Window]:
        """Give all windows in their order: one of all shards for ``full``, one for each shard for ``none``."""
        return [self._window(window) for window in range(len(self._window_starts))]

    def _window(self, window: int) -> Window:
        start, end = self._bounds(window)
        first = window * self._window_shards
        return Window(start=start, end=end, shards=tuple(self._shards[first : first + self._window_shards].tolist()))

    def _bounds(self, window: int) -> tuple[int, int]:
        first = window * self._window_shards
        return int(self._starts[first]), int(self._starts[min(first + self._window_shards, len(self._shards))])


def _starts(samples: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Give where each shard begins when they are counted through, and the end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(samples, dtype=np.int64)])


def _window_shards(spec: OrderSpec, num_shards: int) -> int:
    widths: dict[Shuffle, int] = {"full": max(num_shards, 1), "block": spec.window_shards, "none": 1}
    return widths[spec.shuffle]


def _check_epoch(epoch: int) -> None:
    if epoch < 0:
        raise ValueError(f"epoch must not be negative: {epoch}")
