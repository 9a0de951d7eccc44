"""The protobuf wire format: varints and fields, as spans of a buffer; pure.

Source: protobuf.dev/programming-guides/encoding. Nothing is copied and nothing is allocated for a claimed length: a
length that exceeds its surroundings is an error first. Every fault is a :class:`WireError` with its place.
"""

from array import array
from collections.abc import Iterator

VARINT = 0
FIXED64 = 1
LENGTH_DELIMITED = 2
START_GROUP = 3
END_GROUP = 4
FIXED32 = 5

MAX_GROUP_DEPTH = 100
"""Nested unknown groups that are skipped; protobuf's own recursion limit."""

_VECTOR_BYTES = 256
"""Packed integers longer than this are decoded with numpy; below, its call overhead costs more than the loop."""

_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_ONE_BYTE = tuple(bytes((value,)) for value in range(128))


class WireError(Exception):
    """Bytes do not follow the wire format.

    Attributes:
        offset: bytes from the start of the buffer.
        reason: what is wrong there.
    """

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"{reason} at {offset}")


def encode_varint(value: int) -> bytes:
    """Encode a number of 0 to 2**64 - 1; a negative int64 is given as its two's complement."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def read_varint(data: bytes | memoryview, pos: int, end: int) -> tuple[int, int]:
    """Read a varint of at most 64 bits.

    Returns:
        The value, and where the next thing starts.

    Raises:
        WireError: the varint is longer than 10 bytes or does not end before ``end``.
    """
    value = 0
    for count in range(min(10, end - pos)):
        byte = data[pos + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            # Bits beyond 64 in the tenth byte are dropped, as protobuf does.
            return value & 0xFFFFFFFFFFFFFFFF, pos + count + 1
    raise WireError(pos, "varint is longer than 10 bytes" if end - pos >= 10 else "varint is cut")


def to_signed(value: int) -> int:
    """Read the 64 bits of a varint as an int64."""
    return value - (1 << 64) if value >> 63 else value


def read_packed_integers(data: bytes, start: int, end: int, into: "array[int]") -> None:
    """Append the packed varints in ``data[start:end]`` to an int64 array.

    Raises:
        WireError: a varint is cut or too long.
    """
    packed = data[start:end]
    if packed.isascii():  # each byte is one small number
        into.extend(packed)
    elif len(packed) > _VECTOR_BYTES:
        into.frombytes(_decode_varints(packed, start))
    else:
        pos = start
        while pos < end:
            number, pos = read_varint(data, pos, end)
            into.append(to_signed(number))


def iter_fields(data: bytes | memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field number, wire type, start, end) of each field of the message in ``data[start:end]``.

    The span is that of the field's value: the varint, the fixed bytes, the bytes behind the length, or the inside of
    a group.

    Raises:
        WireError: the bytes are no message.
    """
    pos = start
    while pos < end:
        at = pos
        tag = data[pos]
        # Nearly all fields of an Example: a tag of one byte and a length of one byte.
        if tag & 0x87 == LENGTH_DELIMITED and tag > 7 and pos + 1 < end and (length := data[pos + 1]) < 0x80:
            pos += 2 + length
            if pos > end:
                raise WireError(at + 1, f"field {tag >> 3} claims {length} bytes, {end - at - 2} are left")
            yield tag >> 3, LENGTH_DELIMITED, at + 2, pos
            continue
        number, wire_type, pos = _read_tag(data, pos, end)
        if wire_type == END_GROUP:
            raise WireError(at, f"group {number} ends but has not started")
        value, value_end, pos = _find_value(data, pos, end, number, wire_type)
        yield number, wire_type, value, value_end


def _read_tag(data: bytes | memoryview, pos: int, end: int) -> tuple[int, int, int]:
    tag, after = read_varint(data, pos, end)
    if tag > 0xFFFFFFFF or after - pos > 5 or tag < 8:
        raise WireError(pos, "field tag is out of range")
    return tag >> 3, tag & 7, after


def _find_value(data: bytes | memoryview, pos: int, end: int, number: int, wire_type: int) -> tuple[int, int, int]:
    """Give start and end of a field's value, and where the next field starts."""
    if wire_type == LENGTH_DELIMITED:
        length, start = read_varint(data, pos, end)
        if length > end - start:
            raise WireError(pos, f"field {number} claims {length} bytes, {end - start} are left")
        return start, start + length, start + length
    if wire_type == VARINT:
        after = read_varint(data, pos, end)[1]
        return pos, after, after
    if wire_type == START_GROUP:
        return _skip_group(data, pos, end, number)
    size = _FIXED_BYTES.get(wire_type)
    if size is None:
        raise WireError(pos, f"field {number} has the unknown wire type {wire_type}")
    if size > end - pos:
        raise WireError(pos, f"field {number} needs {size} bytes, {end - pos} are left")
    return pos, pos + size, pos + size


def _skip_group(data: bytes | memoryview, pos: int, end: int, number: int) -> tuple[int, int, int]:
    """Find the end of a group without recursion, so that nesting is bounded by the limit and not by the stack."""
    start = pos
    open_groups = [number]
    while open_groups:
        at = pos
        inner, wire_type, pos = _read_tag(data, pos, end)
        if wire_type == START_GROUP:
            open_groups.append(inner)
            if len(open_groups) > MAX_GROUP_DEPTH:
                raise WireError(at, f"groups are nested deeper than {MAX_GROUP_DEPTH}")
        elif wire_type == END_GROUP:
            if open_groups.pop() != inner:
                raise WireError(at, f"group {inner} ends but another one is open")
        else:
            pos = _find_value(data, pos, end, inner, wire_type)[2]
    return start, at, pos


def _decode_varints(packed: bytes, offset: int) -> bytes:
    """Decode many varints at once, to int64 in the machine's byte order."""
    import numpy as np  # noqa: PLC0415 - only long integer lists pay for the import

    raw = np.frombuffer(packed, dtype=np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if packed[-1] >= 0x80:
        raise WireError(offset + (int(ends[-1]) + 1 if len(ends) else 0), "varint is cut")
    starts = np.concatenate((np.zeros(1, dtype=ends.dtype), ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > 10:
        raise WireError(offset + int(starts[int(lengths.argmax())]), "varint is longer than 10 bytes")
    values = (raw[starts] & 0x7F).astype(np.uint64)
    for count in range(1, longest):
        longer = np.flatnonzero(lengths > count)
        values[longer] |= (raw[starts[longer] + count] & 0x7F).astype(np.uint64) << np.uint64(7 * count)
    return values.tobytes()
