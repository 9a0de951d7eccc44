"""What a source gives to the planner: source files in columns, and what was left out and why; pure.

Columns and not one object per file, because a plan of 10 million files must fit in memory: the bytes of its path
and 24 more a file here.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from packer.columns import BytesColumn
from packer.sources.origin import Origin

INLINE = -(2**63)
"""In the place of a stamp: the locator is the member's bytes themselves, which then lie in the plan."""

WINDOW_BYTES = 64 * 1024 * 1024
"""Samples of sources that are read in big parts are mixed within parts of about so many bytes, which a packer process
holds in memory; see :mod:`packer.windows`. Two windows are held: a shard may end in one and go on in the next."""

LISTED_SKIPS = 20
"""How many names are kept per reason; the rest is only counted."""


class SkipReason(StrEnum):
    """Why something in the source does not become a member."""

    HIDDEN = "hidden"
    APPLE_DOUBLE = "apple-double"
    NFS_LEFTOVER = "nfs-leftover"
    SYMLINK = "symlink"
    SYMLINK_LOOP = "symlink-loop"
    SPECIAL_FILE = "special-file"
    KEYLESS = "keyless"
    UNREADABLE = "unreadable"
    MISSING_MEMBER = "missing-member"
    """A sample, named by its key."""
    UNLISTED = "unlisted"
    """A sample, named by its key, that no list of a split names."""
    TRANSFORM = "transform"
    """A sample, named by its key, that the transform dropped."""
    EXCLUDED = "excluded"
    """Matches ``--exclude``, or no ``--include``."""
    FOLDER_MARKER = "folder-marker"
    """An object of no bytes that some programs make to show an empty folder."""
    NO_VALUE = "no-value"
    """A row of a table without a value where the sample's data should be."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One small input file, or what will be a member like one: an archive's member, an object, a cell of a table."""

    path: bytes
    """Relative to the root of the source, components joined by ``/``, any bytes but NUL."""
    size_bytes: int
    stamp: int


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A part of a source that is read as a whole."""

    size_bytes: int
    """In memory."""
    run: int
    """Parts of one run are read quickly only in their order: those of a compressed archive."""


class SourceFiles:
    """Source files in ascending byte order of their paths, in columns.

    Attributes:
        paths: what keys and extensions are made of.
        sizes: in bytes.
        stamps: what tells one version of a file from another: its modification time in ns, or a number made from an
            object's ETag; :data:`INLINE` for bytes that lie in the plan.
        locators: what the reader of the source needs to find the bytes; None when that is the path.
        dots: where in the decoded path the dot lies that ends the key, for sources that know it; None leaves it to
            the key rule. -1 does so for one file.
        batches: of sources that are read in big parts: number of the part in :attr:`parts`; None when every file can
            be read for itself.
        parts: what has to be read as a whole, such as a row group, in the order of the source.
    """

    __slots__ = ("batches", "dots", "locators", "parts", "paths", "sizes", "stamps")

    def __init__(self) -> None:
        self.paths = BytesColumn()
        self.sizes = array("Q")
        self.stamps = array("q")
        self.locators: list[bytes] | None = None
        self.dots: array[int] | None = None
        self.batches: array[int] | None = None
        self.parts: list[SourcePart] = []

    def append(self, path: bytes, size_bytes: int, stamp: int) -> None:
        """Add a file of a source that has neither locators nor dots nor batches."""
        self.paths.append(path)
        self.sizes.append(size_bytes)
        self.stamps.append(stamp)

    def sort(self) -> None:
        """Bring files of any order into that of their paths."""
        order = sorted(range(len(self.paths)), key=self.paths.__getitem__)
        self.paths = BytesColumn(map(self.paths.__getitem__, order))
        self.sizes = array("Q", map(self.sizes.__getitem__, order))
        self.stamps = array("q", map(self.stamps.__getitem__, order))
        if self.locators is not None:
            self.locators = [self.locators[number] for number in order]
        if self.dots is not None:
            self.dots = array("l", map(self.dots.__getitem__, order))
        if self.batches is not None:
            self.batches = array("L", map(self.batches.__getitem__, order))

    def same_paths(self) -> Iterator[tuple[int, int]]:
        """Numbers of neighbours that have the same path."""
        for number, (left, right) in enumerate(pairwise(self.paths)):
            if left == right:
                yield number, number + 1

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> SourceFile:
        return SourceFile(self.paths[number], self.sizes[number], self.stamps[number])

    def __iter__(self) -> Iterator[SourceFile]:
        return map(SourceFile, self.paths, self.sizes, self.stamps)

    @property
    def size_bytes(self) -> int:
        """Bytes in all files together."""
        return sum(self.sizes)


@dataclass(slots=True)
class Skips:
    """What was left out: counts by reason, with the first names of each. A directory counts once."""

    counts: dict[SkipReason, int] = field(default_factory=dict)
    names: dict[SkipReason, list[str]] = field(default_factory=dict)

    def take(self, others: "Skips") -> None:
        """Count what another step left out, too."""
        for reason, count in others.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            names = self.names.setdefault(reason, [])
            names.extend(others.names[reason][: LISTED_SKIPS - len(names)])

    def add(self, reason: SkipReason, path: bytes) -> None:
        """Count one thing that was left out."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        names = self.names.setdefault(reason, [])
        if len(names) < LISTED_SKIPS:
            names.append(display_path(path))

    @property
    def total(self) -> int:
        """How many things were left out."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The result of looking through a source."""

    files: SourceFiles
    skips: Skips
    num_directories: int
    origin: Origin


def display_path(path: bytes) -> str:
    """Turn a path into text; bytes that are not UTF-8 become lone surrogates, which ``printable`` escapes."""
    return path.decode("utf-8", "surrogateescape")
