"""Zip files: what the central directory promises, and the data of one member; own limits against bombs.

Rules:
    * Encrypted members, and methods other than stored, deflate and bzip2, are refused before anything is written.
    * Members must not overlap, and must not claim more than their method can give: that is how bombs are built. What
      remains is as big as it claims, which the check of free space sees.
    * No more is decompressed than was claimed, and the data must have the promised CRC-32.
"""

import bz2
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from packer.sources.origin import PIECE_BYTES
from shards.errors import FormatError, SourceError, list_offenders, printable

LOCAL_HEADER_BYTES = 30
_MOST_RATIO = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032, zipfile.ZIP_BZIP2: 1 << 20}
"""Most bytes that one byte can give. Deflate's is exact; bzip2 reaches a million, so only overlap guards there."""
_RATIO_SLACK_BYTES = 4096
_ENCRYPTED, _UTF8 = 0x1, 0x800


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """A member of a zip."""

    name: bytes
    size: int
    stored_size: int
    offset: int
    """Of the local header."""
    method: int
    crc32: int
    is_directory: bool
    is_link: bool


def is_zip(stream: BinaryIO) -> bool:
    """Whether a file is a zip: by its first bytes, or by its end for one with something in front."""
    head = stream.read(512)
    stream.seek(0)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return True
    if head[257:262] == b"ustar":
        return False  # a tar may well end in a zip
    found = zipfile.is_zipfile(stream)
    stream.seek(0)
    return found


def list_zip(path: str) -> list[ZipEntry]:
    """Read the central directory.

    Raises:
        FormatError: it is damaged, or its members overlap or claim the impossible.
        SourceError: members that are encrypted or compressed by another method.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = archive.infolist()
            end = archive.start_dir
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
        raise FormatError(path, None, f"no zip that can be read: {error}") from error
    _refuse_unreadable(path, found)
    entries = [
        ZipEntry(
            name=_name_of(info),
            size=info.file_size,
            stored_size=info.compress_size,
            offset=info.header_offset,
            method=info.compress_type,
            crc32=info.CRC,
            is_directory=info.filename.endswith("/"),
            is_link=stat.S_ISLNK(info.external_attr >> 16),
        )
        for info in found
    ]
    _refuse_bombs(path, entries, end)
    return entries


def unzip(
    path: str, entry_offset: int, stored_size: int, method: int, read_at: Callable[[int, int], bytes]
) -> Iterator[bytes]:
    """Give the data of a member in pieces, without an end to how many.

    Args:
        path: of the zip, for messages.
        entry_offset: of the local header.
        stored_size: of the member.
        method: of compression.
        read_at: (offset, size) → bytes of the zip.

    Raises:
        FormatError: the local header or the compressed data are damaged.
    """
    header = read_at(entry_offset, LOCAL_HEADER_BYTES)
    if len(header) < LOCAL_HEADER_BYTES or not header.startswith(b"PK\x03\x04"):
        raise FormatError(path, entry_offset, "no zip member begins here")
    name_size, extra_size = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    start = entry_offset + LOCAL_HEADER_BYTES + name_size + extra_size
    decoder = _make_decoder(method)
    for offset in range(start, start + stored_size, PIECE_BYTES):
        piece = read_at(offset, min(PIECE_BYTES, start + stored_size - offset))
        try:
            yield from decoder.feed(piece)
        except (zlib.error, OSError, ValueError, EOFError) as error:
            raise FormatError(path, offset, f"compressed data of a zip member: {error}") from error


class _Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress in pieces of at most :data:`PIECE_BYTES`."""


class _Stored:
    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data


class _Deflated:
    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(-zlib.MAX_WBITS)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            piece = self._decoder.decompress(data, PIECE_BYTES)
            data = self._decoder.unconsumed_tail
            if not piece and self._decoder.eof:
                return
            yield piece
        while not self._decoder.eof and len(piece := self._decoder.decompress(b"", PIECE_BYTES)):
            yield piece


class _Bzipped:
    def __init__(self) -> None:
        self._decoder = bz2.BZ2Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        while not self._decoder.eof:
            piece = self._decoder.decompress(data, PIECE_BYTES)
            data = b""
            if piece:
                yield piece
            elif self._decoder.needs_input:
                return


def _make_decoder(method: int) -> _Decoder:
    if method == zipfile.ZIP_STORED:
        return _Stored()
    return _Deflated() if method == zipfile.ZIP_DEFLATED else _Bzipped()


def _name_of(info: zipfile.ZipInfo) -> bytes:
    if info.flag_bits & _UTF8:
        return info.filename.encode("utf-8", "surrogateescape")
    # without the flag zipfile takes names for code page 437, but most programs write UTF-8
    try:
        raw = info.filename.encode("cp437")
        raw.decode("utf-8")
    except UnicodeError:
        return info.filename.encode("utf-8", "surrogateescape")
    return raw


def _refuse_unreadable(path: str, found: Sequence[zipfile.ZipInfo]) -> None:
    encrypted = [printable(info.filename) for info in found if info.flag_bits & _ENCRYPTED]
    if encrypted:
        raise SourceError(
            f"{len(encrypted)} member(s) of {printable(path)} are encrypted:\n{list_offenders(encrypted)}\n"
            "decrypt the archive first"
        )
    unknown = [
        f"{printable(info.filename)}: method {info.compress_type}"
        for info in found
        if info.compress_type not in _MOST_RATIO
    ]
    if unknown:
        raise SourceError(
            f"{len(unknown)} member(s) of {printable(path)} are compressed in a way that is not read here:\n"
            f"{list_offenders(unknown)}\nmake the archive again with deflate, or with no compression"
        )


def _refuse_bombs(path: str, entries: Sequence[ZipEntry], end: int) -> None:
    ordered = sorted(entries, key=lambda entry: entry.offset)
    for number, entry in enumerate(ordered):
        name = printable(entry.name.decode("utf-8", "surrogateescape"))
        limit = ordered[number + 1].offset if number + 1 < len(ordered) else end
        if entry.offset + LOCAL_HEADER_BYTES + entry.stored_size > limit:
            raise FormatError(path, entry.offset, f"member {name} overlaps what follows it, as in a zip bomb")
        if entry.size > entry.stored_size * _MOST_RATIO[entry.method] + _RATIO_SLACK_BYTES:
            raise FormatError(
                path, entry.offset, f"member {name} of {entry.stored_size} bytes claims to hold {entry.size} bytes"
            )
