"""The entries of a manifest: shard, extension and split; values that check themselves, to and from JSON.

A value that is not allowed raises :class:`shards.strict_json.JsonError` (a ``ValueError``) that names the field; while
a manifest is read, the path of the entry is put before it. Fields that this release does not know are kept in ``extra``
and written back after the known ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from shards.digests import is_digest
from shards.names import check_component, check_relative_name
from shards.strict_json import JsonError, JsonFields, JsonValue, check_count, check_json

_SHARD_FIELDS = ("name", "size_bytes", "digest", "num_samples", "index_name", "index_size_bytes", "index_digest")
_EXTENSION_FIELDS = ("num_present", "num_missing", "size_bytes")
_SPLIT_FIELDS = ("name", "num_samples", "size_bytes", "shards", "extensions")

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard of a dataset."""

    name: str
    """Relative to the directory of the manifest; also the shard's name wherever it is staged."""
    size_bytes: int
    digest: str
    """Shard digest, see :mod:`shards.digests`."""
    num_samples: int
    index_name: str
    """Relative to the directory of the manifest."""
    index_size_bytes: int
    index_digest: str
    """Digest of the whole index file."""
    extra: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)
    """Fields that this release does not know."""

    def __post_init__(self) -> None:
        check_relative_name(self.name, "name")
        check_relative_name(self.index_name, "index_name")
        for name in ("size_bytes", "num_samples", "index_size_bytes"):
            check_count(getattr(self, name), name)
        for name in ("digest", "index_digest"):
            _check_digest(getattr(self, name), name)
        check_extra(self.extra, _SHARD_FIELDS)

    @classmethod
    def read(cls, fields: JsonFields) -> "ShardEntry":
        """Take the entry out of a JSON object."""
        return cls(
            name=fields.string("name"),
            size_bytes=fields.count("size_bytes"),
            digest=fields.string("digest"),
            num_samples=fields.count("num_samples"),
            index_name=fields.string("index_name"),
            index_size_bytes=fields.count("index_size_bytes"),
            index_digest=fields.string("index_digest"),
            extra=fields.rest(),
        )

    def as_json(self) -> dict[str, JsonValue]:
        """The entry as a JSON object."""
        return {**{name: getattr(self, name) for name in _SHARD_FIELDS}, **self.extra}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionEntry:
    """What one split holds of one extension."""

    num_present: int
    """Samples that have a member of this extension."""
    num_missing: int
    """Samples that have none."""
    size_bytes: int
    """All such members together, without headers and padding."""
    extra: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in _EXTENSION_FIELDS:
            check_count(getattr(self, name), name)
        check_extra(self.extra, _EXTENSION_FIELDS)

    @classmethod
    def read(cls, fields: JsonFields) -> "ExtensionEntry":
        """Take the entry out of a JSON object."""
        num_present, num_missing, size_bytes = (fields.count(name) for name in _EXTENSION_FIELDS)
        return cls(num_present=num_present, num_missing=num_missing, size_bytes=size_bytes, extra=fields.rest())

    def as_json(self) -> dict[str, JsonValue]:
        """The entry as a JSON object."""
        return {**{name: getattr(self, name) for name in _EXTENSION_FIELDS}, **self.extra}


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitEntry:
    """One split: its shards in order, and their totals."""

    name: str
    num_samples: int
    size_bytes: int
    shards: tuple[ShardEntry, ...]
    extensions: Mapping[str, ExtensionEntry] = field(hash=False)
    """By extension; written in the order of the extensions' names."""
    extra: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_component(self.name, "name")
        for name in ("num_samples", "size_bytes"):
            total = sum(getattr(shard, name) for shard in self.shards)
            if getattr(self, name) != total:
                raise JsonError(name, f"is {getattr(self, name)}, but the shards add up to {total}")
            check_count(total, name)
        for extension, entry in self.extensions.items():
            if not extension:
                raise JsonError("extensions", "holds an empty extension")
            if entry.num_present + entry.num_missing != self.num_samples:
                found = f"{entry.num_present} present and {entry.num_missing} missing"
                raise JsonError(f"extensions.{extension}", f"{found}, but the split has {self.num_samples} samples")
        check_extra(self.extra, _SPLIT_FIELDS)

    @classmethod
    def read(cls, fields: JsonFields) -> "SplitEntry":
        """Take the entry out of a JSON object."""
        return cls(
            name=fields.string("name"),
            num_samples=fields.count("num_samples"),
            size_bytes=fields.count("size_bytes"),
            shards=read_each(fields, "shards", ShardEntry.read),
            extensions={
                extension: read_entry(value, f"{fields.at('extensions')}.{extension}", ExtensionEntry.read)
                for extension, value in fields.object("extensions").items()
            },
            extra=fields.rest(),
        )

    def as_json(self) -> dict[str, JsonValue]:
        """The entry as a JSON object, extensions in the order of their names."""
        return {
            "name": self.name,
            "num_samples": self.num_samples,
            "size_bytes": self.size_bytes,
            "shards": [shard.as_json() for shard in self.shards],
            "extensions": {extension: entry.as_json() for extension, entry in sorted(self.extensions.items())},
            **self.extra,
        }


def read_entry(value: JsonValue, path: str, read: Callable[[JsonFields], _Entry]) -> _Entry:
    """Read one entry at a JSON path; faults in it carry the whole path."""
    fields = JsonFields(value, path)
    try:
        return read(fields)
    except JsonError as error:
        if error.path.startswith(path):  # found while its JSON was taken apart: the path is whole already
            raise
        raise error.below(path) from error


def read_each(fields: JsonFields, name: str, read: Callable[[JsonFields], _Entry]) -> tuple[_Entry, ...]:
    """Read an array of entries."""
    path = fields.at(name)
    return tuple(read_entry(value, f"{path}[{place}]", read) for place, value in enumerate(fields.array(name)))


def check_extra(extra: Mapping[str, JsonValue], known: tuple[str, ...]) -> None:
    """Check that unknown fields can be written back and are not known ones.

    Raises:
        JsonError: they cannot, or one is.
    """
    for name in known:
        if name in extra:
            raise JsonError(name, "is a known field, it cannot be an extra one")
    check_json(extra, "")


def _check_digest(text: str, path: str) -> None:
    if not is_digest(text):
        raise JsonError(path, f"expected blake3: and 64 lower-case hex digits, found {text[:80]!r}")
