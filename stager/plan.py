"""From a manifest and what the cache holds to what has to be done; pure.

Rules:
    * A file is kept only when its record says that this very file (size, mtime, inode) was committed with the wanted
      digest. The mere presence of a name proves nothing: such a file is hashed before anything is decided about it.
    * What is kept is never fetched, and every missing byte is fetched exactly once.
    * The same inputs give the same plan. Shards come in the order in which they are wanted.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shards.digests import block_ranges
from shards.manifest import Manifest, ShardEntry
from stager.space import footprint_bytes
from stager.verify import Verify


class Action(StrEnum):
    """What happens to one file."""

    KEEP = "keep"
    VERIFY = "verify"
    """Hash what is there, then plan again."""
    RESUME = "resume"
    """Fetch what the partial does not have yet."""
    FETCH = "fetch"


@dataclass(frozen=True, slots=True)
class WantedFile:
    """A file that the manifest promises."""

    name: str
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class ObservedFile:
    """What ``stat`` says about a file under its final name."""

    size_bytes: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What was written down when a file was committed."""

    digest: str
    observed: ObservedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What the cache holds of one dataset."""

    files: Mapping[str, ObservedFile] = field(default_factory=dict)
    """Under their final names, by name."""
    records: Mapping[str, FileRecord] = field(default_factory=dict)
    """Of committed files, by name; may lack files that are there and name files that are gone."""
    partial_bytes: Mapping[str, int] = field(default_factory=dict)
    """Shard name to the bytes on disk of its partial."""
    verdicts: Mapping[str, bool] = field(default_factory=dict)
    """File name to whether it was hashed just now and found right."""
    has_manifest: bool = False
    """Whether the dataset passes for complete."""

    def with_verdicts(self, verdicts: Mapping[str, bool]) -> "Inventory":
        """Give the inventory after some of its files were hashed."""
        return replace(self, verdicts={**self.verdicts, **verdicts})


@dataclass(frozen=True, slots=True)
class FileStep:
    """One file and what happens to it."""

    file: WantedFile
    action: Action
    bad: ObservedFile | None = None
    """What lies under the final name, is wrong and has to go first."""

    @property
    def is_needed(self) -> bool:
        """Whether bytes have to come from the source."""
        return self.action in {Action.RESUME, Action.FETCH}


@dataclass(frozen=True, slots=True)
class ShardStep:
    """One shard with its index and what happens to both."""

    shard: ShardEntry
    data: FileStep
    index: FileStep

    @property
    def is_needed(self) -> bool:
        """Whether bytes of the shard or of its index have to come from the source."""
        return self.data.is_needed or self.index.is_needed


@dataclass(frozen=True, slots=True)
class StagePlan:
    """What will be done, for every shard that is wanted."""

    steps: tuple[ShardStep, ...]
    partial_bytes: int
    """Bytes on disk in the partials that will be resumed; how many of them are right is known when they are hashed."""
    was_complete: bool
    """Whether the dataset passed for complete when this plan was made."""

    def files(self) -> Iterator[FileStep]:
        """Yield each file: index before shard, shards in the order in which they are wanted."""
        for step in self.steps:
            yield step.index
            yield step.data

    @property
    def files_to_verify(self) -> tuple[WantedFile, ...]:
        """What has to be hashed before a final plan can be made."""
        return tuple(step.file for step in self.files() if step.action is Action.VERIFY)

    @property
    def bad_files(self) -> tuple[WantedFile, ...]:
        """What lies under a final name and is wrong."""
        return tuple(step.file for step in self.files() if step.bad is not None)

    @property
    def needed_steps(self) -> tuple[ShardStep, ...]:
        """Shards for which bytes have to come."""
        return tuple(step for step in self.steps if step.is_needed)

    @property
    def kept_bytes(self) -> int:
        """Bytes that are staged already."""
        return sum(step.file.size_bytes for step in self.files() if step.action is Action.KEEP)

    @property
    def needed_bytes(self) -> int:
        """Bytes of the files that are not staged, whatever their partials already have."""
        return sum(step.file.size_bytes for step in self.files() if step.is_needed)

    @property
    def needed_space_bytes(self) -> int:
        """Free space that the rest takes on disk."""
        files = [step.file for step in self.files() if step.is_needed]
        return max(sum(footprint_bytes(file.size_bytes) for file in files) - self.partial_bytes, 0)


def plan_staging(
    manifest: Manifest, inventory: Inventory, verify: Verify, wanted: Sequence[ShardEntry] | None = None
) -> StagePlan:
    """Decide what happens to each file of a dataset.

    Args:
        manifest: of the dataset.
        inventory: what the cache holds.
        verify: how far that is trusted.
        wanted: some of the dataset's shards, in the order in which they are to come; all in the manifest's when None.

    With ``files_to_verify`` in the result: hash those, hand the verdicts to the inventory, and plan again.
    """
    steps = tuple(
        ShardStep(
            shard,
            _plan_file(WantedFile(shard.name, shard.size_bytes, shard.digest), inventory, verify),
            _plan_file(WantedFile(shard.index_name, shard.index_size_bytes, shard.index_digest), inventory, verify),
        )
        for shard in ([shard for _, shard in manifest.shards()] if wanted is None else wanted)
    )
    resumed = (step.data.file for step in steps if step.data.action is Action.RESUME)
    # a partial can be allocated beyond the shard's end by a unit; it never saves more than the shard takes
    partial_bytes = sum(min(inventory.partial_bytes[file.name], file.size_bytes) for file in resumed)
    return StagePlan(steps, partial_bytes, inventory.has_manifest)


def _plan_file(wanted: WantedFile, inventory: Inventory, verify: Verify) -> FileStep:
    found = inventory.files.get(wanted.name)
    if found is not None and found.size_bytes == wanted.size_bytes:
        verdict = inventory.verdicts.get(wanted.name)
        if verdict is None and verify is Verify.SIZE:
            record = inventory.records.get(wanted.name)
            verdict = True if record == FileRecord(wanted.digest, found) else None
        if verdict is not False:
            return FileStep(wanted, Action.VERIFY if verdict is None else Action.KEEP)
    has_partial = inventory.partial_bytes.get(wanted.name, 0) > 0
    return FileStep(wanted, Action.RESUME if has_partial else Action.FETCH, found)


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a shard."""

    number: int
    """0-based."""
    offset: int
    """Of its first byte, from the start of the shard."""
    size_bytes: int


def blocks_of(size_bytes: int, block_bytes: int) -> tuple[Block, ...]:
    """Cut a shard into its blocks."""
    ranges = block_ranges(size_bytes, block_bytes)
    return tuple(Block(number, start, end - start) for number, (start, end) in enumerate(ranges))


def blocks_in_extents(blocks: Collection[Block], extents: Collection[tuple[int, int]]) -> tuple[Block, ...]:
    """Give the blocks that a partial can hold completely, from the ranges of it that are not holes.

    Args:
        blocks: of the shard.
        extents: half-open byte ranges that are allocated, ascending; may run past the end of the shard.
    """
    merged: list[list[int]] = []
    for start, end in extents:
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return tuple(
        block
        for block in blocks
        if any(start <= block.offset and block.offset + block.size_bytes <= end for start, end in merged)
    )
