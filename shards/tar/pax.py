r"""Decodes PAX extended headers into records; pure.

The format is in POSIX.1-2017 ``pax`` ("pax Extended Header"): each record is ``"%d %s=%s\n" % (length, keyword,
value)`` with the length of the whole record in decimal. A record ends by its length, so values may contain
newlines and equal signs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shards.tar.header import MAX_SIZE_BYTES, HeaderFault

PaxRecords = Sequence[tuple[bytes, bytes]]
"""(keyword, value) in file order. Repeated keywords keep their order: sparse format 0.0 is made of them."""

_MAX_LENGTH_DIGITS = 10
_MAX_NUMBER_DIGITS = 20
_RELEVANT = frozenset({b"path", b"linkpath", b"size"})


def parse_records(data: bytes) -> PaxRecords:
    """Split the data of an extended header into its records.

    Args:
        data: the data of an ``x``, ``X`` or ``g`` entry, without the padding. Zero bytes at the end are taken:
            some writers count their padding.

    Raises:
        HeaderFault: a record's length is wrong, or a record has no keyword. Nothing is guessed, since a name or
            a size could be lost with it.
    """
    records = []
    start = 0
    while start < len(data) and data[start]:
        space = data.find(b" ", start, start + _MAX_LENGTH_DIGITS + 1)
        digits = data[start:space] if space > start else b""
        if not digits.isdigit():
            raise HeaderFault(f"bad PAX record at byte {start} of the header: no length, {data[start : start + 20]!r}")
        end = start + int(digits)
        # The shortest record is "5 k=\n"; this also keeps the walk going forward.
        if end < space + 3 or end > len(data) or data[end - 1 : end] != b"\n":
            raise HeaderFault(
                f"bad PAX record at byte {start} of the header: length {int(digits)} does not end at a newline"
            )
        keyword, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not keyword or not equals:
            raise HeaderFault(f"bad PAX record at byte {start} of the header: no keyword=value")
        records.append((keyword, value))
        start = end
    if data[start:].strip(b"\0"):
        raise HeaderFault(f"bad PAX record at byte {start} of the header: bytes after a zero byte")
    return records


def keep_relevant(records: PaxRecords) -> PaxRecords:
    """Keep the records that say something about name, link target, size or holes. Times and owners do not matter."""
    return [record for record in records if record[0] in _RELEVANT or record[0].startswith(b"GNU.sparse.")]


def last_value(records: PaxRecords, keyword: bytes) -> bytes | None:
    """Give the value that counts for a keyword: the last one; an empty value takes the keyword back."""
    found = None
    for name, value in records:
        if name == keyword:
            found = value
    return found or None


def last_number(records: PaxRecords, keyword: bytes) -> int | None:
    """Give the decimal number that counts for a keyword, at least 0.

    Raises:
        HeaderFault: it is no such number.
    """
    value = last_value(records, keyword)
    return None if value is None else decode_decimal(value, keyword.decode("ascii", "backslashreplace"))


def decode_decimal(text: bytes, what: str) -> int:
    """Decode a decimal number between 0 and the largest file size.

    Raises:
        HeaderFault: it is none.
    """
    if not text.isdigit() or len(text) > _MAX_NUMBER_DIGITS or int(text) > MAX_SIZE_BYTES:
        raise HeaderFault(f"bad number in PAX {what}: {text[:_MAX_NUMBER_DIGITS]!r}")
    return int(text)


@dataclass(slots=True)
class Extension:
    """What the entries before a member say about it."""

    records: PaxRecords = ()
    long_name: bytes | None = None
    long_link: bytes | None = None
    is_empty: bool = True
    """Whether there was no such entry."""

    @property
    def has_nothing_to_say(self) -> bool:
        """Whether the member is all that its own header says."""
        return not self.records and self.long_name is None and self.long_link is None

    def text(self, keyword: bytes, long_text: bytes | None) -> bytes | None:
        """Give a name: of the GNU long-name entry, else of the extended header, else None.

        Raises:
            HeaderFault: both are there and differ. Readers disagree on which one counts.
        """
        value = last_value(self.records, keyword)
        if value is not None and long_text is not None and value != long_text:
            raise HeaderFault(f"a long-name entry and an extended header give two values for {keyword.decode()}")
        return value if long_text is None else long_text
