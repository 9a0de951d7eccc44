"""Walks the headers of a tar shard strictly and finds where the data of each member lie.

The rules (``docs/format.md``, "Reading tar strictly"): whatever is damaged, cut or ambiguous raises
:class:`shards.errors.TarFormatError` with the shard and the byte offset. Nothing ends early in silence, nothing is
guessed, and nothing is allocated for a size that is only claimed.
"""

from typing import NoReturn

from shards.errors import TarFormatError
from shards.tar.header import (
    BLOCK_BYTES,
    Header,
    HeaderFault,
    PlainHeaderDecoder,
    decode_header,
    is_header,
    quote,
)
from shards.tar.member import DATALESS_KINDS, MemberKind, TarLimits, TarMember
from shards.tar.pax import Extension, PaxRecords, keep_relevant, last_number, last_value, parse_records
from shards.tar.source import ByteSource
from shards.tar.sparse import (
    MapText,
    SparseMap,
    decode_extension_map,
    decode_header_map,
    decode_pax_map,
    place_extents,
)

_ZERO_BLOCK = bytes(BLOCK_BYTES)
_TAIL_PIECE_BYTES = 256 * 1024

_FILE_FLAGS = frozenset({b"\0", b"0", b"7", b"S"})
_LINK_KINDS = frozenset({MemberKind.HARD_LINK, MemberKind.SYMLINK})

_GLOBAL_REFUSED = (b"size", b"GNU.sparse.map", b"GNU.sparse.offset", b"GNU.sparse.major")
"""What a global header must not set: it would change where each member ends, and readers disagree on that."""


class TarWalk:
    """A walk over the members of one shard, in order.

    :meth:`next_member` leaves the source at the member's stored data, which the caller may read or not;
    the next call, or :meth:`finish_member`, passes over the rest.
    """

    def __init__(self, source: ByteSource, name: str, limits: TarLimits, *, require_end_marker: bool) -> None:
        self.source = source
        self.name = name
        self.limits = limits
        self._require_end_marker = require_end_marker
        self._plain = PlainHeaderDecoder()
        self._header_offset = 0
        self._data_end = 0
        self._end = 0

    def next_member(self) -> TarMember | None:
        """Give the next member, or None at the end marker, once all that follows it has been checked.

        Raises:
            TarFormatError: damage, here or in what was passed over.
        """
        source = self.source
        if source.position != self._end:
            self.finish_member()
        offset = self._header_offset = source.position
        block = source.read_exactly(BLOCK_BYTES)
        plain = self._plain.decode(block)
        if plain is None:
            return self._next_special(block)
        name, size = plain
        self._data_end = offset + BLOCK_BYTES + size
        self._end = (self._data_end + BLOCK_BYTES - 1) & -BLOCK_BYTES
        return TarMember(name, MemberKind.FILE, offset, offset + BLOCK_BYTES, size, size)

    def finish_member(self) -> None:
        """Pass over what is left of the member's data and padding.

        Raises:
            TarFormatError: the shard ends before.
        """
        source = self.source
        missing = self._end - source.position
        if missing and source.skip(missing) < missing:
            self.raise_cut()

    def raise_cut(self) -> NoReturn:
        """Raise the error for a shard that ends inside the current member, at the source's position."""
        end = self.source.position
        if end < self._data_end:
            reason = f"truncated member data: the data should end at {self._data_end}, the shard ends at {end}"
        else:
            reason = f"truncated padding: the member should end at {self._end}, the shard ends at {end}"
        self.fail(self._header_offset, reason)

    def fail(self, offset: int, reason: str) -> NoReturn:
        """Raise the error for a fault at an offset."""
        raise TarFormatError(self.name, offset, reason)

    def _next_special(self, block: bytes) -> TarMember | None:
        source = self.source
        extension = Extension()
        start = self._header_offset
        while True:
            here = self._header_offset
            if len(block) < BLOCK_BYTES:
                self._check_end(start, block, extension)
                return None
            if block == _ZERO_BLOCK:
                if not extension.is_empty:
                    self.fail(start, "extended header without a member: the end-of-archive marker follows")
                self._check_tail(here)
                return None
            try:
                header = decode_header(block)
                if not self._take_extension(header, extension):
                    return self._make_member(start, block, header, extension)
            except HeaderFault as fault:
                self.fail(here, fault.reason)
            self._header_offset = source.position
            block = source.read_exactly(BLOCK_BYTES)
            # Shards of other writers often have an extended header before each member that holds only its mtime.
            if extension.has_nothing_to_say and (plain := self._plain.decode(block)) is not None:
                name, size = plain
                self._set_end(size)
                return TarMember(name, MemberKind.FILE, start, source.position, size, size)

    def _take_extension(self, header: Header, extension: Extension) -> bool:
        """Take an entry that is no member; False when it is one."""
        flag = header.typeflag
        if flag in b"xX":
            if extension.records:
                raise HeaderFault("two extended headers for one member; readers disagree on which one counts")
            records = parse_records(self._read_metadata(header, self.limits.max_metadata_bytes))
            extension.records = keep_relevant(records)
            extension.is_empty = False
        elif flag == b"g":
            records = parse_records(self._read_metadata(header, self.limits.max_metadata_bytes))
            for keyword in _GLOBAL_REFUSED:
                if last_value(records, keyword) is not None:
                    raise HeaderFault(f"a global header sets {keyword.decode()} for all members")
        elif flag in b"LK":
            # One byte more for the NUL at the end. As in C, a name ends at its first NUL.
            text = self._read_metadata(header, self.limits.max_name_bytes + 1).partition(b"\0")[0]
            if flag == b"L":
                extension.long_name = text
            else:
                extension.long_link = text
            extension.is_empty = False
        elif flag in b"VA":
            # A volume label, a Solaris ACL: no member, and the member that follows keeps its extended header.
            self._set_end(header.size)
            self.finish_member()
        else:
            return False
        return True

    def _make_member(self, start: int, block: bytes, header: Header, extension: Extension) -> TarMember:
        limits = self.limits
        records = extension.records
        flag = header.typeflag
        name = last_value(records, b"GNU.sparse.name") or extension.text(b"path", extension.long_name) or header.name
        link = extension.text(b"linkpath", extension.long_link) or header.link_name
        for text in (name, link):
            if len(text) > limits.max_name_bytes:
                raise HeaderFault(f"name of {len(text)} bytes is over the limit of {limits.max_name_bytes} bytes")
            if b"\0" in text:
                raise HeaderFault(f"a zero byte in the name {text[:100]!r}")
        kind = DATALESS_KINDS.get(flag)
        if kind is not None:
            self._set_end(0)
            link_name = _text(link) if kind in _LINK_KINDS else ""
            return TarMember(_text(name), kind, start, self.source.position, 0, 0, link_name)
        size = header.size
        if (pax_size := last_number(records, b"size")) is not None:
            size = pax_size
        self._set_end(size)
        if flag == b"D":
            return TarMember(_text(name), MemberKind.DIRECTORY, start, self.source.position, 0, 0)
        if flag == b"M":
            raise HeaderFault("the member is continued from another volume; join the volumes first")
        if flag not in _FILE_FLAGS:
            raise HeaderFault(f"unknown typeflag {flag!r}; its data would be lost")
        sparse = self._find_extents(block, size, records)
        if sparse is not None:
            logical_size, extents = sparse
            stored_size = self._data_end - self.source.position
            offset = self.source.position
            return TarMember(_text(name), MemberKind.FILE, start, offset, logical_size, stored_size, "", extents)
        if name.endswith(b"/"):
            # Before typeflag 5, a directory was a file with a slash at the end of its name.
            if size:
                raise HeaderFault(f"a directory with {size} bytes of data; readers disagree on where it ends")
            return TarMember(_text(name), MemberKind.DIRECTORY, start, self.source.position, 0, 0)
        return TarMember(_text(name), MemberKind.FILE, start, self.source.position, size, size)

    def _find_extents(
        self, block: bytes, size: int, records: PaxRecords
    ) -> tuple[int, tuple[tuple[int, int, int], ...]] | None:
        """Find the pieces of a sparse member and step over its map.

        Returns:
            (logical size, extents), or None when the member is not sparse.
        """
        most = self.limits.max_sparse_extents
        pieces: SparseMap | None
        if block[156:157] == b"S":
            pieces, has_more, logical_size = decode_header_map(block)
            while has_more:
                more, has_more = decode_extension_map(self._read_map_block())
                pieces += more
                if len(pieces) > most:
                    raise HeaderFault(f"sparse map is over the limit of {most} pieces")
            self._set_end(size)
        elif last_value(records, b"GNU.sparse.major") == b"1":
            text = MapText(most)
            while True:
                if self.source.position + BLOCK_BYTES > self._end:
                    raise HeaderFault("bad sparse map: it does not end inside the member")
                if text.feed(self._read_map_block()):
                    break
            if self.source.position > self._data_end:
                raise HeaderFault("bad sparse map: it does not end inside the member")
            pieces = text.pieces
            real_size = last_number(records, b"GNU.sparse.realsize")
            if real_size is None:
                raise HeaderFault("bad sparse member: no GNU.sparse.realsize")
            logical_size = real_size
        elif last_value(records, b"GNU.sparse.major") not in {None, b"0"}:
            raise HeaderFault("unknown version of GNU.sparse.major")
        else:
            pieces = decode_pax_map(records, most)
            if pieces is None:
                return None
            real_size = last_number(records, b"GNU.sparse.size")
            if real_size is None:
                raise HeaderFault("bad sparse member: no GNU.sparse.size")
            logical_size = real_size
        offset = self.source.position
        extents = place_extents(pieces, size=logical_size, stored_offset=offset, stored_size=self._data_end - offset)
        return logical_size, extents

    def _set_end(self, size: int) -> None:
        self._data_end = self.source.position + size
        self._end = (self._data_end + BLOCK_BYTES - 1) & -BLOCK_BYTES

    def _read_metadata(self, header: Header, most: int) -> bytes:
        if header.size > most:
            raise HeaderFault(f"metadata of {header.size} bytes is over the limit of {most} bytes")
        self._set_end(header.size)
        data = self.source.read_exactly(header.size)
        if len(data) < header.size or self.source.skip(self._end - self._data_end) < self._end - self._data_end:
            raise HeaderFault(f"truncated metadata: the shard ends at {self.source.position}, before {self._end}")
        return data

    def _read_map_block(self) -> bytes:
        block = self.source.read_exactly(BLOCK_BYTES)
        if len(block) < BLOCK_BYTES:
            raise HeaderFault(f"truncated sparse map: the shard ends at {self.source.position}")
        return block

    def _check_end(self, start: int, block: bytes, extension: Extension) -> None:
        here = self._header_offset
        if block:
            self.fail(here, f"truncated header: {len(block)} of {BLOCK_BYTES} bytes; {quote(block)}")
        if not extension.is_empty:
            self.fail(start, "extended header without a member: the shard ends behind it")
        if self._require_end_marker:
            what = "members may be missing" if here else "the file is empty, probably an unfinished copy"
            self.fail(here, f"no end-of-archive marker where the shard ends; {what}")

    def _check_tail(self, marker_offset: int) -> None:
        """Read all that follows the end marker: it must be zeros, and a compressed stream must end well."""
        source = self.source
        start = source.position
        while piece := source.read_exactly(_TAIL_PIECE_BYTES):
            rest = piece.lstrip(b"\0")
            if rest:
                first = (len(piece) - len(rest)) & -BLOCK_BYTES
                block = piece[first : first + BLOCK_BYTES]
                what = "another member starts here" if is_header(block) else f"no header, {quote(rest)}"
                self.fail(
                    start + first,
                    f"data after the end-of-archive marker at {marker_offset}: {what}; "
                    "a page was lost, or archives were joined",
                )
            start += len(piece)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
