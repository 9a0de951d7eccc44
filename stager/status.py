"""The status file of a staged dataset, ``.stage/status.json``: what was committed and when, as a value; pure.

It is a memory, not a proof. A status that is damaged, or lost, or lacks a file costs hashing that file again and
nothing else, so reading never fails: what cannot be understood is left out.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shards.digests import is_digest
from shards.manifest import Manifest
from stager.plan import FileRecord, ObservedFile

STATUS_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetStatus:
    """What the stager wrote down about one dataset of the cache."""

    source: str
    """Where it was staged from last."""
    num_shards: int
    size_bytes: int
    """Shards only, as in the manifest."""
    num_samples_by_split: Mapping[str, int] = field(default_factory=dict)
    records: Mapping[str, FileRecord] = field(default_factory=dict)
    """Committed files by name, indexes included."""

    def with_records(self, records: Mapping[str, FileRecord]) -> "DatasetStatus":
        """Give the status after more files were committed; the newer record of a file counts."""
        return replace(self, records={**self.records, **records})

    def without(self, names: Iterable[str]) -> "DatasetStatus":
        """Give the status after files went."""
        gone = frozenset(names)
        return replace(self, records={name: record for name, record in self.records.items() if name not in gone})

    def to_json(self) -> bytes:
        """Encode; the same status gives the same bytes."""
        document = {
            "version": STATUS_VERSION,
            "source": self.source,
            "num_shards": self.num_shards,
            "size_bytes": self.size_bytes,
            "num_samples_by_split": dict(self.num_samples_by_split),
            "files": {
                name: {
                    "digest": record.digest,
                    "size_bytes": record.observed.size_bytes,
                    "mtime_ns": record.observed.mtime_ns,
                    "inode": record.observed.inode,
                }
                for name, record in self.records.items()
            },
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> "DatasetStatus | None":
        """Decode; None when this is no status of a version that is known here."""
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or document.get("version") != STATUS_VERSION:
            return None
        files = document.get("files")
        splits = document.get("num_samples_by_split")
        return cls(
            source=str(document.get("source", "")),
            num_shards=_number(document.get("num_shards")),
            size_bytes=_number(document.get("size_bytes")),
            num_samples_by_split={name: _number(value) for name, value in splits.items()}
            if isinstance(splits, dict)
            else {},
            records={name: record for name, value in files.items() if (record := _record(value)) is not None}
            if isinstance(files, dict)
            else {},
        )

    @classmethod
    def of_manifest(cls, manifest: Manifest, source: str) -> "DatasetStatus":
        """Give the status of a dataset of which nothing is staged yet."""
        return cls(
            source=source,
            num_shards=manifest.num_shards,
            size_bytes=manifest.size_bytes,
            num_samples_by_split={split.name: split.num_samples for split in manifest.splits},
        )


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _record(value: Any) -> FileRecord | None:
    match value:
        case {"digest": str(digest), "size_bytes": int(size_bytes), "mtime_ns": int(mtime_ns), "inode": int(inode)}:
            return FileRecord(digest, ObservedFile(size_bytes, mtime_ns, inode)) if is_digest(digest) else None
        case _:
            return None
