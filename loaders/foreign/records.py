"""What is known of foreign shards, kept in a directory: a record and an index for each, found by the shard's path.

::

    <directory>/<digest of the path>.json          the record
    <directory>/<digest of the path>.index.arrow   the index, as packed datasets have it
    <directory>/<digest of the path>.shard         the shard itself, decompressed, when it lies compressed

A record counts as long as the shard has the size and the modification time that it had when it was read. Records are
written whole or not at all and may be removed at any time: the next opening makes them again.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from shards.digests import hash_bytes
from shards.errors import FormatError
from shards.files import read_regular_file, write_file
from shards.strict_json import JsonError, JsonFields, JsonValue, parse_json, render_json

RECORD_VERSION = 1

_MAX_RECORD_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What tells one state of a file from another without reading it."""

    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one reading of a foreign shard found."""

    stamp: Stamp
    """Of the file as it lies there, compressed or not."""
    format_name: str
    is_compressed: bool
    size_bytes: int
    """Of the shard, decompressed."""
    digest: str
    """Of the shard, decompressed; empty when it was not hashed."""
    num_samples: int
    index_size_bytes: int
    index_digest: str
    extensions: Mapping[str, tuple[int, int]]
    """Extension → (members, bytes)."""
    num_keyless: int
    """Members that belong to no sample because their name gives no key."""

    def to_json(self) -> bytes:
        """Give the record as a JSON document."""
        value: dict[str, JsonValue] = {
            "version": RECORD_VERSION,
            "stamp": {"size_bytes": self.stamp.size_bytes, "mtime_ns": str(self.stamp.mtime_ns)},
            "format": self.format_name,
            "is_compressed": self.is_compressed,
            "size_bytes": self.size_bytes,
            "digest": self.digest,
            "num_samples": self.num_samples,
            "index_size_bytes": self.index_size_bytes,
            "index_digest": self.index_digest,
            "extensions": [
                {
                    "extension": extension.encode("utf-8", "surrogateescape").hex(),
                    "num_members": count,
                    "size_bytes": size,
                }
                for extension, (count, size) in self.extensions.items()
            ],
            "num_keyless": self.num_keyless,
        }
        return render_json(value).encode()

    @staticmethod
    def from_json(data: bytes) -> "Record":
        """Read a record.

        Raises:
            JsonError: it is not one that this release knows.
        """
        fields = JsonFields(parse_json(data), "")
        fields.expect("version", RECORD_VERSION)
        stamp = JsonFields(fields.take("stamp"), "stamp")
        extensions = {}
        for place, entry in enumerate(fields.array("extensions")):
            one = JsonFields(entry, f"extensions[{place}]")
            name = _text_of(one.string("extension"), one.at("extension"))
            extensions[name] = (one.count("num_members"), one.count("size_bytes"))
        return Record(
            stamp=Stamp(size_bytes=stamp.count("size_bytes"), mtime_ns=_integer_of(stamp)),
            format_name=fields.string("format"),
            is_compressed=fields.boolean("is_compressed"),
            size_bytes=fields.count("size_bytes"),
            digest=fields.string("digest"),
            num_samples=fields.count("num_samples"),
            index_size_bytes=fields.count("index_size_bytes"),
            index_digest=fields.string("index_digest"),
            extensions=extensions,
            num_keyless=fields.count("num_keyless"),
        )


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where the record of one shard lies."""

    stem: str

    @property
    def record_path(self) -> str:
        """The record."""
        return f"{self.stem}.json"

    @property
    def index_path(self) -> str:
        """The index."""
        return f"{self.stem}.index.arrow"

    @property
    def shard_path(self) -> str:
        """The decompressed shard; there only for compressed ones."""
        return f"{self.stem}.shard"

    @property
    def lock_path(self) -> str:
        """Locked by who makes the record."""
        return f"{self.stem}.lock"


def place_of(directory: str, path: str) -> RecordPlace:
    """Give where the record of a shard lies.

    Args:
        directory: of all records.
        path: absolute path of the shard, links resolved.
    """
    digest = hash_bytes(os.fsencode(path)).partition(":")[2]
    return RecordPlace(os.path.join(directory, digest[:40]))


def stamp_of(path: str) -> Stamp:
    """Observe a shard.

    Raises:
        OSError: it cannot be.
    """
    status = os.stat(path)
    return Stamp(size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)


def read_record(place: RecordPlace, stamp: Stamp, *, is_hashed: bool) -> Record | None:
    """Read a record; None when there is none of that state, or when what belongs to it is not there.

    Args:
        place: where it lies.
        stamp: of the shard now.
        is_hashed: whether one without digests is of no use.
    """
    try:
        record = Record.from_json(read_regular_file(place.record_path, max_bytes=_MAX_RECORD_BYTES))
        if record.stamp != stamp or (is_hashed and not record.digest):
            return None
        if os.stat(place.index_path).st_size != record.index_size_bytes:
            return None
        if record.is_compressed and os.stat(place.shard_path).st_size != record.size_bytes:
            return None
    except (OSError, FormatError, JsonError):
        return None
    return record


def write_record(place: RecordPlace, record: Record, index: bytes) -> None:
    """Keep a record; the index first, so that a record never speaks of one that is not there.

    Raises:
        OSError: not possible.
    """
    write_file(place.index_path, index)
    write_file(place.record_path, record.to_json())


def _text_of(digits: str, path: str) -> str:
    try:
        return bytes.fromhex(digits).decode("utf-8", "surrogateescape")
    except ValueError:
        raise JsonError(path, "is not hexadecimal") from None


def _integer_of(stamp: JsonFields) -> int:
    text = stamp.string("mtime_ns")
    try:
        return int(text)
    except ValueError:
        raise JsonError(stamp.at("mtime_ns"), "is not an integer") from None
