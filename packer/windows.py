"""The order of samples from a source that is read in big parts, such as row groups of Parquet; pure.

A shuffle over everything would read each part once for every shard. So parts are shuffled, and samples are shuffled
within windows of parts that a packer process holds in memory: each part is then read about once. Parts of a run, such
as a compressed archive, keep their order; only the runs are shuffled. See ``docs/adr/0008``.
"""

from collections.abc import Iterator, Sequence

from packer.group import Samples
from packer.sources.files import WINDOW_BYTES, SourceFiles
from packer.splits import keyed_hash
from shards.errors import SourceError, list_offenders, printable


def order_in_windows(numbers: Sequence[int], samples: Samples, files: SourceFiles, seed: int | None) -> list[int]:
    """Order the samples of a split.

    Args:
        numbers: of the samples, ascending by key.
        samples: all.
        files: with batches.
        seed: of the shuffle; None keeps the order of the source, and that of the keys within a part.

    Raises:
        SourceError: a sample's members lie too far apart in a source that is only read in its order.
    """
    by_part = _by_part(numbers, samples, files)
    order: list[int] = []
    if seed is None:
        for part in sorted(by_part):
            order.extend(by_part[part])
        return order
    for window in _windows(sorted(by_part, key=lambda part: _place(part, files, seed)), files):
        mixed = [number for part in window for number in by_part[part]]
        hashes = {number: keyed_hash(samples.keys[number], seed, purpose=b"shuffle") for number in mixed}
        order.extend(sorted(sorted(mixed), key=hashes.__getitem__))
    return order


def _by_part(numbers: Sequence[int], samples: Samples, files: SourceFiles) -> dict[int, list[int]]:
    """Samples of each part; a sample belongs to the part of its first member in the source."""
    batches, ends = files.batches, samples.first_member
    assert batches is not None  # noqa: S101 (the caller has looked)
    found: dict[int, list[int]] = {}
    torn = []
    for number in numbers:
        parts = [batches[file] for file in samples.file_numbers[ends[number] : ends[number + 1]]]
        first, last = min(parts), max(parts)
        if last > first and not _lie_together(first, last, files):
            torn.append(printable(samples.keys[number]))
        found.setdefault(first, []).append(number)
    if torn:
        raise SourceError(
            f"{len(torn)} sample(s) have members that lie far apart in a compressed archive, which is read in its "
            f"order:\n{list_offenders(torn)}\ndecompress it, or make it again with its members sorted by name"
        )
    return found


def _lie_together(first: int, last: int, files: SourceFiles) -> bool:
    if files.parts[first].run != files.parts[last].run:
        return False
    return sum(part.size_bytes for part in files.parts[first:last]) <= WINDOW_BYTES


def _place(part: int, files: SourceFiles, seed: int) -> tuple[int, int]:
    run = files.parts[part].run
    return keyed_hash(str(run), seed, purpose=b"window"), part


def _windows(parts: Sequence[int], files: SourceFiles) -> Iterator[list[int]]:
    window: list[int] = []
    size_bytes = 0
    for part in parts:
        # what lies between is passed over in a run that is only read forward, and counts like what is read
        passed_bytes = _bytes_between(window[-1], part, files) if window else 0
        if size_bytes + passed_bytes > WINDOW_BYTES:
            yield window
            window, size_bytes, passed_bytes = [], 0, 0
        size_bytes += passed_bytes
        window.append(part)
        size_bytes += files.parts[part].size_bytes
        if size_bytes >= WINDOW_BYTES:
            yield window
            window, size_bytes = [], 0
    if window:
        yield window


def _bytes_between(left: int, right: int, files: SourceFiles) -> int:
    if files.parts[left].run != files.parts[right].run:
        return 0
    return sum(part.size_bytes for part in files.parts[left + 1 : right])
