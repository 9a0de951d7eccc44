"""Reads one object in ranges, with one window read ahead."""

from typing import Any, Self

from packer.stores.object_errors import explain_errors
from shards.errors import RemoteError, printable


class ObjectReader:
    """Reads ranges of one object, with one window read ahead."""

    def __init__(self, filesystem: Any, path: str, url: str, size_bytes: int, window_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._fs = filesystem
        self._path = path
        self._url = url
        self._window_bytes = window_bytes
        self._window = b""
        self._window_start = 0

    def read_at(self, num_bytes: int, offset: int) -> bytes:
        """Read a range; fewer bytes only at the end of the object."""
        end = min(offset + num_bytes, self.size_bytes)
        if offset >= end:
            return b""
        start = offset - self._window_start
        if start >= 0 and end - self._window_start <= len(self._window):
            return self._window[start : end - self._window_start]
        if num_bytes >= self._window_bytes:
            return self._fetch(offset, end)
        self._window = self._fetch(offset, min(offset + self._window_bytes, self.size_bytes))
        self._window_start = offset
        return self._window[: end - offset]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._window = b""

    def _fetch(self, start: int, end: int) -> bytes:
        with explain_errors(self._url):
            data: bytes = self._fs.cat_file(self._path, start=start, end=end)
        if len(data) != end - start:
            raise RemoteError(
                f"{printable(self._url)} gave {len(data)} bytes instead of {end - start} from byte {start}; try again"
            )
        return data
