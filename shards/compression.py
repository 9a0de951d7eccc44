"""Opens a shard's bytes for reading: recognises compression from the content and decompresses in bounded pieces.

The file name is never looked at: gzip content under ``x.tar`` and plain content under ``x.tar.gz`` are both common.
The stream may be a pipe and may give short reads. A damaged or cut compressed stream raises the caller's
:class:`shards.errors.FormatError` with the offset in the decompressed stream; errors of reading itself (``OSError``)
pass unchanged.
"""

from collections.abc import Callable
from typing import BinaryIO

from shards.decoders import DECODERS, PIECE_BYTES, DecodeError, Decoder
from shards.errors import FormatError

INPUT_BYTES = 64 * 1024
"""Compressed bytes read at a time."""

COPY_BYTES = 4 * 1024 * 1024
"""Most bytes asked of a plain stream at once. File objects allocate what they are asked for, and sizes are claims."""

HEAD_BYTES = 512
"""Bytes looked at to recognise the content; one tar header."""

_SUPPORTED = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)

_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")

_UNSUPPORTED = (
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x02\x21\x4c\x18", "lz4 (legacy frame)"),
    (b"\x1f\x9d", "compress (.Z)"),
    (b"\x1f\xa0", "compress (LZH)"),
    (b"\x1f\x1e", "pack (.z)"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"Rar!\x1a\x07", "rar"),
    (b"LZIP", "lzip"),
    (b"\x89LZO\0\r\n\x1a\n", "lzop"),
    (b"\xff\x06\0\0sNaPpY", "snappy"),
    (b"\x5d\0\0", "lzma (without the xz container)"),
)

_ADVICE = "the compressed file has to be copied again or made again"


def find_compression(head: bytes, *, allow_zlib: bool = False) -> str:
    """Name the compression that the first bytes of a file show.

    Returns:
        ``"none"``, a key of :data:`shards.decoders.DECODERS`, or for one that cannot be read its name
        with ``"!"`` in front.
    """
    for magic, name in _SUPPORTED:
        if head.startswith(magic):
            return name
    # A skippable frame (its magic ends in any of 16 values) belongs to Zstandard or lz4; the decoder sees which.
    if head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
        return "zstd"
    if allow_zlib and head.startswith(_ZLIB):
        return "zlib"
    for magic, name in _UNSUPPORTED:
        if head.startswith(magic):
            return f"!{name}"
    return "none"


class DecodedStream:
    """The decompressed bytes of a shard, read forward once.

    Made by :func:`open_decoded`. It does not close the stream it reads.
    """

    def __init__(self, raw: BinaryIO, head: bytes, compression: str, name: str, error: type[FormatError]) -> None:
        self.compression = compression
        """``"none"``, ``"gzip"``, ``"zlib"``, ``"bzip2"``, ``"xz"`` or ``"zstd"``."""
        self.position = 0
        """Decompressed bytes given or skipped so far."""
        self._raw = raw
        self._head = head
        self._name = name
        self._error = error
        self._decoder: Decoder | None = DECODERS[compression]() if compression != "none" else None
        self._ready = memoryview(b"")
        self._decoded_bytes = 0
        self._has_ended = False
        self._raw_end: int | None = None

    def read(self, num_bytes: int) -> bytes:
        """Give up to ``num_bytes`` bytes; ``b""`` only at the end (or when none are asked for).

        Raises:
            FormatError: the compressed stream is damaged or cut.
        """
        if num_bytes <= 0:
            return b""
        if self._decoder is None:
            piece = self._read_raw(min(num_bytes, COPY_BYTES))
        else:
            if not self._ready:
                self._ready = memoryview(self._decode(self._decoder))
            piece = bytes(self._ready[:num_bytes])
            self._ready = self._ready[num_bytes:]
        self.position += len(piece)
        return piece

    def read_exactly(self, num_bytes: int) -> bytes:
        """Give ``num_bytes`` bytes; fewer only when the stream ends first.

        Memory grows with the bytes that are really there, not with ``num_bytes``.

        Raises:
            FormatError: the compressed stream is damaged or cut.
        """
        piece = self.read(num_bytes)
        if len(piece) == num_bytes or not piece:
            return piece
        pieces = [piece]
        missing = num_bytes - len(piece)
        while missing > 0 and (piece := self.read(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def skip(self, num_bytes: int) -> int:
        """Pass over ``num_bytes`` bytes.

        A plain file that can seek is not read.

        Returns:
            Bytes really passed: fewer than asked only when the stream ends first.

        Raises:
            FormatError: the compressed stream is damaged or cut.
        """
        skipped = min(num_bytes, len(self._head)) if self._decoder is None else 0
        if skipped:
            self._head = self._head[skipped:]
            self.position += skipped
        if num_bytes > skipped and (remaining := self.find_remaining()) is not None:
            sought = min(num_bytes - skipped, remaining)
            self._raw.seek(sought, 1)
            self.position += sought
            return skipped + sought
        while skipped < num_bytes and (piece := self.read(min(num_bytes - skipped, PIECE_BYTES))):
            skipped += len(piece)
        return skipped

    def drain(self) -> int:
        """Pass over everything up to the end, so that the trailers of a compressed stream are checked.

        Returns:
            Decompressed bytes passed.

        Raises:
            FormatError: the compressed stream is damaged or cut.
        """
        passed = 0
        while count := self.skip(1 << 40):
            passed += count
        return passed

    def find_remaining(self) -> int | None:
        """Say how many bytes are left in a plain file that can seek; None when only reading can tell.

        The file ends where it ended at the first call.
        """
        if self._decoder is not None or not self._raw.seekable():
            return None
        here = self._raw.tell()
        if self._raw_end is None:
            self._raw_end = self._raw.seek(0, 2)
            self._raw.seek(here)
        return max(0, self._raw_end - here) + len(self._head)

    def _read_raw(self, num_bytes: int) -> bytes:
        if self._head:
            piece, self._head = self._head[:num_bytes], self._head[num_bytes:]
            return piece
        return _read_some(self._raw, num_bytes)

    def _decode(self, decoder: Decoder) -> bytes:
        """Give the next piece of decompressed bytes, ``b""`` at the end."""
        while not self._has_ended:
            data = b""
            if decoder.needs_input:
                data = self._read_raw(INPUT_BYTES)
                if not data:
                    if not decoder.is_complete:
                        raise self._damage(f"{self.compression} stream is cut: the file ends inside it; {_ADVICE}")
                    self._has_ended = True
                    break
            try:
                piece = decoder.decode(data)
            except DecodeError as error:
                # A caller that goes on after the error meets it again, not the end of the stream.
                self._decoder = _Broken(str(error))
                raise self._damage(f"{self.compression} stream is damaged: {error}; {_ADVICE}") from error
            if piece:
                self._decoded_bytes += len(piece)
                return piece
        return b""

    def _damage(self, reason: str) -> FormatError:
        return self._error(self._name, self._decoded_bytes, reason)


class _Broken:
    """Stands for a decoder that has met damage: it raises the same again."""

    needs_input = False
    is_complete = False

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def decode(self, _data: bytes) -> bytes:
        raise DecodeError(self._reason)


def _read_some(stream: BinaryIO, num_bytes: int) -> bytes:
    piece: bytes | None = stream.read(num_bytes)
    if piece is None:
        raise BlockingIOError("the stream is in non-blocking mode; open it in blocking mode")
    return piece


def open_decoded(
    stream: BinaryIO,
    name: str,
    error: type[FormatError],
    *,
    allow_zlib: bool = False,
    is_plain: Callable[[bytes], bool] | None = None,
) -> DecodedStream:
    """Recognise the compression of a stream from its content.

    Args:
        stream: the shard's bytes, at its start. Need not seek, may give short reads; left open.
        name: the shard, for messages.
        error: class of the errors that damage raises.
        allow_zlib: take the two bytes of a zlib header for zlib. Two bytes prove little, so give ``is_plain`` too.
        is_plain: asked first, with the first 512 bytes (fewer when the file is shorter): true means that they are
            proven to be the uncompressed format (by a checksum), whatever compression they look like.

    Raises:
        FormatError: the content is compressed in a way that cannot be read; the message names it.
    """
    pieces: list[bytes] = []
    missing = HEAD_BYTES
    while missing and (piece := _read_some(stream, missing)):
        pieces.append(piece)
        missing -= len(piece)
    head = b"".join(pieces)
    compression = "none" if is_plain is not None and is_plain(head) else find_compression(head, allow_zlib=allow_zlib)
    if compression.startswith("!"):
        raise error(
            name,
            0,
            f"content is compressed with {compression[1:]}, which is not supported; decompress it first, "
            "or compress it with gzip, bzip2, xz or zstd",
        )
    return DecodedStream(stream, head, compression, name, error)
