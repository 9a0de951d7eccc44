"""Measures bare reading, without decoding: how many samples a second, and how many files are opened for it.

Rules:
    * Opens are counted, not estimated: Python reports each through its audit hook, and a file that native code mapped
      is seen in the list of this process's mappings.
    * Both ways read the same samples in the same shuffled order, in one thread.
    * What the page cache does is measured and said; no latency is made up.
"""

import contextlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from loaders import Dataset

PASSES = 3
"""The fastest of three passes counts: other work on the machine only ever makes a pass slower."""
SEED = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One way of reading all samples of a split once."""

    num_samples: int
    num_opens: int
    """Files of the dataset opened for one pass, the first one, which pays for all."""
    samples_per_second: float
    """From the page cache, the fastest pass."""
    cold_samples_per_second: float | None
    """First pass after the files were dropped from the page cache; None when this filesystem does not drop them."""


class OpenCounter:
    """Counts how often files below a directory are opened or mapped by this process."""

    def __init__(self) -> None:
        """Start listening; an audit hook cannot be removed, so make only one."""
        self._root: str | None = None
        self._num_opens = 0
        self._opened: set[str] = set()
        sys.addaudithook(self._listen)

    @contextlib.contextmanager
    def counting(self, root: str) -> Iterator[Callable[[], int]]:
        """Count below a directory while the block runs; call the value for the number so far."""
        self._root = os.path.realpath(root) + os.sep
        self._num_opens = 0
        self._opened.clear()
        try:
            yield self._count
        finally:
            self._root = None

    def _listen(self, event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or self._root is None or not isinstance(arguments[0], str):
            return
        path = os.path.realpath(arguments[0])
        if path.startswith(self._root) and not os.path.isdir(path):
            self._num_opens += 1
            self._opened.add(path)

    def _count(self) -> int:
        root = self._root or os.sep
        mapped = set()
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")
                if (path[1] + path[2]).startswith(root):
                    mapped.add(path[1] + path[2])
        return self._num_opens + len(mapped - self._opened)


def measure_files(counter: OpenCounter, directory: str, keys: Sequence[str], read: Callable[[str], bytes]) -> Reading:
    """Read the plain files of the samples, shuffled.

    Args:
        counter: counts opens.
        directory: root of the tree.
        keys: paths without ``.png``.
        read: reads a file by its path.
    """
    paths = [os.path.join(directory, f"{key}.png") for key in keys]
    random.Random(SEED).shuffle(paths)  # noqa: S311 (an order, not a secret)

    def read_all() -> int:
        return sum(len(read(path)) for path in paths)

    return _measure(counter, directory, paths, read_all, len(paths))


def measure_shards(counter: OpenCounter, directory: str, open_split: Callable[[], Dataset]) -> Reading:
    """Read the same samples from shards, in the same shuffled order.

    Args:
        counter: counts opens.
        directory: the dataset's directory.
        open_split: opens the split; its cost belongs to the first pass.
    """
    with open_split() as dataset:
        shards = [path for shard in dataset.shards for path in (shard.path, shard.index_path)]
        num_samples = len(dataset)
    positions = list(range(num_samples))
    random.Random(SEED).shuffle(positions)  # noqa: S311 (an order, not a secret)
    opened: list[Dataset] = []

    def read_all() -> int:
        if not opened:
            opened.append(open_split())
        dataset = opened[0]
        return sum(len(dataset[position]["png"]) for position in positions)

    try:
        return _measure(counter, directory, shards, read_all, num_samples)
    finally:
        for dataset in opened:
            dataset.close()


def _measure(
    counter: OpenCounter, directory: str, paths: Sequence[str], read_all: Callable[[], int], num_samples: int
) -> Reading:
    is_cold = _drop_from_page_cache(paths)
    with counter.counting(directory) as count:
        first_seconds = _time(read_all)
        num_opens = count()
    fastest_seconds = min(_time(read_all) for _ in range(PASSES))
    return Reading(
        num_samples=num_samples,
        num_opens=num_opens,
        samples_per_second=num_samples / fastest_seconds,
        cold_samples_per_second=num_samples / first_seconds if is_cold else None,
    )


def _time(action: Callable[[], int]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _drop_from_page_cache(paths: Sequence[str]) -> bool:
    """Ask the kernel to forget the content of files, and tell whether it did."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)  # only clean pages can be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return not any(_is_in_page_cache(path) for path in paths[:: max(1, len(paths) // 50)])


def _is_in_page_cache(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except OSError:
        return True  # a filesystem that cannot say
    finally:
        os.close(descriptor)
