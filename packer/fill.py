"""Fills the holes of a buffer from source files: one by one when opening is quick, with threads when it is not.

On a local disk with a warm cache, opening a file takes some microseconds, and threads would only wait for one another.
On network storage it takes milliseconds, and threads hide them. So the time per file is measured, and decides.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from packer.plan import ShardPlan
from packer.sources.files import INLINE
from packer.sources.origin import MemberReader
from shards.digests import crc32c

DEFAULT_READ_THREADS = 32
"""Enough to read some 14 000 files a second where opening one takes 2 ms."""

SLOW_FILE_SECONDS = 200e-6
"""Median time to read one file from which on threads pay."""

QUICK_FILE_SECONDS = 100e-6
"""Time of the quickest files, seen from within a reading thread, below which threads do not pay.

Neither is a mean: on a busy machine a few files take milliseconds because somebody else has the processor. A slow
server is slow for every file.
"""

QUICK_SHARE = 0.1
"""Which of the files count as the quickest."""

PROBE_FILES = 32
"""Files measured before the way is chosen for the rest of a batch."""

Hole = tuple[int, int]
"""(number of the member in the shard plan, offset of its data in the buffer)."""


class HoleFiller:
    """Reads members into their places; :meth:`close` ends its threads.

    Args:
        reader: of the source.
        read_threads: fixed number of threads, 1 for none; None chooses by measurement.
    """

    def __init__(self, reader: MemberReader, read_threads: int | None = None) -> None:
        self._reader = reader
        self._is_fixed = read_threads is not None
        self._num_threads = DEFAULT_READ_THREADS if read_threads is None else read_threads
        self._uses_threads = self._is_fixed and self._num_threads > 1
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    @property
    def uses_threads(self) -> bool:
        """Whether the next batch will be read with threads."""
        return self._uses_threads

    def fill(self, plan: ShardPlan, holes: Sequence[Hole], target: memoryview) -> list[int]:
        """Read the members of some holes.

        Args:
            plan: where the members come from.
            holes: which, and where to.
            target: the buffer.

        Returns:
            CRC-32C of each member, in the order of the holes.

        Raises:
            SourceChangedError: a file is not as planned.
            SourceError: a file cannot be read.
        """
        crcs = [0] * len(holes)
        places = iter(range(len(holes)))
        if not self._uses_threads:
            num_probed = len(holes) if self._is_fixed else min(PROBE_FILES, len(holes))
            seconds = self._fill_some(plan, holes, target, iter(range(num_probed)), crcs)
            if num_probed == len(holes):
                return crcs
            places = iter(range(num_probed, len(holes)))
            self._uses_threads = sorted(seconds)[len(seconds) // 2] > SLOW_FILE_SECONDS
        if not self._uses_threads:
            self._fill_some(plan, holes, target, places, crcs)
            return crcs
        seconds = self._fill_with_threads(plan, holes, target, places, crcs)
        if not self._is_fixed and sorted(seconds)[int(len(seconds) * QUICK_SHARE)] < QUICK_FILE_SECONDS:
            self._uses_threads = False
        return crcs

    def _fill_with_threads(
        self, plan: ShardPlan, holes: Sequence[Hole], target: memoryview, places: Iterator[int], crcs: list[int]
    ) -> list[float]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._num_threads, thread_name_prefix="read-ahead")
        # all threads draw from one iterator, so none runs dry while another has a queue
        tasks = [
            self._pool.submit(self._fill_some, plan, holes, target, places, crcs) for _ in range(self._num_threads)
        ]
        try:
            return [seconds for task in tasks for seconds in task.result()]
        finally:
            for _ in places:  # after an error, the other threads end at their next draw
                pass
            for task in tasks:
                task.exception()

    def _fill_some(
        self, plan: ShardPlan, holes: Sequence[Hole], target: memoryview, places: Iterator[int], crcs: list[int]
    ) -> list[float]:
        """Fill the holes at some places; returns the seconds that each took."""
        read_into = self._reader.read_into
        sources, sizes, stamps = plan.sources, plan.sizes, plan.stamps
        seconds = []
        started = time.perf_counter()
        for place in places:
            member, offset = holes[place]
            stamp = stamps[member]
            source = sources[member]
            if stamp == INLINE:
                target[offset : offset + len(source)] = source
                crcs[place] = crc32c(source)
            else:
                crcs[place] = read_into(source, sizes[member], stamp, target, offset)
            ended = time.perf_counter()
            seconds.append(ended - started)
            started = ended
        return seconds
