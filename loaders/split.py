"""All shards of a split as one numbered sequence of samples.

Rules:
    * Sample numbers count through the shards in manifest order; a bisection over one number per shard finds a sample.
      There is no Python object per sample, whatever the size of the dataset.
    * Shards are opened on first use in each process. Open ones are inherited over ``fork`` (reads are by offset, there
      is no file position to share) and opened anew after ``spawn``: pickling carries names and numbers only.
    * At most :data:`MAX_OPEN_SHARDS`, and half of the process's file descriptors, are open at once; the one that was
      opened first goes first.
    * The dataset's lease is held while the reader is open; a reader that came by pickle takes its own at its first
      read.
"""

import itertools
import os
import resource
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TypedDict

from loaders.files import ShardFile
from loaders.partial import PartialDataset
from loaders.parts import OpenCounts, Part
from loaders.reader import OpenShard
from loaders.sample import Sample
from shards.errors import NotStagedError, printable
from shards.leases import HeldDataset, hold_dataset
from shards.manifest import ShardEntry

MAX_OPEN_SHARDS = 4096
"""Open at once in a process. Each costs a file descriptor, and some 10 KB for what its index needs."""


class _PickledState(TypedDict):
    shards: tuple[ShardFile, ...]
    lease_dir: str | None
    verify_crc: bool
    partial: PartialDataset | None


class SplitReader:
    """Gives the samples of a split by number."""

    is_split = True

    def __init__(
        self,
        shards: tuple[ShardFile, ...],
        *,
        lease_dir: str | None,
        verify_crc: bool,
        partial: PartialDataset | None = None,
    ) -> None:
        """Describe a split; nothing is opened yet.

        Args:
            shards: in manifest order.
            lease_dir: the staged dataset's directory, whose lease is to be held; None for a directory that no cache
                owns.
            verify_crc: check a member's CRC-32C at every read.
            partial: how shards are waited for that are not there yet; None when all are.
        """
        self._partial = partial
        self.shards = shards
        self._lease_dir = lease_dir
        self._verify_crc = verify_crc
        self._starts = list(itertools.accumulate((shard.num_samples for shard in shards), initial=0))
        self._open: dict[int, OpenShard] = {}
        self._max_open = _max_open_shards()
        self._lease: HeldDataset | None = None
        self._is_closed = False
        self._opens = OpenCounts()

    def __len__(self) -> int:
        return self._starts[-1]

    def __getstate__(self) -> _PickledState:
        return {
            "shards": self.shards,
            "lease_dir": self._lease_dir,
            "verify_crc": self._verify_crc,
            "partial": self._partial,
        }

    def __setstate__(self, state: _PickledState) -> None:
        SplitReader.__init__(
            self,
            state["shards"],
            lease_dir=state["lease_dir"],
            verify_crc=state["verify_crc"],
            partial=state["partial"],
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        """All samples, shard by shard."""
        return tuple(Part(shard.name, shard.num_samples) for shard in self.shards)

    def sample(self, number: int) -> Sample:
        """Give a sample.

        Args:
            number: 0 to ``len(self) - 1``.
        """
        starts = self._starts
        shard_index = bisect_right(starts, number) - 1
        shard = self._open.get(shard_index)
        if shard is None:
            shard = self._open_shard(shard_index)
        return Sample(shard, number - starts[shard_index], number)

    def samples(self, numbers: range) -> Iterator[Sample]:
        """Give samples in ascending order, shard by shard.

        A shard that this pass has opened and read to its end is dropped: a pass over a dataset must not leave all of
        it open. The last one stays, for passes over neighbouring slices.

        Args:
            numbers: consecutive sample numbers.
        """
        starts = self._starts
        number = numbers.start
        while number < numbers.stop:
            shard_index = bisect_right(starts, number) - 1
            first = starts[shard_index]
            end = min(numbers.stop, starts[shard_index + 1])
            known = self._open.get(shard_index)
            shard = known or self._open_shard(shard_index)
            for row in range(number - first, end - first):
                yield Sample(shard, row, first + row)
            if known is None and end == starts[shard_index + 1]:
                self._open.pop(shard_index, None)
            number = end

    def locate(self, number: int) -> tuple[OpenShard, int]:
        """Give the shard of a sample and its row there."""
        shard_index = bisect_right(self._starts, number) - 1
        shard = self._open.get(shard_index) or self._open_shard(shard_index)
        return shard, number - self._starts[shard_index]

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Ask the kernel to read samples from the disk, all at once and in the background."""
        for number in numbers:
            shard, row = self.locate(number)
            shard.prefetch(row)

    def find(self, key: str) -> int | None:
        """Give the number of the sample with a key; searches the shards one after the other.

        The first search reads all keys and keeps 12 bytes a sample.
        """
        for shard_index, first in enumerate(self._starts[:-1]):
            shard = self._open.get(shard_index) or self._open_shard(shard_index)
            row = shard.index.find(key)
            if row is not None:
                return first + row
        return None

    def hold(self) -> None:
        """Take the dataset's lease, when there is one to take and it is not held yet.

        Raises:
            NotStagedError: the dataset has gone from the cache.
            ValueError: the reader is closed.
        """
        if self._is_closed:
            raise ValueError("the dataset is closed")
        if self._lease is None and self._lease_dir is not None:
            try:
                self._lease = hold_dataset(self._lease_dir)
            except FileNotFoundError:
                raise NotStagedError(
                    f"{printable(self._lease_dir)} has gone from the cache: run stage run for it again"
                ) from None

    def close(self) -> None:
        """Release the lease and drop the shards; samples that are still around stay readable. May be called twice."""
        self._is_closed = True
        self._open.clear()
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _open_shard(self, shard_index: int) -> OpenShard:
        self.hold()
        # Without a lock: a lock that another thread holds at a fork would stay locked in the child for ever. Two
        # threads may open the same shard at the same time; one of the two is dropped.
        while len(self._open) >= self._max_open:
            try:
                self._open.pop(next(iter(self._open)), None)
            except (StopIteration, RuntimeError):
                break
        waited = 0.0 if self._partial is None else self._wait_for(self._partial, self.shards[shard_index])
        started = time.perf_counter()
        shard = OpenShard(self.shards[shard_index], verify_crc=self._verify_crc)
        self._open[shard_index] = shard
        before = self.opens
        self._opens = OpenCounts(
            process=os.getpid(),
            num_opens=before.num_opens + 1,
            seconds=before.seconds + time.perf_counter() - started,
            num_waits=before.num_waits + (waited > 0),
            wait_seconds=before.wait_seconds + waited,
        )
        return shard

    def _wait_for(self, partial: PartialDataset, shard: ShardFile) -> float:
        # a shard that was dropped from a window takes room as long as it is open
        for shard_index, known in list(self._open.items()):
            if known.is_unlinked:
                self._open.pop(shard_index, None)
        return partial.wait_for(shard)

    @property
    def opens(self) -> OpenCounts:
        """What opening shards has cost in this process so far."""
        process = os.getpid()
        return self._opens if self._opens.process == process else OpenCounts(process)


def _max_open_shards() -> int:
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return MAX_OPEN_SHARDS
    return max(1, min(MAX_OPEN_SHARDS, soft_limit // 2))


def list_shard_files(directory: str, entries: Iterable[ShardEntry]) -> tuple[ShardFile, ...]:
    """Turn a manifest's shard entries into files in a directory."""
    return tuple(
        ShardFile(
            name=entry.name,
            path=os.path.join(directory, entry.name),
            size_bytes=entry.size_bytes,
            digest=entry.digest,
            num_samples=entry.num_samples,
            index_path=os.path.join(directory, entry.index_name),
            index_size_bytes=entry.index_size_bytes,
            index_digest=entry.index_digest,
        )
        for entry in entries
    )
