"""When a dataset was last used: a small file in it, written by those who may write the cache.

A trainer that mounts the cache read-only leaves no mark; cleaning sees its lock and marks the dataset in its place. The
time that counts is ``CLOCK_BOOTTIME`` of this boot, so that no correction of the clock makes a dataset look idle.
"""

import json
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from shards.cache import CacheLayout
from shards.errors import FormatError
from shards.files import read_regular_file, write_file
from shards.leases import boottime_seconds, read_boot_id
from stager.limits import Retain

logger = logging.getLogger(__name__)

_MAX_MARK_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is known about the last use of a dataset."""

    boot_id: str = ""
    boottime_seconds: float = 0.0
    """``CLOCK_BOOTTIME`` of the last use, on the boot with :attr:`boot_id`."""
    used_at: float = 0.0
    """The same moment on the wall clock, in seconds since 1970: for people, and for the order across boots."""
    retain: Retain = Retain.LRU
    is_released: bool = False
    """Whether the last user said that it is done."""

    def idle_seconds(self, *, boot_id: str, now_seconds: float) -> float:
        """Give how long the dataset has been idle, as far as is known: at most since the boot.

        Args:
            boot_id: of this boot.
            now_seconds: on its ``CLOCK_BOOTTIME``.
        """
        return max(now_seconds - self.boottime_seconds, 0.0) if self.boot_id == boot_id else now_seconds

    def to_json(self) -> bytes:
        """Encode."""
        document = {
            "boot_id": self.boot_id,
            "boottime_seconds": round(self.boottime_seconds, 3),
            "used_at": round(self.used_at, 3),
            "retain": self.retain.value,
            "is_released": self.is_released,
        }
        return json.dumps(document).encode("ascii") + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> "Mark":
        """Decode; what cannot be understood counts as never used."""
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return cls()
        match document:
            case {
                "boot_id": str(boot_id),
                "boottime_seconds": int() | float() as boottime,
                "used_at": int() | float() as used_at,
                "retain": "lru" | "delete" as retain,
                "is_released": bool(is_released),
            }:
                return cls(
                    boot_id=boot_id,
                    boottime_seconds=float(boottime),
                    used_at=float(used_at),
                    retain=Retain(retain),
                    is_released=is_released,
                )
            case _:
                return cls()


def read_mark(layout: CacheLayout, dataset_id: str) -> Mark:
    """Read when a dataset was last used; without a mark that can be read: never."""
    try:
        return Mark.from_json(read_regular_file(layout.mark_path(dataset_id), max_bytes=_MAX_MARK_BYTES))
    except (OSError, FormatError):
        return Mark()


def mark_used(layout: CacheLayout, dataset_id: str, *, retain: Retain | None = None, is_released: bool = False) -> None:
    """Write down that a dataset is used now. Best effort: a mark that is lost makes it look idle since it was made.

    Args:
        layout: of the cache.
        dataset_id: which dataset.
        retain: what its user wants to become of it; as it was when None.
        is_released: whether its user is done with it.
    """
    mark = replace(
        read_mark(layout, dataset_id),
        boot_id=read_boot_id(),
        boottime_seconds=boottime_seconds(),
        used_at=datetime.now(UTC).timestamp(),
        is_released=is_released,
    )
    if retain is not None:
        mark = replace(mark, retain=retain)
    try:
        write_file(layout.mark_path(dataset_id), mark.to_json())
    except OSError as error:
        logger.debug("use not marked", extra={"dataset_id": dataset_id, "reason": str(error)})
