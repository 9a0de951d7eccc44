"""What a cache may take, as the command line says it: quota, watermarks, what stays free; pure."""

from dataclasses import dataclass
from enum import StrEnum

HEADROOM_BYTES = 1024 * 1024
"""Part of a quota that is kept for the cache's own small files: leases, marks, locks, directories."""

DEFAULT_HIGH_WATERMARK = 0.9
DEFAULT_LOW_WATERMARK = 0.8

DEFAULT_MIN_IDLE_SECONDS = 10 * 60.0
"""A trainer that crashed and starts again finds its data."""


class Retain(StrEnum):
    """What happens to a dataset when nobody protects it any more."""

    LRU = "lru"
    """It stays until its room is needed."""
    DELETE = "delete"
    """It goes with the next cleaning."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What has to stay free: an absolute number, or a share of the whole; the larger one counts."""

    absolute: int = 0
    share: float = 0.0

    def of(self, total: int) -> int:
        """Give the number for a whole of this size."""
        return max(self.absolute, int(self.share * total))

    def at_least(self, other: "Floor") -> "Floor":
        """Combine two demands."""
        return Floor(max(self.absolute, other.absolute), max(self.share, other.share))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceLimits:
    """What the cache may take."""

    quota_bytes: int | None = None
    """Most that the cache may take on disk; None when only the disk limits it."""
    high_watermark: float = DEFAULT_HIGH_WATERMARK
    """Share of what the cache may take above which cleaning evicts."""
    low_watermark: float = DEFAULT_LOW_WATERMARK
    """Share at which it stops."""
    min_free_bytes: Floor = Floor()
    """What stays free on the disk, whoever fills it."""
    min_free_inodes: Floor = Floor()
    min_idle_seconds: float = DEFAULT_MIN_IDLE_SECONDS
    """What was used more recently is not evicted."""

    def __post_init__(self) -> None:
        if self.quota_bytes is not None and self.quota_bytes <= HEADROOM_BYTES:
            raise ValueError(f"a quota of {self.quota_bytes} bytes leaves no room beside the cache's own files (1 MiB)")
        if not 0 < self.low_watermark <= self.high_watermark <= 1:
            raise ValueError(
                f"the watermarks must satisfy 0 < low <= high <= 100%, not low {self.low_watermark:.0%}, "
                f"high {self.high_watermark:.0%}"
            )
        for name, floor in (("bytes", self.min_free_bytes), ("inodes", self.min_free_inodes)):
            if floor.absolute < 0 or not 0 <= floor.share < 1:
                raise ValueError(f"the {name} that stay free must be 0 or more, and less than 100%")
        if self.min_idle_seconds < 0:
            raise ValueError("the least idle time is negative")
