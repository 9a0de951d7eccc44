"""Makes the benchmark's input: many small files, the same for the same numbers.

Sizes are log-normal. Contents are random bytes, so that nobody gains by compressing. One file is one sample.
"""

import math
import os
import random
import shutil
from dataclasses import dataclass

NUM_DIRECTORIES = 100
SIGMA = 0.6
"""Of the logarithm of the sizes: one file in twenty has more than 2.2 times the mean, one in twenty under a third."""

MIN_BYTES = 64
POOL_BYTES = 16 * 1024 * 1024
"""Contents are cut from one random pool at random offsets: making every byte anew would take longer than packing."""


@dataclass(frozen=True, slots=True)
class Source:
    """A tree of files."""

    path: str
    num_files: int
    num_bytes: int
    """Of all contents."""


def make_source(work: str, num_files: int, mean_bytes: int, seed: int = 0) -> Source:
    """Make a tree below the work directory, or find the one that an earlier run left there, and warm the cache.

    Args:
        work: directory to keep it in.
        num_files: how many.
        mean_bytes: mean size of a file.
        seed: of sizes and contents.
    """
    path = os.path.join(work, f"source-{num_files}-{mean_bytes}-{seed}")
    if not os.path.isdir(path):
        unfinished = path + ".unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        _write_tree(unfinished, num_files, mean_bytes, seed)
        os.rename(unfinished, path)
    return Source(path, num_files, _read_all(path))


def _write_tree(path: str, num_files: int, mean_bytes: int, seed: int) -> None:
    rng = random.Random(seed)
    pool = rng.randbytes(POOL_BYTES)
    mu = math.log(mean_bytes) - SIGMA**2 / 2
    for number in range(NUM_DIRECTORIES):
        os.makedirs(f"{path}/{number:03d}")
    for number in range(num_files):
        size = min(max(MIN_BYTES, round(rng.lognormvariate(mu, SIGMA))), POOL_BYTES // 2)
        start = rng.randrange(POOL_BYTES - size)
        with open(f"{path}/{number % NUM_DIRECTORIES:03d}/{number:08d}.jpg", "wb") as file:
            file.write(pool[start : start + size])


def _read_all(path: str) -> int:
    num_bytes = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(directory, name), "rb", buffering=0) as file:
                num_bytes += len(file.read())
    return num_bytes
