"""Decodes the maps of sparse members: which pieces of a file with holes are stored; pure.

Four encodings exist, all described in the GNU tar manual ("Storing Sparse Files"): old GNU (in the header and in
extension blocks), and PAX 0.0 (repeated keywords), 0.1 (one keyword) and 1.0 (text in front of the data).
A map is a list of (logical offset, size) pairs.
"""

from collections.abc import Sequence

from shards.tar.header import MAX_SIZE_BYTES, HeaderFault, decode_number
from shards.tar.pax import PaxRecords, decode_decimal, last_value

SparseMap = list[tuple[int, int]]
"""(logical offset, size) of each stored piece, in file order."""

_PAIR_BYTES = 24
_MAX_LINE_DIGITS = 20


def decode_header_map(block: bytes) -> tuple[SparseMap, bool, int]:
    """Decode the map in an old GNU sparse header (typeflag ``S``).

    Returns:
        (map so far, whether an extension block follows, logical size in bytes).

    Raises:
        HeaderFault: a field is no number.
    """
    return _decode_pairs(block[386:482]), block[482] != 0, _decode_field(block[483:495])


def decode_extension_map(block: bytes) -> tuple[SparseMap, bool]:
    """Decode one extension block.

    Returns:
        (its part of the map, whether another block follows).

    Raises:
        HeaderFault: a field is no number.
    """
    return _decode_pairs(block[:504]), block[504] != 0


def decode_pax_map(records: PaxRecords, max_extents: int) -> SparseMap | None:
    """Decode the map of format 0.0 or 0.1 from the records of an extended header.

    Returns:
        The map, or None when the records hold none.

    Raises:
        HeaderFault: the map is malformed or too long.
    """
    text = last_value(records, b"GNU.sparse.map")
    if text is not None:
        numbers = text.split(b",")
    else:
        # 0.0: offset and numbytes in turn, the pair order is the map. Other writers repeat "map" pieces; none known.
        fields = [item for item in records if item[0] in {b"GNU.sparse.offset", b"GNU.sparse.numbytes"}]
        if not fields:
            return None
        turns = (b"GNU.sparse.offset", b"GNU.sparse.numbytes")
        if any(keyword != turns[place % 2] for place, (keyword, _) in enumerate(fields)):
            raise HeaderFault("bad sparse map: offset and numbytes do not alternate")
        numbers = [value for _, value in fields]
    if len(numbers) % 2:
        raise HeaderFault("bad sparse map: an odd count of numbers")
    if len(numbers) // 2 > max_extents:
        raise HeaderFault(f"sparse map of {len(numbers) // 2} pieces is over the limit of {max_extents}")
    values = [decode_decimal(number, "sparse map") for number in numbers]
    return list(zip(values[::2], values[1::2], strict=True))


class MapText:
    """Collects the map of format 1.0, which stands in front of the data, block by block."""

    def __init__(self, max_extents: int) -> None:
        self._max_extents = max_extents
        self._numbers: list[int] = []
        self._rest = b""

    def feed(self, block: bytes) -> bool:
        """Take the next block of the data.

        Returns:
            Whether the map ends in this block; the stored pieces start at the next one.

        Raises:
            HeaderFault: the text is no map, or the map is too long.
        """
        lines = (self._rest + block).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._numbers.append(decode_decimal(line, "sparse map"))
            if self._numbers[0] > self._max_extents:
                raise HeaderFault(f"sparse map of {self._numbers[0]} pieces is over the limit of {self._max_extents}")
            if len(self._numbers) == 1 + 2 * self._numbers[0]:
                return True
        if len(self._rest) > _MAX_LINE_DIGITS:
            raise HeaderFault(f"bad sparse map: {self._rest[:_MAX_LINE_DIGITS]!r} is no number")
        return False

    @property
    def pieces(self) -> SparseMap:
        """The map, once it is complete."""
        return list(zip(self._numbers[1::2], self._numbers[2::2], strict=True))


def place_extents(
    pieces: Sequence[tuple[int, int]], *, size: int, stored_offset: int, stored_size: int
) -> tuple[tuple[int, int, int], ...]:
    """Check a map and find where its pieces are stored.

    Args:
        pieces: (logical offset, size) in file order.
        size: logical size of the member in bytes.
        stored_offset: where the first piece is stored, from the start of the shard.
        stored_size: bytes that are stored, padding not counted.

    Returns:
        (logical offset, size, stored offset) of the pieces that hold bytes; ``()`` when one piece is the whole
        member; one empty piece at the end when the member is all hole.

    Raises:
        HeaderFault: the pieces overlap, are out of order, leave the member, or do not add up to what is stored.
    """
    extents = []
    logical_end = 0
    stored_end = stored_offset
    for offset, num_bytes in pieces:
        if offset < logical_end or offset + num_bytes > size:
            raise HeaderFault(
                f"bad sparse map: piece {offset}+{num_bytes} overlaps the one before or leaves the file of {size} bytes"
            )
        if num_bytes:
            extents.append((offset, num_bytes, stored_end))
        logical_end = offset + num_bytes
        stored_end += num_bytes
    if stored_end - stored_offset != stored_size:
        raise HeaderFault(f"bad sparse map: pieces of {stored_end - stored_offset} bytes, but {stored_size} are stored")
    if stored_size == size:
        return ()
    return tuple(extents) or ((size, 0, stored_offset),)


def _decode_pairs(data: bytes) -> SparseMap:
    pairs = []
    for start in range(0, len(data), _PAIR_BYTES):
        if not data[start] or not data[start + 12]:
            break
        pairs.append((_decode_field(data[start : start + 12]), _decode_field(data[start + 12 : start + 24])))
    return pairs


def _decode_field(field: bytes) -> int:
    value = decode_number(field)
    if not 0 <= value <= MAX_SIZE_BYTES:
        raise HeaderFault(f"bad sparse map: number {value}")
    return value
