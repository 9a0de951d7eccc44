"""Decodes one 512-byte tar header block: checksum, numbers, names; pure.

Covers v7, POSIX ustar, old GNU and star headers. The format is described in POSIX.1-2017 ``pax`` ("ustar
Interchange Format") and in the GNU tar manual ("Basic Tar Format").

Problems raise :class:`HeaderFault`, which knows only the reason; the walk that knows shard and offset adds them.
"""

from dataclasses import dataclass
from zlib import adler32

BLOCK_BYTES = 512
"""Everything in a tar archive starts at a multiple of this."""

MAX_SIZE_BYTES = (1 << 63) - 1
"""The largest size that any filesystem can hold. Base-256 fields can say more."""

_QUOTED_BYTES = 40


class HeaderFault(Exception):  # noqa: N818 - not an error of its own: the walk turns it into a TarFormatError
    """What is wrong with the bytes of a header."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a header block that say what follows. Owners, times and modes are not looked at."""

    name: bytes
    size: int
    """Of the data that follow, as claimed; never negative."""
    typeflag: bytes
    """One byte."""
    link_name: bytes


class PlainHeaderDecoder:
    """Decodes, quickly, the header that nearly every member of a training shard has.

    The members of a shard mostly come from one writer, so from the typeflag on their headers are equal byte for
    byte. That part is checked once and then only compared.
    """

    __slots__ = ("_tail", "_tail_sum")

    def __init__(self) -> None:
        self._tail = b""
        self._tail_sum = 0

    def decode(self, block: bytes) -> tuple[str, int] | None:
        """Decode the header of a regular file: typeflag ``0``, ustar or GNU magic, no prefix, the usual digits.

        Returns:
            (name, size in bytes), or None when :func:`decode_header` has to look at the block: another kind of
            header, a wrong one, or fewer than 512 bytes.
        """
        tail = block[156:]
        if tail != self._tail and not self._learn(tail):
            return None
        # The low half of Adler-32 is one more than the sum of the bytes, and 148 bytes cannot reach its modulus.
        total = self._tail_sum + (adler32(block[:148]) & 0xFFFF)
        digits = block[124:135]
        if block[148:156] != b"%06o\0 " % total or not digits.isdigit() or block[135] not in b"\0 ":
            return None
        end = block.find(b"\0", 0, 100)
        name = block[: end if end >= 0 else 100].decode("utf-8", "surrogateescape")
        if name[-1:] == "/":
            return None  # a directory, as it was written before typeflag 5
        try:
            return name, int(digits, 8)
        except ValueError:
            return None  # digits 8 and 9

    def _learn(self, tail: bytes) -> bool:
        magic = tail[101:107]
        if (
            len(tail) != BLOCK_BYTES - 156
            or tail[:1] != b"0"
            or not ((magic == b"ustar\0" and not tail[189]) or magic == b"ustar ")
        ):
            return False
        self._tail = tail
        # The checksum field counts as eight spaces; and one less for the one that Adler-32 starts from.
        self._tail_sum = sum(tail) + 8 * ord(" ") - 1
        return True


def decode_header(block: bytes) -> Header:
    """Decode a header block of any kind.

    Args:
        block: exactly 512 bytes.

    Raises:
        HeaderFault: the checksum is wrong, or the size is no number or negative.
    """
    check_checksum(block)
    name = _until_nul(block[:100])
    if block[257:263] == b"ustar\0":
        # star keeps times at the end of the field and says so with a second magic. GNU keeps other things
        # there and has another magic.
        prefix = _until_nul(block[345:476] if block[508:512] == b"tar\0" else block[345:500])
        if prefix:
            name = prefix + b"/" + name
    try:
        size = decode_number(block[124:136])
    except HeaderFault as fault:
        raise HeaderFault(f"bad size field: {fault.reason}") from None
    if size < 0:
        raise HeaderFault(f"negative size {size}")
    if size > MAX_SIZE_BYTES:
        raise HeaderFault(f"size {size} is larger than any file can be")
    return Header(name, size, block[156:157], _until_nul(block[157:257]))


def is_header(block: bytes) -> bool:
    """Tell whether a block is a header by its checksum, the only sign that every kind of tar has."""
    if len(block) < BLOCK_BYTES:
        return False
    try:
        check_checksum(block[:BLOCK_BYTES])
    except HeaderFault:
        return False
    return True


def check_checksum(block: bytes) -> None:
    """Compare the checksum field with the sum of the block.

    Old Sun and HP tools summed signed bytes; every reader takes both sums, which differ only for bytes above 127.

    Raises:
        HeaderFault: they differ, or the field is no number. The reason quotes the first bytes, because what
            stands in place of a tar is often a readable error page.
    """
    summed = block[:148] + b" " * 8 + block[156:]
    # The low half of Adler-32 is one more than the sum modulo 65521, which 512 ASCII bytes cannot reach. It is
    # several times as fast as a sum.
    unsigned = (adler32(summed) & 0xFFFF) - 1 if summed.isascii() else sum(summed)
    try:
        stored = decode_number(block[148:156])
    except HeaderFault as fault:
        raise HeaderFault(f"not a tar header, its checksum field is wrong: {fault.reason}; {quote(block)}") from None
    if stored == unsigned:
        return
    if stored != unsigned - 256 * sum(byte > 127 for byte in summed):
        raise HeaderFault(f"header checksum mismatch: stored {stored}, computed {unsigned}; {quote(block)}")


def decode_number(field: bytes) -> int:
    """Decode a numeric field: octal digits among spaces and NULs, or base-256 when the top bit is set.

    Like GNU tar, takes the digits up to the first space or NUL and does not look at what stands behind;
    a blank field is 0. The result may be negative (base-256).

    Raises:
        HeaderFault: the field is neither.
    """
    if field[0] & 0x80:
        value = int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
        # Two's complement over the bits below the flag.
        return value - (1 << (8 * len(field) - 1)) if field[0] & 0x40 else value
    digits = field.lstrip(b" \0").replace(b"\0", b" ").partition(b" ")[0]
    if not digits:
        return 0
    if digits.strip(b"01234567"):
        raise HeaderFault(f"{field!r} is not an octal number")
    return int(digits, 8)


def quote(block: bytes) -> str:
    """Render the first bytes of a block for a message, controls escaped."""
    return f"the block starts with {block[:_QUOTED_BYTES]!r}"


def _until_nul(field: bytes) -> bytes:
    return field.partition(b"\0")[0]
