"""Reads the members of a tar shard: where they lie, or their bytes with links resolved and holes filled."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NoReturn

from shards.errors import TarFormatError, printable
from shards.tar.member import DEFAULT_LIMITS, MemberKind, TarLimits, TarMember
from shards.tar.source import ByteSource, SeekableSource, open_source
from shards.tar.walk import TarWalk

PIECE_BYTES = 1024 * 1024
"""Most bytes read, or zeros made, at once."""

_ZEROS = bytes(PIECE_BYTES)
_LEADING = re.compile(r"\A(?:\./|/)+")


def read_members(
    stream: BinaryIO, name: str, *, limits: TarLimits = DEFAULT_LIMITS, require_end_marker: bool = True
) -> Iterator[TarMember]:
    """Walk over a shard without giving its data.

    Each member is given once its data and padding are known to be there. A plain file that can seek is not read
    between the headers.

    Args:
        stream: the shard, at its start; left open, at no particular position. It may be a pipe, give short reads,
            and be compressed with gzip, bzip2, xz or zstd, which is recognised from the content.
        name: the shard, for messages.
        limits: what is called hostile.
        require_end_marker: take a shard that ends at a member's edge without an end marker for cut.

    Raises:
        TarFormatError: damage, with its offset. Members before it have been given.
    """
    walk = TarWalk(open_source(stream, name), name, limits, require_end_marker=require_end_marker)
    while (member := walk.next_member()) is not None:
        walk.finish_member()
        yield member


def read_files(
    stream: BinaryIO, name: str, *, limits: TarLimits = DEFAULT_LIMITS, require_end_marker: bool = True
) -> Iterator[tuple[TarMember, bytes]]:
    """Read the files of a shard and the hard links to them, in shard order.

    A hard link gives the data of the earlier file it names. That takes a plain shard that can seek; in a pipe or
    a compressed stream the earlier data are gone and a hard link raises. Symbolic links, devices, fifos and
    directories have no data and are left out.

    Args: see :func:`read_members`.

    Yields:
        (member, its data with holes filled by zeros). For a hard link, the link itself with the file's data.

    Raises:
        TarFormatError: damage, a hard link that names no earlier file, or a member over the limits. The files
            before it have been given.
    """
    reader = FileReader(TarWalk(open_source(stream, name), name, limits, require_end_marker=require_end_marker))
    for member, file in reader.files():
        if file.size > limits.max_member_bytes:
            raise TarFormatError(
                name,
                member.header_offset,
                f"member {printable(member.name)} of {file.size} bytes is over the limit of "
                f"{limits.max_member_bytes} bytes",
            )
        yield member, b"".join(reader.pieces(member, file))


class FileReader:
    """Gives the files among the members of a walk, and their data in bounded pieces."""

    def __init__(self, walk: TarWalk, take_other: Callable[[TarMember], None] = lambda _: None) -> None:
        """Start at the position of a walk.

        Args:
            walk: over the shard.
            take_other: called with each member that has no data: symbolic links, devices, directories.
        """
        self._walk = walk
        self._take_other = take_other
        self._earlier: _EarlierFiles | None = None
        self.num_others = 0
        """Members so far that have no data: links, devices, directories."""

    def files(self) -> Iterator[tuple[TarMember, TarMember]]:
        """Walk over the files.

        Yields:
            (member, the file that holds its data: itself, or the earlier one that a hard link names). The data
            must be taken by :meth:`pieces` before the next step, or are passed over.

        Raises:
            TarFormatError: damage, or a hard link that names no earlier file.
        """
        while (member := self._walk.next_member()) is not None:
            if member.kind is MemberKind.FILE:
                yield member, member
            elif member.kind is MemberKind.HARD_LINK:
                yield member, self._resolve(member)
            else:
                self.num_others += 1
                self._take_other(member)

    def pieces(self, member: TarMember, file: TarMember) -> Iterable[bytes]:
        """Read the data of the current member in pieces of at most :data:`PIECE_BYTES`, holes as zeros.

        Args:
            member: as given by :meth:`files`.
            file: as given by :meth:`files`.

        Raises:
            TarFormatError: the shard ends before the data do, or the holes are over the limit.
        """
        source = self._walk.source
        if member is not file:
            # Only a source that can seek resolves hard links.
            assert isinstance(source, SeekableSource)  # noqa: S101
            source = source.at(file.offset)
        if file.extents:
            return self._filled(source, member, file)
        if file.size > PIECE_BYTES:
            return self._stored(source, file.size)
        data = source.read_exactly(file.size)
        if len(data) < file.size:
            self._walk.raise_cut()
        return (data,)

    def _stored(self, source: ByteSource, size: int) -> Iterator[bytes]:
        while size > 0:
            piece = source.read_exactly(min(size, PIECE_BYTES))
            if len(piece) < min(size, PIECE_BYTES):
                self._walk.raise_cut()
            size -= len(piece)
            yield piece

    def _filled(self, source: ByteSource, member: TarMember, file: TarMember) -> Iterator[bytes]:
        holes_bytes = file.size - file.stored_size
        if holes_bytes > self._walk.limits.max_hole_bytes:
            self._walk.fail(
                member.header_offset,
                f"member {printable(member.name)} of {file.size} bytes has {holes_bytes} bytes of holes, over the "
                f"limit of {self._walk.limits.max_hole_bytes} bytes",
            )
        filled = 0
        for logical_offset, size, _ in (*file.extents, (file.size, 0, 0)):
            yield from _zeros(logical_offset - filled)
            yield from self._stored(source, size)
            filled = logical_offset + size

    def _resolve(self, link: TarMember) -> TarMember:
        source = self._walk.source
        if not isinstance(source, SeekableSource):
            self._refuse(link, "cannot be resolved in a pipe or a compressed stream; decompress the shard into a file")
        if self._earlier is None:
            behind = TarWalk(source.at(0), self._walk.name, self._walk.limits, require_end_marker=False)
            self._earlier = _EarlierFiles(behind)
        file = self._earlier.find(link)
        if file is None:
            self._refuse(link, "does not name an earlier file of this shard")
        return file

    def _refuse(self, link: TarMember, reason: str) -> NoReturn:
        target = printable(link.link_name) or "(nothing)"
        self._walk.fail(link.header_offset, f"hard link {printable(link.name)} to {target} {reason}")


class _EarlierFiles:
    """Finds the file that a hard link names.

    Most shards have no hard link, so names are not collected on the way: the first link starts a second walk,
    which then follows behind.
    """

    def __init__(self, walk: TarWalk) -> None:
        self._walk = walk
        self._files: dict[str, TarMember] = {}

    def find(self, link: TarMember) -> TarMember | None:
        """Give the last file of that name before the link. Links must be asked for in shard order."""
        while (member := self._walk.next_member()) is not None:
            file: TarMember | None = None
            if member.kind is MemberKind.FILE:
                file = member
            elif member.kind is MemberKind.HARD_LINK:
                file = self._files.get(_normalise(member.link_name))
            # A later entry of the same name takes its place, whatever it is.
            if file is None:
                self._files.pop(_normalise(member.name), None)
            else:
                self._files[_normalise(member.name)] = file
            if member.header_offset == link.header_offset:
                return file
        return None


def _normalise(name: str) -> str:
    # Writers do not always put the same leading "./" or "/" before a member and before the links to it.
    return _LEADING.sub("", name)


def _zeros(size: int) -> Iterator[bytes]:
    while size > 0:
        piece = _ZEROS if size >= PIECE_BYTES else bytes(size)
        size -= len(piece)
        yield piece
