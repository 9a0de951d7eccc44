"""BLAKE3 digests of blocks, shards and small files, and the CRC-32C of members.

A digest is written ``blake3:`` and 64 lower-case hex digits. A shard is cut into blocks of a fixed size (the last
one may be shorter); each block has a digest of 32 bytes, and the *shard digest* is the BLAKE3 of those bytes joined
in order. So one pass over the data gives both, blocks can be verified in any order as they arrive, and the list of
block digests is itself verified against the shard digest. An empty shard has no blocks.

Sources: BLAKE3 specification (https://github.com/BLAKE3-team/BLAKE3-specs); CRC-32C (Castagnoli) and its mask as in
TensorFlow's ``lib/hash/crc32c.h``.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blake3 import blake3
from crc32c import crc32c as _crc32c

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

BLOCK_BYTES = 8 * 1024 * 1024
"""Block size of new shards. Measured from 1 to 64 MiB, hashing speed no longer grows above 1 MiB; 8 MiB keeps a
range request long enough to hide a network round trip, and what one flipped bit makes a stager fetch again small."""

DIGEST_BYTES = 32
"""Length of a raw BLAKE3 digest."""

DIGEST_PREFIX = "blake3:"

_DIGEST_TEXT = re.compile(r"blake3:[0-9a-f]{64}")
_MASK_DELTA = 0xA282EAD8


def is_digest(text: str) -> bool:
    """Whether ``text`` is the text form of a digest."""
    return _DIGEST_TEXT.fullmatch(text) is not None


def digest_text(raw: bytes) -> str:
    """Give the text form of a raw digest of :data:`DIGEST_BYTES` bytes."""
    if len(raw) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, not {len(raw)}")
    return DIGEST_PREFIX + raw.hex()


def hash_bytes(data: "Buffer") -> str:
    """Digest of a whole small file, as text. One thread, no copy."""
    return DIGEST_PREFIX + blake3(data).hexdigest()


def block_digest(data: "Buffer") -> bytes:
    """Raw digest of one block. One thread, no copy."""
    return blake3(data).digest()


def shard_digest(block_digests: Sequence[bytes]) -> str:
    """Digest of a shard from the raw digests of all its blocks, in order."""
    return hash_bytes(b"".join(block_digests))


def block_ranges(size_bytes: int, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, int]]:
    """Give the half-open byte range ``(start, end)`` of each block of a shard, in order."""
    if size_bytes < 0 or block_bytes < 1:
        raise ValueError(f"no blocks of {block_bytes} bytes in {size_bytes} bytes")
    for start in range(0, size_bytes, block_bytes):
        yield start, min(start + block_bytes, size_bytes)


@dataclass(frozen=True, slots=True)
class BlockDigests:
    """The digests of all blocks of one shard."""

    size_bytes: int
    """Size of the shard."""
    block_bytes: int
    """Size of each block but the last; 0 for a shard that nobody has hashed."""
    digests: tuple[bytes, ...]
    """Raw digest of each block, in order."""

    def __post_init__(self) -> None:
        if self.block_bytes == 0 and self.size_bytes >= 0 and not self.digests:
            return
        if self.size_bytes < 0 or self.block_bytes < 1:
            raise ValueError(f"no blocks of {self.block_bytes} bytes in {self.size_bytes} bytes")
        expected = -(-self.size_bytes // self.block_bytes)
        if len(self.digests) != expected:
            raise ValueError(f"{self.size_bytes} bytes have {expected} blocks, not {len(self.digests)}")
        if any(len(digest) != DIGEST_BYTES for digest in self.digests):
            raise ValueError(f"a block digest has {DIGEST_BYTES} bytes")

    @property
    def shard_digest(self) -> str:
        """Digest of the whole shard, as text.

        Raises:
            ValueError: nobody has hashed it.
        """
        if self.block_bytes == 0:
            raise ValueError("the shard was not hashed")
        return shard_digest(self.digests)


class BlockHasher:
    """Hashes a stream, given in pieces of any size, into block digests. Memory is constant apart from 32 bytes a block.

    One thread on purpose: packers and stagers already keep every core busy with a shard each, and starting threads
    costs more than it saves on the small pieces in which a stream arrives.
    """

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        if block_bytes < 1:
            raise ValueError(f"block_bytes must be positive, not {block_bytes}")
        self._block_bytes = block_bytes
        self._size_bytes = 0
        self._room = block_bytes
        self._digests: list[bytes] = []
        self._hasher = blake3()
        self._is_finished = False

    @property
    def size_bytes(self) -> int:
        """How many bytes were given so far."""
        return self._size_bytes

    def update(self, data: "Buffer") -> None:
        """Take the next piece of the stream; contiguous buffers of any item type, never copied."""
        if self._is_finished:
            raise ValueError("finish() was called, no more data can be hashed")
        with memoryview(data) as view, view.cast("B") as piece:
            start, size = 0, len(piece)
            while start < size:
                end = min(start + self._room, size)
                with piece[start:end] as part:
                    self._hasher.update(part)
                self._room -= end - start
                if self._room == 0:
                    self._close_block()
                start = end
            self._size_bytes += size

    def finish(self) -> BlockDigests:
        """Close the last block and give all digests. The hasher takes no more data afterwards."""
        if not self._is_finished and self._room < self._block_bytes:
            self._close_block()
        self._is_finished = True
        return BlockDigests(self._size_bytes, self._block_bytes, tuple(self._digests))

    def _close_block(self) -> None:
        self._digests.append(self._hasher.digest())
        self._hasher = blake3()
        self._room = self._block_bytes


def crc32c(data: "Buffer", value: int = 0) -> int:
    """CRC-32C of ``data``, continuing from ``value``; not masked. Contiguous buffers of any item type, never copied."""
    return _crc32c(data, value)


def mask_crc(crc: int) -> int:
    """Mask a CRC-32C the way TFRecord stores it, so that sums over data holding sums stay useful."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def unmask_crc(masked: int) -> int:
    """Undo :func:`mask_crc`."""
    rotated = (masked - _MASK_DELTA) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF
