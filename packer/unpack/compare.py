"""``pack verify --against``: is every member what its source file is, byte for byte, and is anything missing or extra?

The source is looked through and grouped again, with the options that the manifest records, so that the comparison
stands on the files alone, not on what the packer once wrote about them. Sizes and dates prove nothing: all is read.
Neighbouring samples of a shard are read in one piece, and their source files by threads, which hides latency.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from packer.samples_of import ListedSample, choose_shards, walk_shard
from packer.stores.open import open_store
from packer.unpack.source_samples import SourceSamples
from shardferry.console.units import format_count
from shards.errors import LISTED_OFFENDERS, printable
from shards.index import IndexedMember
from shards.keys import member_name
from shards.manifest import Manifest
from shards.ranges import RangeReader, Ranges
from shards.strict_json import JsonValue

READ_THREADS = 16
"""Enough to compare some thousand files a second where opening one takes 2 ms."""

BATCH_BYTES = 8 * 1024 * 1024
"""Of a shard, read at once. A sample that is bigger is read piece by piece, so memory is this, and a piece of each
thread."""


@dataclass(slots=True)
class Offenders:
    """Names of a kind: the first are kept, all are counted."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count one."""
        self.count += 1
        if len(self.names) < LISTED_OFFENDERS:
            self.names.append(printable(name))

    def lines(self, what: str) -> Iterator[str]:
        """One line per kept name, and one for the rest."""
        for name in self.names:
            yield f"{what}: {name}"
        if self.count > len(self.names):
            yield f"{what}: … and {self.count - len(self.names)} more"


@dataclass(slots=True)
class Comparison:
    """How a dataset and a source differ, member by member."""

    source: str
    num_compared: int = 0
    missing: Offenders = field(default_factory=Offenders)
    """In the source, not in the dataset."""
    extra: Offenders = field(default_factory=Offenders)
    """In the dataset, not in the source."""
    different: Offenders = field(default_factory=Offenders)
    num_left_out: int = 0
    """Files that the dataset lacks because the build left them out, as the manifest records."""

    def fault_lines(self) -> list[str]:
        """All differences as sentences."""
        return [
            *self.missing.lines("missing in the dataset"),
            *self.extra.lines("not in the source"),
            *self.different.lines("different from the source"),
        ]

    def as_json(self) -> dict[str, JsonValue]:
        """For ``--json``."""
        kinds = {"missing": self.missing, "extra": self.extra, "different": self.different}
        return {
            "source": printable(self.source),
            "num_compared": self.num_compared,
            "num_left_out": self.num_left_out,
            **{f"num_{kind}": found.count for kind, found in kinds.items()},
            **{kind: list(found.names) for kind, found in kinds.items()},
        }

    def as_text(self) -> str:
        """For people, when nothing differs."""
        left_out = (
            f"; {format_count(self.num_left_out)} file(s) were left out, as the manifest says"
            if self.num_left_out
            else ""
        )
        return (
            f"compared {format_count(self.num_compared)} member(s) with {printable(self.source)}: all are the same"
            f"{left_out}"
        )


@dataclass(slots=True)
class _Differences:
    """Of one sample."""

    num_compared: int = 0
    missing: list[int] = field(default_factory=list)
    """Files of the source."""
    missing_added: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)


_Pair = tuple[ListedSample, int | None]
"""(sample of the dataset, number of that of the source)."""


class _Held:
    """A range of a shard in memory."""

    def __init__(self, data: bytes, start: int) -> None:
        self.size_bytes = len(data)
        self._data = memoryview(data)
        self._start = start

    def read_at(self, num_bytes: int, offset: int) -> bytes:
        """Read a range."""
        return bytes(self._data[offset - self._start : offset - self._start + num_bytes])


def compare_with_source(
    location: str, manifest: Manifest, source: SourceSamples, found: Comparison, report_bytes: Callable[[int], None]
) -> None:
    """Compare every member of a dataset with its source file.

    Args:
        location: of the dataset.
        manifest: of the dataset.
        source: what was packed.
        found: takes the differences.
        report_bytes: called with the number of bytes compared since the last call; may raise to stop.

    Raises:
        SourceError: the source cannot be read.
    """
    store = open_store(location)
    is_seen = bytearray(len(source))
    missing: list[int] = []
    with ThreadPoolExecutor(READ_THREADS, thread_name_prefix="compare") as pool:
        for split, shard in choose_shards(manifest, None):
            samples = walk_shard(store, split.name, shard.name, shard.index_name)
            with store.open_reader(shard.name) as reader:
                for batch in _batches(samples):
                    pairs = [(sample, _take(source, sample.key, is_seen)) for sample in batch]
                    for difference in _compare_batch(source, pairs, reader, pool):
                        found.num_compared += difference.num_compared
                        missing += difference.missing
                        for names, offenders in (
                            (difference.missing_added, found.missing),
                            (difference.extra, found.extra),
                            (difference.different, found.different),
                        ):
                            for name in names:
                                offenders.add(name)
                    report_bytes(sum(member.size for sample in batch for member in sample.members))
    unseen = [number for number, seen in enumerate(is_seen) if not seen]
    missing += [file for number in unseen for _, file in source.members(number)]
    paths = [source.path_of(file) for file in missing]
    if paths and source.may_lack(len(unseen), paths):
        found.num_left_out = len(paths)
    else:
        for path in paths:
            found.missing.add(path)


def _take(source: SourceSamples, key: str, is_seen: bytearray) -> int | None:
    """Number of the sample of a key, once."""
    number = source.find(key)
    if number is None or is_seen[number]:
        return None
    is_seen[number] = 1
    return number


def _span(samples: Sequence[ListedSample]) -> tuple[int, int]:
    """Where the data of samples begin and end in their shard."""
    members = [member for sample in samples for member in sample.members]
    if not members:
        return 0, 0
    return min(member.offset for member in members), max(member.offset + member.size for member in members)


def _batches(samples: Iterator[ListedSample]) -> Iterator[list[ListedSample]]:
    """Cut samples into neighbours whose data lie within :data:`BATCH_BYTES`, or single samples."""
    batch: list[ListedSample] = []
    start = end = 0
    for sample in samples:
        first, last = _span([sample])
        if batch and max(end, last) - min(start, first) > BATCH_BYTES:
            yield batch
            batch = []
        start, end = (min(start, first), max(end, last)) if batch else (first, last)
        batch.append(sample)
    if batch:
        yield batch


def _compare_batch(
    source: SourceSamples, pairs: list[_Pair], reader: RangeReader, pool: ThreadPoolExecutor
) -> Iterator[_Differences]:
    start, end = _span([sample for sample, _ in pairs])
    if end - start > BATCH_BYTES:
        yield from _compare_some(source, reader, pairs)
        return
    held = _Held(reader.read_at(end - start, start), start)
    size = -(-len(pairs) // READ_THREADS)
    parts = [pairs[place : place + size] for place in range(0, len(pairs), size)]
    for differences in pool.map(partial(_compare_some, source, held), parts):
        yield from differences


def _compare_some(source: SourceSamples, reader: Ranges, pairs: Sequence[_Pair]) -> list[_Differences]:
    return [_compare(source, reader, sample, number) for sample, number in pairs]


def _compare(source: SourceSamples, reader: Ranges, sample: ListedSample, number: int | None) -> _Differences:
    found = _Differences()
    if number is None:
        found.extra += [member_name(sample.key, member.extension) for member in sample.members]
        return found
    files = dict(source.members(number))
    added = source.added_members(number)
    for member in sample.members:
        name = member_name(sample.key, member.extension)
        if member.extension in added:
            is_same = reader.read_at(member.size, member.offset) == added.pop(member.extension)
        elif member.extension in files:
            is_same = _is_same(source, files.pop(member.extension), reader, member)
        else:
            found.extra.append(name)
            continue
        found.num_compared += 1
        if not is_same:
            found.different.append(name)
    found.missing += files.values()
    found.missing_added += [member_name(sample.key, extension) for extension in added]
    return found


def _is_same(source: SourceSamples, file: int, reader: Ranges, member: IndexedMember) -> bool:
    if source.size_of(file) != member.size:
        return False
    done = 0
    for theirs in source.pieces(file):
        if reader.read_at(len(theirs), member.offset + done) != theirs:
            return False
        done += len(theirs)
    return True
