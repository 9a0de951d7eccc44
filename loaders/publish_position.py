"""Tells the stager of a partial dataset how far this process is, so that it fetches ahead and drops what was read."""

import secrets
import weakref
from collections.abc import Mapping
from typing import Any

from loaders.order import RankEpoch
from loaders.partial import PartialDataset
from shards.cache import CacheLayout
from shards.epoch_order import ORDER_VERSION, OrderSpec
from shards.live_files import LiveFile, open_live_file
from shards.positions import ReadingPosition

_DIRECTORY_MODE = 0o1777
"""Readers are other users than the stager."""


class PositionPublisher:
    """One reader's position file; it lives as long as this object."""

    def __init__(self, partial: PartialDataset, *, split: str, spec: OrderSpec) -> None:
        """Make the file's name; nothing is written yet.

        Args:
            partial: the dataset.
            split: of which the samples are.
            spec: the order.
        """
        self._partial = partial
        self._known: Mapping[str, Any] = {
            "reader": f"loader-{secrets.token_hex(8)}",
            "dataset_id": partial.dataset_id,
            "split": split,
            "order_version": ORDER_VERSION,
            "shuffle": spec.shuffle,
            "seed": spec.seed,
            "window_shards": spec.window_shards,
        }
        self._file: LiveFile | None = None
        self._said: tuple[int, int] | None = None

    def publish(self, plan: RankEpoch, position: int) -> None:
        """Say how far a pass is. Writes only when something has changed.

        Args:
            plan: the epoch.
            position: as in :meth:`loaders.order.RankEpoch.positions`.
        """
        if self._partial.cache_root is None:
            return
        said = plan.epoch, plan.num_shards_passed(position)
        if said == self._said:
            return
        if self._file is None:
            path = CacheLayout(self._partial.cache_root).position_path(self._partial.dataset_id, self._known["reader"])
            self._file = open_live_file(path, directory_mode=_DIRECTORY_MODE)
            if self._file is None:
                return
            weakref.finalize(self, self._file.close)
        state = ReadingPosition(**self._known, epoch=said[0], num_shards=len(plan.shards), num_shards_passed=said[1])
        self._file.write(state.to_json())
        self._said = said
