"""The values a tar decoder gives: members, where their data lie, and the limits it keeps; pure."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple


class MemberKind(enum.Enum):
    """What an entry of an archive is. Only files and hard links to them have data."""

    FILE = "file"
    HARD_LINK = "hard link"
    SYMLINK = "symbolic link"
    DIRECTORY = "directory"
    CHARACTER_DEVICE = "character device"
    BLOCK_DEVICE = "block device"
    FIFO = "fifo"


DATALESS_KINDS: Mapping[bytes, MemberKind] = MappingProxyType(
    {
        b"1": MemberKind.HARD_LINK,
        b"2": MemberKind.SYMLINK,
        b"3": MemberKind.CHARACTER_DEVICE,
        b"4": MemberKind.BLOCK_DEVICE,
        b"5": MemberKind.DIRECTORY,
        b"6": MemberKind.FIFO,
    }
)
"""By typeflag, the kinds whose size field says nothing: no data follow, whatever it claims."""


class TarMember(NamedTuple):
    """One entry of an archive. Extended headers, long-name entries, labels and ACLs are no members.

    A named tuple, not a dataclass: it is made once for every member of a dataset and costs a third of the time.
    """

    name: str
    """As stored; bytes that are not UTF-8 as lone surrogates (``surrogateescape``). Never a path to open."""
    kind: MemberKind
    header_offset: int
    """Of the first header block of the member, its extended headers included; bytes from the start of the
    (decompressed) shard, like every offset here."""
    offset: int
    """Of the stored data."""
    size: int
    """Logical size in bytes, holes included; 0 for everything but files."""
    stored_size: int
    """Bytes the data occupy from ``offset`` on, padding not counted. Equal to ``size`` unless there are holes."""
    link_name: str = ""
    """Target of a hard or symbolic link, as stored; else empty."""
    extents: tuple[tuple[int, int, int], ...] = ()
    """(logical offset, size, stored offset) of the pieces that are stored, ascending; ``()`` when the data are
    one piece without holes. The last one may be empty: a file that is nothing but a hole has only that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TarLimits:
    """What a decoder accepts before it calls an archive hostile. Sizes in headers are claims."""

    max_name_bytes: int = 64 * 1024
    """Of a member's name or link target. 16 times the longest path Linux opens."""
    max_metadata_bytes: int = 1024 * 1024
    """Of one extended header; the limit of several other readers too. It is held in memory."""
    max_sparse_extents: int = 128 * 1024
    """Stored pieces of one sparse member; its map is held in memory, about 100 bytes a piece."""
    max_hole_bytes: int = 1024 * 1024 * 1024
    """Zeros that the holes of one member may add when its data are read. A hole costs the archive nothing, so
    a few KiB can claim terabytes."""
    max_member_bytes: int = 16 * 1024 * 1024 * 1024
    """Logical size of one member that is given as one ``bytes`` object."""

    def __post_init__(self) -> None:
        for field in self.__slots__:
            if getattr(self, field) <= 0:
                raise ValueError(f"{field} must be positive")


DEFAULT_LIMITS = TarLimits()
