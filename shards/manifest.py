"""The manifest of a dataset: every shard with its size, digest and sample count, and the dataset id over them.

``manifest.json`` is written last: where it exists under its final name, the dataset is complete. Its *dataset id* is
the BLAKE3 of the canonical content (:func:`canonical_content`): names, sizes, digests and counts of the shards, split
by split in order, and the classes. Paths, dates, options and indexes do not enter: the same samples packed the same way
have the same id whenever and wherever that was done.

Whatever a manifest holds that this release does not know is kept and written back, at every level, as long as the
major version of the format is the same. Everything else is refused with the JSON path of the fault.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shards.digests import hash_bytes
from shards.errors import ManifestFormatError, UnsupportedVersionError
from shards.manifest_entries import ExtensionEntry, ShardEntry, SplitEntry, check_extra, read_each
from shards.names import check_distinct
from shards.strict_json import JsonError, JsonFields, JsonValue, check_json, kind_of, parse_json, render_json

__all__ = ["FORMAT_VERSION", "MANIFEST_NAME", "ExtensionEntry", "Manifest", "ShardEntry", "SplitEntry"]

MANIFEST_NAME = "manifest.json"
FORMAT_VERSION = "1.0"
"""``major.minor`` that this release writes. A minor step only adds fields that older releases may ignore."""

FORMAT_MAJOR = 1

MAX_MANIFEST_BYTES = 512 * 1024 * 1024
"""About a million shards; bounds the memory that a wrong file under this name can take."""

MAX_BLOCK_BYTES = 64 * 1024**2
"""Largest block size accepted: a stager holds several blocks in memory, and a manifest comes from elsewhere."""

_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")
_FORMAT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MANIFEST_FIELDS = (
    "format_version",
    "dataset_id",
    "shard_format",
    "block_bytes",
    "classes",
    "splits",
    "packer",
    "source",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A whole dataset. A value that is not allowed raises ``ValueError`` with the JSON path of the field."""

    format_version: str = FORMAT_VERSION
    shard_format: str
    """Name in :data:`shards.formats.FORMATS`."""
    block_bytes: int
    """Size of the blocks whose digests the indexes hold."""
    splits: tuple[SplitEntry, ...]
    classes: tuple[str, ...] = ()
    """Class names in the order of their numbers; empty when the dataset has no classes."""
    packer: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)
    """Options of the packer, for people."""
    source: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)
    """Where the samples came from, for people."""
    extra: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)
    dataset_id: str = field(init=False, repr=False)
    """``blake3:hex`` of :func:`canonical_content`."""

    def __post_init__(self) -> None:
        version = _VERSION.fullmatch(self.format_version)
        if version is None or int(version[1]) != FORMAT_MAJOR:
            raise JsonError("format_version", f"expected {FORMAT_MAJOR}.N, found {self.format_version!r}")
        if _FORMAT_NAME.fullmatch(self.shard_format) is None:  # every program prints it
            raise JsonError("shard_format", f"{self.shard_format[:80]!r} cannot name a format")
        if not 1 <= self.block_bytes <= MAX_BLOCK_BYTES:
            raise JsonError("block_bytes", f"must lie between 1 and {MAX_BLOCK_BYTES}, is {self.block_bytes}")
        check_distinct((split.name, f"splits[{place}].name") for place, split in enumerate(self.splits))
        check_distinct(self._file_names())
        if not any(split.shards for split in self.splits):
            raise JsonError("splits", "name no shard at all")
        if len(set(self.classes)) != len(self.classes) or "" in self.classes:
            raise JsonError("classes", "holds an empty name, or one twice")
        for name in ("packer", "source"):
            check_json(getattr(self, name), name)
        check_extra(self.extra, _MANIFEST_FIELDS)
        object.__setattr__(self, "dataset_id", hash_bytes(canonical_content(self)))

    @property
    def num_samples(self) -> int:
        """Samples of all splits."""
        return sum(split.num_samples for split in self.splits)

    @property
    def size_bytes(self) -> int:
        """Bytes of all shards, without indexes."""
        return sum(split.size_bytes for split in self.splits)

    @property
    def num_shards(self) -> int:
        """Shards of all splits."""
        return sum(len(split.shards) for split in self.splits)

    def shards(self) -> Iterator[tuple[SplitEntry, ShardEntry]]:
        """Every shard with its split, in order."""
        for split in self.splits:
            for shard in split.shards:
                yield split, shard

    def split(self, name: str) -> SplitEntry:
        """The split of that name.

        Raises:
            ValueError: there is none; the message lists those there are.
        """
        for split in self.splits:
            if split.name == name:
                return split
        raise ValueError(f"no split {name!r}; the dataset has: {', '.join(split.name for split in self.splits)}")

    def to_json(self) -> bytes:
        """The file: one line a shard, the same bytes for the same value."""
        value: dict[str, JsonValue] = {
            "format_version": self.format_version,
            "dataset_id": self.dataset_id,
            "shard_format": self.shard_format,
            "block_bytes": self.block_bytes,
            "classes": self.classes,
            "splits": [split.as_json() for split in self.splits],
            "packer": self.packer,
            "source": self.source,
            **self.extra,
        }
        return render_json(value).encode("ascii") + b"\n"

    @classmethod
    def from_json(cls, data: bytes, *, name: str) -> "Manifest":
        """Read the file.

        Args:
            data: the whole file.
            name: what errors call it.

        Raises:
            ManifestFormatError: it is damaged, cut, names something it must not, or does not add up.
            UnsupportedVersionError: a newer major version wrote it.
        """
        try:
            fields = JsonFields(parse_json(data), "")
            version = fields.string("format_version")
            parts = _VERSION.fullmatch(version)
            if parts is not None and int(parts[1]) > FORMAT_MAJOR:
                raise UnsupportedVersionError(name, version, FORMAT_VERSION)
            return cls._read(fields, version)
        except JsonError as error:
            raise ManifestFormatError(name, None, str(error)) from error

    @classmethod
    def _read(cls, fields: JsonFields, version: str) -> "Manifest":
        claimed_id = fields.string("dataset_id")
        classes = []
        for place, value in enumerate(fields.array("classes")):
            if not isinstance(value, str):
                raise JsonError(f"classes[{place}]", f"expected a string, found {kind_of(value)}")
            classes.append(value)
        manifest = cls(
            format_version=version,
            shard_format=fields.string("shard_format"),
            block_bytes=fields.count("block_bytes"),
            splits=read_each(fields, "splits", SplitEntry.read),
            classes=tuple(classes),
            packer=fields.object("packer"),
            source=fields.object("source"),
            extra=fields.rest(),
        )
        if manifest.dataset_id != claimed_id:
            raise JsonError(
                "dataset_id", f"is {claimed_id[:80]!r}, but the content has {manifest.dataset_id}: the file was altered"
            )
        return manifest

    def _file_names(self) -> Iterator[tuple[str, str]]:
        for split_place, split in enumerate(self.splits):
            for place, shard in enumerate(split.shards):
                path = f"splits[{split_place}].shards[{place}]"
                yield shard.name, f"{path}.name"
                yield shard.index_name, f"{path}.index_name"


def canonical_content(manifest: Manifest) -> bytes:
    """What the dataset id is made from: JSON with sorted keys, no spaces, ASCII only."""
    content = {
        "block_bytes": manifest.block_bytes,
        "classes": manifest.classes,
        "format_major_version": FORMAT_MAJOR,
        "shard_format": manifest.shard_format,
        "splits": [
            {
                "name": split.name,
                "shards": [
                    {
                        "digest": shard.digest,
                        "name": shard.name,
                        "num_samples": shard.num_samples,
                        "size_bytes": shard.size_bytes,
                    }
                    for shard in split.shards
                ],
            }
            for split in manifest.splits
        ],
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode(
        "ascii"
    )
