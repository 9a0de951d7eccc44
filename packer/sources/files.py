"""What a source gives to the planner: source files in columns, and what was left out and why; pure.

Columns and not one object per file, because a plan of 10 million files must fit in memory: the bytes of its path
and 24 more a file here.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from packer.columns import BytesColumn

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


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One small input file."""

    path: bytes
    """Relative to the root of the source, components joined by ``/``, any bytes but NUL."""
    size_bytes: int
    mtime_ns: int


class SourceFiles:
    """Source files in ascending byte order of their paths."""

    __slots__ = ("mtimes_ns", "paths", "sizes")

    def __init__(self) -> None:
        self.paths = BytesColumn()
        self.sizes = array("Q")
        self.mtimes_ns = array("q")

    def append(self, path: bytes, size_bytes: int, mtime_ns: int) -> None:
        """Add a file; the caller keeps the order."""
        self.paths.append(path)
        self.sizes.append(size_bytes)
        self.mtimes_ns.append(mtime_ns)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> SourceFile:
        return SourceFile(self.paths[number], self.sizes[number], self.mtimes_ns[number])

    def __iter__(self) -> Iterator[SourceFile]:
        return map(SourceFile, self.paths, self.sizes, self.mtimes_ns)

    @property
    def size_bytes(self) -> int:
        """Bytes in all files together."""
        return sum(self.sizes)


@dataclass(slots=True)
class Skips:
    """What was left out: counts by reason, with the first names of each. A directory counts once."""

    counts: dict[SkipReason, int] = field(default_factory=dict)
    names: dict[SkipReason, list[str]] = field(default_factory=dict)

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


def display_path(path: bytes) -> str:
    """Turn a path into text; bytes that are not UTF-8 become lone surrogates, which ``printable`` escapes."""
    return path.decode("utf-8", "surrogateescape")
