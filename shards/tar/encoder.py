"""Computes the header bytes of tar members: deterministic, as few header kinds as names and sizes allow; pure.

* A name that fits, with a size below 8 GiB, gets one plain ustar header; names over 100 bytes are split at a ``/``
  into prefix and name where that fits.
* Only a name that does not fit gets a GNU long-name entry (typeflag ``L``) before it.
* Only a size of 8 GiB or more is written in base-256. PAX ``size`` would say the same, but in a second header that
  a reader may ignore and then lose its step (CVE-2025-62518); base-256 stands in the one place where every reader
  looks for the size, and GNU tar, bsdtar, busybox, 7-Zip, Python and Go read it.

Both GNU cases have the GNU magic, so that no reader takes them for plain ustar.
Modes are 0444, times and owners 0 and without names: nothing depends on the machine that writes.
"""

import zlib

from shards.tar.header import BLOCK_BYTES, MAX_SIZE_BYTES

MAX_NAME_BYTES = 4095
"""The longest path that Linux opens (``PATH_MAX`` less its NUL). A longer name could never be unpacked."""

PLAIN_NAME_BYTES = 100
"""Names up to here fit one header as they are."""
_PREFIX_BYTES = 155
PLAIN_SIZE_LIMIT = 8**11
"""Sizes from here on do not fit eleven octal digits."""

_OWNERS = b"0000444\x00" + b"0000000\x00" + b"0000000\x00"
"""Mode, uid, gid."""
_MTIME = b"00000000000\0"
_USTAR = b"ustar\x00" + b"00"
_GNU = b"ustar  \0"
_SPACES = b" " * 8
_ZERO_LINK = bytes(100)
_AFTER_MAGIC = bytes(BLOCK_BYTES - 265)
_PLAIN_TAIL = b"0" + _ZERO_LINK + _USTAR + _AFTER_MAGIC
_PLAIN_SUM = sum(_OWNERS) + sum(_MTIME) + sum(_SPACES) + sum(_PLAIN_TAIL)
"""Sum of the bytes that are the same in every plain header."""


def encode_header(name: bytes, size: int) -> bytes:
    """Make the header blocks of a regular file.

    Args:
        name: of the file, not empty and without a zero byte; the caller checks that.
        size: of the data in bytes.

    Returns:
        One block, or three and more with a long name.

    Raises:
        ValueError: the name is too long or the size impossible.
    """
    if len(name) <= PLAIN_NAME_BYTES and 0 <= size < PLAIN_SIZE_LIMIT:
        size_field = b"%011o\0" % size
        # The low half of Adler-32 is one more than the sum of the bytes; 112 bytes cannot reach its modulus.
        total = _PLAIN_SUM - 1 + (zlib.adler32(size_field, zlib.adler32(name)) & 0xFFFF)
        return b"".join(
            (name.ljust(100, b"\0"), _OWNERS, size_field, _MTIME, b"%06o\0 " % total, _PLAIN_TAIL),
        )
    if not 0 <= size <= MAX_SIZE_BYTES:
        raise ValueError(f"a member cannot have {size} bytes")
    if len(name) > MAX_NAME_BYTES:
        raise ValueError(f"a member name of {len(name)} bytes is over the limit of {MAX_NAME_BYTES} bytes")
    if size < PLAIN_SIZE_LIMIT:
        # The last slash that leaves a prefix that fits gives the shortest name.
        slash = name.rfind(b"/", 0, _PREFIX_BYTES + 1)
        if slash > 0 and len(name) - slash - 1 <= PLAIN_NAME_BYTES:
            return _encode_block(name[slash + 1 :], size, b"0", _USTAR, name[:slash])
    if len(name) <= PLAIN_NAME_BYTES:
        return _encode_block(name, size, b"0", _GNU)
    long_name = name + b"\0"
    return b"".join(
        (
            _encode_block(b"././@LongLink", len(long_name), b"L", _GNU),
            long_name,
            bytes(-len(long_name) % BLOCK_BYTES),
            _encode_block(name[:PLAIN_NAME_BYTES], size, b"0", _GNU),
        )
    )


def _encode_block(name: bytes, size: int, typeflag: bytes, magic: bytes, prefix: bytes = b"") -> bytes:
    size_field = b"%011o\0" % size if size < PLAIN_SIZE_LIMIT else b"\x80" + size.to_bytes(11, "big")
    start = name.ljust(100, b"\0") + _OWNERS + size_field + _MTIME
    tail = (typeflag + _ZERO_LINK + magic).ljust(345 - 156, b"\0") + prefix.ljust(BLOCK_BYTES - 345, b"\0")
    return start + b"%06o\0 " % (sum(start) + sum(_SPACES) + sum(tail)) + tail
