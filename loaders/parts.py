"""What a dataset asks of whatever gives it samples by number, and the runs of samples that lie together; pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Protocol

from loaders.files import ShardFile
from loaders.sample import Sample

if TYPE_CHECKING:
    from loaders.reader import OpenShard


class OpenCounts(NamedTuple):
    """What opening shards has cost in a process."""

    process: int = -1
    """Process id: a forked child begins at nothing."""
    num_opens: int = 0
    seconds: float = 0.0
    num_waits: int = 0
    """Shards that were not there yet when they were needed."""
    wait_seconds: float = 0.0
    """Time until they were."""


class Part(NamedTuple):
    """Consecutive samples of a dataset that lie in one shard, or that nothing is known of."""

    name: str
    num_samples: int


class SampleReader(Protocol):
    """Samples by number, 0 to ``len - 1``."""

    @property
    def shards(self) -> tuple[ShardFile, ...]:
        """The files behind it."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """All samples, part by part."""

    @property
    def is_split(self) -> bool:
        """Whether the numbers are those of a manifest's split."""

    @property
    def opens(self) -> OpenCounts:
        """What opening shards has cost in this process so far."""

    def __len__(self) -> int: ...

    def sample(self, number: int) -> Sample:
        """Give a sample."""

    def samples(self, numbers: range) -> Iterator[Sample]:
        """Give samples in ascending order."""

    def locate(self, number: int) -> "tuple[OpenShard, int]":
        """Give the shard of a sample and its row there."""

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Ask the kernel to read samples from the disk, all at once and in the background."""

    def find(self, key: str) -> int | None:
        """Give the number of the first sample with a key."""

    def close(self) -> None:
        """Release leases and drop the shards."""


def cut_parts(parts: Sequence[Part], numbers: range) -> tuple[Part, ...]:
    """Give the parts of a slice.

    Args:
        parts: of the whole.
        numbers: the slice; one that leaves out samples between others, or runs backwards, is one part.
    """
    if numbers == range(sum(part.num_samples for part in parts)):
        return tuple(parts)
    if numbers.step != 1 or not numbers:
        return (Part("slice", len(numbers)),)
    starts = list(accumulate((part.num_samples for part in parts), initial=0))
    first = bisect_right(starts, numbers.start) - 1
    end = bisect_left(starts, numbers.stop)
    return tuple(
        Part(parts[place].name, min(starts[place + 1], numbers.stop) - max(starts[place], numbers.start))
        for place in range(first, end)
    )
