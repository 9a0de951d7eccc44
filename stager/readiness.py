"""When training may start: how much of a dataset must be there; pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Minimum:
    """What must be there, counted without a gap from the first shard that training reads."""

    num_shards: int | None = None
    num_bytes: int | None = None
    """Of shards and their indexes."""

    def is_met(self, num_ready: int, ready_bytes: int, *, is_complete: bool) -> bool:
        """Tell whether training may start; without any minimum, when everything that is wanted is there.

        Args:
            num_ready: shards that are there without a gap.
            ready_bytes: of those.
            is_complete: whether all is there, however little that is.
        """
        if is_complete:
            return True
        if self.num_shards is None and self.num_bytes is None:
            return False
        return num_ready >= (self.num_shards or 0) and ready_bytes >= (self.num_bytes or 0)


EVERYTHING = Minimum()
"""Training starts when all that is wanted is there."""
