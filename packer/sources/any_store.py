"""Objects behind any other driver of fsspec.

The interface has no listing page by page, and no read that says which version it read. So the listing is held in
memory, and the version is asked for after each read, which costs a second request.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from fsspec import AbstractFileSystem

from packer.sources.object_store import StoredObject, ask

_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "checksum", "generation", "version", "mtime", "LastModified")
_LATE_TAGS = ("last_modified", "updated", "modified", "created")


class AnyStore:
    """See :class:`packer.sources.object_store.ObjectStore`."""

    def __init__(self, filesystem: AbstractFileSystem) -> None:
        self._filesystem = filesystem

    def find_object(self, key: str) -> StoredObject | None:
        """Ask for one object."""
        try:
            info = self._filesystem.info(key)
        except FileNotFoundError:
            return None
        return _object(key, info) if info["type"] == "file" else None

    def list_below(self, prefix: str) -> Iterator[StoredObject]:
        """List at once."""
        found = ask(lambda: self._filesystem.find(prefix.rstrip("/"), detail=True), prefix)
        # a later request must not be answered from what was true now
        self._filesystem.invalidate_cache()
        for key, info in found.items():
            if key.startswith(prefix):
                yield _object(key, info)

    def read_range(self, key: str, start: int, end: int) -> tuple[bytes, str]:
        """Read a range, then ask for the version."""
        data = self._filesystem.cat_file(key, start, end) if end > start else self._filesystem.cat_file(key)
        return data, _object(key, self._filesystem.info(key)).tag


def _object(key: str, info: Mapping[str, Any]) -> StoredObject:
    found = next((info[name] for name in _TAGS + _LATE_TAGS if info.get(name)), "")
    # drivers give a time as a number in one call and as a date in another
    tag = repr(found.timestamp()) if isinstance(found, datetime) else str(found)
    return StoredObject(key, int(info.get("size") or 0), tag)
