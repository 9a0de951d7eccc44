"""Streaming decompressors with one face: bytes in, bounded pieces of bytes out, one error; pure.

The contract of every decoder:

1. ``decode(data)`` takes the next input (empty when ``needs_input`` is False) and makes at most
   :data:`PIECE_BYTES` of output. It may make none; then it is asked again.
2. ``is_complete`` says whether the input may end here. An input that ends elsewhere is cut.
3. Damage raises :class:`DecodeError`, never an exception of the underlying library.

Several members, streams or frames one after the other are one stream, as the tools of each format treat them.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

PIECE_BYTES = 256 * 1024
"""Most output of one step. Bounds the memory that a decompression bomb can claim, and is large enough that the
cost of a step does not show; a Zstandard block makes at most 128 KiB."""

XZ_MEMORY_BYTES = 256 * 1024 * 1024
"""Most memory that an xz header may claim. ``xz -9`` needs 65 MiB."""

_GZIP_WINDOW_BITS = 31
_ZLIB_WINDOW_BITS = 15

_ZSTD_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_LZ4_MAGIC = 0x184D2204


class DecodeError(Exception):
    """Compressed bytes are damaged; the text says how."""


class Decoder(Protocol):
    """What the three rules of this module describe."""

    @property
    def needs_input(self) -> bool:
        """Whether the next step needs more input."""

    @property
    def is_complete(self) -> bool:
        """Whether the input may end here."""

    def decode(self, data: bytes) -> bytes:
        """Take input and make the next piece of output."""


class _Member(Protocol):
    """One compressed member, with the interface that ``bz2`` and ``lzma`` share."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _DeflateMember:
    """A gzip or zlib member behind the interface of :class:`_Member`."""

    def __init__(self, window_bits: int) -> None:
        self._inflate = zlib.decompressobj(window_bits)
        self._filled = False

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def needs_input(self) -> bool:
        # A full piece may have left output inside zlib although all of the input is consumed.
        return not self._filled and not self._inflate.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        tail = self._inflate.unconsumed_tail
        out = self._inflate.decompress(tail + data if tail else data, max_length)
        self._filled = len(out) == max_length
        return out


class MemberDecoder:
    """Decodes members that follow each other, as gzip, bzip2 and xz allow.

    Args:
        open_member: makes the decompressor of one member.
        padding_unit: zero bytes after a member are padding when they are a multiple of this; 0 allows none.
        is_repeatable: whether another member may follow.
    """

    def __init__(self, open_member: Callable[[], _Member], *, padding_unit: int, is_repeatable: bool = True) -> None:
        self._open_member = open_member
        self._padding_unit = padding_unit
        self._is_repeatable = is_repeatable
        self._member: _Member | None = None
        self._num_members = 0
        self._padding_bytes = 0
        self._left = b""

    @property
    def needs_input(self) -> bool:
        """Whether the next step needs more input."""
        return not self._left and (self._member is None or self._member.needs_input)

    @property
    def is_complete(self) -> bool:
        """Whether the input may end here."""
        if self._member is not None or self._left or not self._num_members:
            return False
        return not self._padding_bytes or self._padding_bytes % self._padding_unit == 0

    def decode(self, data: bytes) -> bytes:
        """Take input and make the next piece of output."""
        if self._left:
            data, self._left = self._left + data, b""
        if self._member is None:
            data = self._begin_member(data)
            if self._member is None:
                return b""
        try:
            out = self._member.decompress(data, PIECE_BYTES)
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
            raise DecodeError(self._describe(error)) from error
        if self._member.eof:
            self._left = self._member.unused_data
            self._member = None
            self._num_members += 1
            self._padding_bytes = 0
        return out

    def _begin_member(self, data: bytes) -> bytes:
        """Pass padding and open the next member when there is input for one; gives the input of that member."""
        if self._num_members and self._padding_unit:
            kept = data.lstrip(b"\0")
            self._padding_bytes += len(data) - len(kept)
            data = kept
        if not data:
            return b""
        if self._num_members and not self._is_repeatable:
            raise DecodeError("bytes follow the end of the compressed stream")
        if self._padding_bytes and self._padding_bytes % self._padding_unit:
            raise DecodeError(f"padding of {self._padding_bytes} bytes is no multiple of {self._padding_unit}")
        self._member = self._open_member()
        return data

    def _describe(self, error: Exception) -> str:
        detail = str(error).rpartition(": ")[2] or type(error).__name__
        return f"{detail} (in member {self._num_members + 1})" if self._num_members else detail


class ZstdDecoder:
    """Decodes Zstandard frames, and skips skippable ones.

    The library's own readers end in silence when their input is cut, and a decompressor object makes as much
    output as its input asks for. So this walks the frame structure (RFC 8878, section 3.1) and hands the library
    one block at a time: a block makes at most 128 KiB, and the walk knows where the input may end.
    """

    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415 - only readers of Zstandard pay for the import

        self._context = zstandard.ZstdDecompressor()
        self._error: type[Exception] = zstandard.ZstdError
        self._frame: Any = None
        self._pending = bytearray()
        self._wanted = 4
        self._step: Callable[[], bytes] = self._take_magic
        self._skip_bytes = 0
        self._has_checksum = False
        self._num_frames = 0

    @property
    def needs_input(self) -> bool:
        """Whether the next step needs more input."""
        return len(self._pending) < self._wanted and not (self._skip_bytes and self._pending)

    @property
    def is_complete(self) -> bool:
        """Whether the input may end here."""
        return self._step == self._take_magic and not self._pending and not self._skip_bytes and self._num_frames > 0

    def decode(self, data: bytes) -> bytes:
        """Take input and make the next piece of output."""
        self._pending += data
        if self._skip_bytes:
            skipped = min(self._skip_bytes, len(self._pending))
            del self._pending[:skipped]
            self._skip_bytes -= skipped
        return b"" if self._skip_bytes or len(self._pending) < self._wanted else self._step()

    def _take_magic(self) -> bytes:
        magic = int.from_bytes(self._pending[:4], "little")
        if magic == _ZSTD_MAGIC:
            self._await(5, self._take_descriptor)
        elif magic & 0xFFFFFFF0 == _SKIPPABLE_MAGIC:
            self._await(8, self._take_skippable)
        elif magic == _LZ4_MAGIC:
            raise DecodeError("an lz4 frame follows; lz4 is not supported, decompress the file first")
        else:
            raise DecodeError(f"no frame starts here (magic number 0x{magic:08x})")
        return b""

    def _take_skippable(self) -> bytes:
        self._skip_bytes = int.from_bytes(self._pending[4:8], "little")
        del self._pending[:8]
        self._end_frame()
        return b""

    def _take_descriptor(self) -> bytes:
        descriptor = self._pending[4]
        is_single_segment = descriptor >> 5 & 1
        self._has_checksum = bool(descriptor >> 2 & 1)
        dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
        content_size_bytes = (is_single_segment, 2, 4, 8)[descriptor >> 6]
        self._await(5 + 1 - is_single_segment + dictionary_bytes + content_size_bytes, self._take_header)
        return b""

    def _take_header(self) -> bytes:
        # The output buffer holds a whole block, so that nothing stays behind inside the library.
        self._frame = self._context.decompressobj(write_size=PIECE_BYTES)
        out = self._feed(self._wanted)
        self._await(3, self._take_block_header)
        return out

    def _take_block_header(self) -> bytes:
        header = int.from_bytes(self._pending[:3], "little")
        is_run_length = header >> 1 & 3 == 1
        self._await(3 + (1 if is_run_length else header >> 3), self._take_block)
        return b""

    def _take_block(self) -> bytes:
        is_last = bool(self._pending[0] & 1)
        out = self._feed(self._wanted)
        if not is_last:
            self._await(3, self._take_block_header)
        elif self._has_checksum:
            self._await(4, self._take_checksum)
        else:
            self._close_frame()
        return out

    def _take_checksum(self) -> bytes:
        out = self._feed(4)
        self._close_frame()
        return out

    def _close_frame(self) -> None:
        if not self._frame.eof:
            raise DecodeError("frame does not end after its last block")
        self._end_frame()

    def _end_frame(self) -> None:
        self._num_frames += 1
        self._await(4, self._take_magic)

    def _await(self, num_bytes: int, step: Callable[[], bytes]) -> None:
        self._wanted = num_bytes
        self._step = step

    def _feed(self, num_bytes: int) -> bytes:
        data = bytes(self._pending[:num_bytes])
        del self._pending[:num_bytes]
        if self._frame.eof:
            raise DecodeError("frame ends before its last block")
        try:
            out: bytes = self._frame.decompress(data)
        except self._error as error:
            raise DecodeError(str(error).rpartition(": ")[2]) from error
        return out


DECODERS: Mapping[str, Callable[[], Decoder]] = MappingProxyType(
    {
        "gzip": lambda: MemberDecoder(lambda: _DeflateMember(_GZIP_WINDOW_BITS), padding_unit=1),
        "zlib": lambda: MemberDecoder(lambda: _DeflateMember(_ZLIB_WINDOW_BITS), padding_unit=0, is_repeatable=False),
        "bzip2": lambda: MemberDecoder(bz2.BZ2Decompressor, padding_unit=0),
        "xz": lambda: MemberDecoder(
            lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES), padding_unit=4
        ),
        "zstd": ZstdDecoder,
    }
)
"""Compression name → maker of a decoder for one stream."""
