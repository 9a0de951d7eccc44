"""Measures what a plan cannot know: how quickly source files can be read, and how much room the destination has."""

import os
import time
from collections.abc import Callable

from packer.fill import DEFAULT_READ_THREADS, SLOW_FILE_SECONDS
from packer.measured import ReadingTime, Room
from packer.plan import PackPlan
from packer.sources.files import INLINE
from packer.sources.origin import MemberReader
from packer.splits import keyed_hash
from shards.errors import PackError
from shards.files import free_bytes

PROBED_FILES = 200
PROBE_SECONDS = 1.0
"""When to stop reading, whatever has been read by then."""
PROBE_BYTES = 256 * 1024**2
"""Files that would go beyond this are not read."""


def measure_reading(
    plan: PackPlan, reader: MemberReader, num_jobs: int, check: Callable[[], None] = lambda: None
) -> ReadingTime | None:
    """Read some files of a plan, chosen evenly by a hash so that no directory is preferred.

    Files that are in the cache of this machine are read more quickly than the rest will be. That cannot be seen
    from here, so the numbers are a guess and are to be shown as one.

    Args:
        plan: of the dataset.
        reader: of its source.
        num_jobs: processes that would read.
        check: called for each file; raises to stop.

    Returns:
        None when no file could be read, or when the source is read in big parts, of which single files tell nothing.
    """
    files, packed = plan.content.files, plan.content.samples.file_numbers
    if files.batches is not None or not len(packed):
        return None
    locators = files.paths if files.locators is None else files.locators
    num_read = num_bytes = 0
    started = seconds = 0.0
    for attempt in range(PROBED_FILES):
        check()
        number = packed[keyed_hash(str(attempt), 0, purpose=b"probe") % len(packed)]
        file = files[number]
        if file.stamp == INLINE or num_bytes + file.size_bytes > PROBE_BYTES:
            continue
        started = time.perf_counter()
        try:
            for _ in reader.pieces(locators[number], file.size_bytes, file.stamp):
                pass
        except PackError:
            continue  # a build will say which file and why
        seconds += time.perf_counter() - started
        num_read += 1
        num_bytes += file.size_bytes
        if seconds > PROBE_SECONDS:
            break
    if not num_read:
        return None
    seconds_a_file = seconds / num_read
    num_threads = DEFAULT_READ_THREADS if seconds_a_file > SLOW_FILE_SECONDS else 1
    return ReadingTime(
        num_files=num_read,
        seconds_a_file=seconds_a_file,
        one_by_one_seconds=seconds_a_file * len(packed),
        num_readers=num_jobs * num_threads,
    )


def find_room(path: str) -> Room | None:
    """Free space where a destination lies or would be made; None when its filesystem does not say."""
    existing = os.path.abspath(path)
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    if os.statvfs(existing).f_blocks == 0:
        return None
    return Room(path, free_bytes(existing))
