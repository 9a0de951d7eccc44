"""Fills the holes of a buffer from source files: one by one when opening is quick, with threads when it is not.

On a local disk with a warm cache, opening a file takes some microseconds, and threads would only wait for one another.
On network storage it takes milliseconds, and threads hide them. So the time per file is measured, and decides.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import islice

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


class Filling:
    """Members on their way into their places; made by :meth:`HoleFiller.begin`."""

    def __init__(self, reader: MemberReader, plan: ShardPlan, holes: Sequence[Hole], target: memoryview) -> None:
        self.crcs = [0] * len(holes)
        """CRC-32C of each member, in the order of the holes, once all are read."""
        self._reader = reader
        self._plan = plan
        self._holes = holes
        self._target = target
        self._places = iter(range(len(holes)))
        self._tasks: list[Future[list[float]]] = []

    @property
    def is_started(self) -> bool:
        """Whether threads read."""
        return bool(self._tasks)

    def start(self, threads: Executor, num_threads: int) -> None:
        """Let threads read what is left."""
        # all threads draw from one iterator, so none runs dry while another has a queue
        self._tasks = [threads.submit(self.read) for _ in range(num_threads)]

    def join(self) -> list[float]:
        """Wait for the threads; gives the seconds that each member took."""
        try:
            return [seconds for task in self._tasks for seconds in task.result()]
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leave the rest unread, and wait until nobody writes into the buffer any more."""
        for _ in self._places:  # the threads end at their next draw
            pass
        for task in self._tasks:
            task.exception()

    def read(self, most: int | None = None) -> list[float]:
        """Read members that nobody has begun, all or some; gives the seconds that each took."""
        read_into, target, holes, crcs = self._reader.read_into, self._target, self._holes, self.crcs
        sources, sizes, stamps = self._plan.sources, self._plan.sizes, self._plan.stamps
        seconds = []
        started = time.perf_counter()
        for place in islice(self._places, most):
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
        """Whether what is begun next will be read with threads, so that it pays to begin it early."""
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
        return self.finish(self.begin(plan, holes, target))

    def begin(self, plan: ShardPlan, holes: Sequence[Hole], target: memoryview) -> Filling:
        """Begin to read the members of some holes, if threads are used; otherwise :meth:`finish` reads them.

        The threads take these members up as soon as they have no more of those begun before.
        """
        filling = Filling(self._reader, plan, holes, target)
        if self._uses_threads:
            self._start(filling)
        return filling

    def finish(self, filling: Filling) -> list[int]:
        """Read what is left; returns and raises as :meth:`fill`. Nobody writes into the buffer afterwards."""
        if not filling.is_started and not self._read_without_threads(filling):
            self._start(filling)
        if filling.is_started:
            seconds = filling.join()
            if not self._is_fixed and seconds and _place_in(seconds, QUICK_SHARE) < QUICK_FILE_SECONDS:
                self._uses_threads = False
        return filling.crcs

    def _read_without_threads(self, filling: Filling) -> bool:
        """Read members here, unless the first of them show that threads pay; whether that was all of them."""
        if not self._is_fixed:
            seconds = filling.read(PROBE_FILES)
            self._uses_threads = bool(seconds) and _place_in(seconds, 0.5) > SLOW_FILE_SECONDS
        if not self._uses_threads:
            filling.read()
        return not self._uses_threads

    def _start(self, filling: Filling) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._num_threads, thread_name_prefix="read-ahead")
        filling.start(self._pool, self._num_threads)


def _place_in(seconds: Sequence[float], share: float) -> float:
    return sorted(seconds)[int(len(seconds) * share)]
