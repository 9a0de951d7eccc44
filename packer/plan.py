"""What will be written, decided before a byte is: the plan of a dataset and the plan of one shard; pure values.

A :class:`PackPlan` is compact, for millions of files; a :class:`ShardPlan` is unfolded from it when an engine asks for
work, holds all that is needed to write its shard, and pickles quickly: columns of plain values.
"""

import hashlib
from array import array
from dataclasses import dataclass

import numpy as np

from packer.columns import BytesColumn, Numbers, TextColumn
from packer.group import Samples
from packer.labels import CLASS_EXTENSION, Labels
from packer.sources.files import INLINE, SourceFiles
from packer.transform import TransformSpec

PLAN_VERSION = 1
"""Raised when the same files and options would give other shards, so that old plans are not resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How samples become shards."""

    format_name: str
    suffix: str
    end_marker_bytes: int
    shard_size_bytes: int
    """No shard is bigger."""
    shuffle_seed: int | None
    """None keeps the order of the keys."""
    transform: TransformSpec | None = None
    """What source samples become on the way; shards are cut by the source samples then."""


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """Where a shard's samples lie in the plan's order, and what the shard will be."""

    split: str
    name: str
    start: int
    end: int
    size_bytes: int

    @property
    def num_samples(self) -> int:
        """Samples in the shard."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """One shard, self-contained. The columns of members are in shard order, those of sample 0 first."""

    name: str
    format_name: str
    size_bytes: int
    keys: tuple[str, ...]
    num_members: "array[int]"
    """Of each sample."""
    extensions: tuple[str, ...]
    """Of each member."""
    sources: tuple[bytes, ...]
    """Of each member: the locator for the source's reader, or its bytes where the stamp is :data:`INLINE`."""
    sizes: "array[int]"
    stamps: "array[int]"
    transform: TransformSpec | None = None
    """What the samples become; the size of the shard is then unknown, and the planned one a guess."""

    @property
    def source_bytes(self) -> int:
        """Bytes of all members."""
        return sum(self.sizes)

    def digest(self) -> str:
        """Digest of everything that shapes the shard, hex."""
        hasher = hashlib.blake2b(digest_size=16)
        head = [str(PLAN_VERSION), self.format_name, self.name, str(self.size_bytes)]
        if self.transform is not None:
            head += [self.transform.text, self.transform.code_digest]
        for part in (
            "\0".join(head).encode(),
            "\0".join(self.keys).encode("utf-8", "surrogateescape"),
            "\0".join(self.extensions).encode("utf-8", "surrogateescape"),
            b"\0".join(self.sources),
            _little_endian(self.num_members),
            _little_endian(self.sizes),
            _little_endian(self.stamps),
        ):
            hasher.update(len(part).to_bytes(8, "little"))
            hasher.update(part)
        return hasher.hexdigest()


@dataclass(frozen=True, slots=True)
class PlanContent:
    """What is packed: source files, the samples they form, and each sample's split and class."""

    files: SourceFiles
    samples: Samples
    splits: Labels
    classes: Labels | None = None

    def members(self, number: int) -> list[tuple[str, int]]:
        """(extension, size in bytes) of each member of a sample, ascending by extension."""
        samples, sizes = self.samples, self.files.sizes
        names, start, end = samples.extensions, samples.first_member[number], samples.first_member[number + 1]
        columns = zip(samples.extension_codes[start:end], samples.file_numbers[start:end], strict=True)
        found = [(names[code], sizes[file]) for code, file in columns]
        if self.classes is not None:
            found.append((CLASS_EXTENSION, len(_class_text(self.classes, number))))
            found.sort()
        return found


@dataclass(frozen=True, slots=True)
class PackPlan:
    """All shards of a dataset, compact; :meth:`shard_plan` unfolds one."""

    content: PlanContent
    options: PlanOptions
    order: "array[int]"
    """Sample numbers in shard order, split after split."""
    shards: tuple[PlannedShard, ...]

    @property
    def num_samples(self) -> int:
        """Samples in all shards."""
        return len(self.order)

    @property
    def num_files(self) -> int:
        """Source files that are packed; those without a key are not."""
        return len(self.content.samples.file_numbers)

    @property
    def source_bytes(self) -> int:
        """Bytes in these files."""
        return int(np.asarray(self.content.files.sizes)[np.asarray(self.content.samples.file_numbers)].sum())

    @property
    def size_bytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.size_bytes for shard in self.shards)

    def sample_numbers(self, shard: PlannedShard) -> Numbers:
        """[num_samples], numbers of the samples of a shard, in order."""
        return np.asarray(self.order)[shard.start : shard.end]

    def member_places(self, samples: Numbers) -> tuple[Numbers, Numbers]:
        """Where the members of some samples are in the columns of members.

        Args:
            samples: their numbers.

        Returns:
            [num_samples] how many members each has, and [num_members] the places, sample after sample.
        """
        first_member = np.asarray(self.content.samples.first_member).astype(np.int64)
        first = first_member[samples]
        counts = first_member[1:][samples] - first
        return counts, np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())

    def shard_plan(self, number: int) -> ShardPlan:
        """Unfold the plan of one shard."""
        shard = self.shards[number]
        numbers = self.sample_numbers(shard)
        samples, files, classes = self.content.samples, self.content.files, self.content.classes
        counts, places = self.member_places(numbers)
        file_numbers = np.asarray(samples.file_numbers)[places]
        codes = np.asarray(samples.extension_codes)[places]
        sizes, stamps = np.asarray(files.sizes)[file_numbers], np.asarray(files.stamps)[file_numbers]
        locators = files.paths if files.locators is None else files.locators
        if isinstance(locators, BytesColumn):
            sources = locators.take(file_numbers)
        else:
            sources = [locators[file] for file in file_numbers.tolist()]
        names = samples.extensions
        if classes is not None:
            texts = [_class_text(classes, sample) for sample in numbers.tolist()]
            order = _with_classes(counts, codes, sum(name < CLASS_EXTENSION for name in names))
            sources += texts
            sources = [sources[place] for place in order.tolist()]
            codes = np.concatenate([codes, np.full(len(texts), len(names), codes.dtype)])[order]
            sizes = np.concatenate([sizes, np.array([len(text) for text in texts], sizes.dtype)])[order]
            stamps = np.concatenate([stamps, np.full(len(texts), INLINE, stamps.dtype)])[order]
            names = (*names, CLASS_EXTENSION)
            counts = counts + 1
        keys = samples.keys
        return ShardPlan(
            name=shard.name,
            format_name=self.options.format_name,
            size_bytes=shard.size_bytes,
            keys=tuple(keys.take(numbers) if isinstance(keys, TextColumn) else map(keys.__getitem__, numbers.tolist())),
            num_members=array("L", counts.tolist()),
            extensions=tuple(map(names.__getitem__, codes.tolist())),
            sources=tuple(sources),
            sizes=array("Q", sizes.tobytes()),
            stamps=array("q", stamps.tobytes()),
            transform=self.options.transform,
        )


def _with_classes(counts: Numbers, codes: Numbers, class_rank: int) -> Numbers:
    """Order members and then one class per sample by (sample, extension).

    Args:
        counts: [num_samples], of members without the class.
        codes: [num_members], of the extensions; these ascend with their names.
        class_rank: how many extensions come before that of the class.
    """
    owners = np.concatenate([np.repeat(np.arange(len(counts)), counts), np.arange(len(counts))])
    ranks = np.concatenate([2 * codes.astype(np.int64) + 1, np.full(len(counts), 2 * class_rank)])
    return np.lexsort((ranks, owners))


def _class_text(classes: Labels, number: int) -> bytes:
    return b"%d" % classes.numbers[number]


def _little_endian(column: "array[int]") -> bytes:
    # widths of array types differ between systems, digests must not
    return array("q" if column.typecode == "q" else "Q", column).tobytes()
