"""A prefix of objects as a source: what lies below ``s3://bucket/data/train`` becomes members.

Rules:
    * ``data/train`` means the objects below ``data/train/``, or exactly the object of that name; never those of
      ``data/train-extra``.
    * Folder markers (empty objects whose key ends in ``/``) are left out and counted; other empty objects are kept.
    * One listing. Each object must still be the listed version when it is read: its size and ETag are compared.
    * The packer's reading threads bound how many objects are asked for at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from packer.locations import without_credentials
from packer.sources.files import FoundFiles, SkipReason, Skips, SourceFiles
from packer.sources.names import Globs, NameFilter, is_plain_path, leftover_path_reason, raise_odd_paths
from packer.sources.object_store import ObjectStore, StoredObject, ask, open_store
from packer.sources.origin import PIECE_BYTES
from shards.digests import crc32c
from shards.errors import SourceChangedError, SourceError, printable

RANGE_BYTES = 8 * PIECE_BYTES
"""Bigger objects are read in ranges of this size, which bounds memory."""

_CHECK_EVERY = 1000
_HADOOP_MARKER = "_$folder$"
_FILES_OF_MANY = (".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2", ".zip", ".parquet", ".arrow", ".csv")


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """Objects below a prefix; see :class:`packer.sources.source.Source`."""

    url: str
    globs: Globs
    kind = "objects"

    def scan(self, check: Callable[[], None]) -> FoundFiles:
        """List the prefix once."""
        store, key = open_store(self.url)
        shown = without_credentials(self.url)
        names = NameFilter(self.globs)
        files, skips = SourceFiles(), Skips()
        locators: list[bytes] = []
        odd: list[str] = []
        try:
            for count, (name, found) in enumerate(_named_objects(store, key, self.url)):
                if count % _CHECK_EVERY == 0:
                    check()
                path = name.encode("utf-8", "surrogateescape")
                if not found.size and (not name or name.endswith(("/", _HADOOP_MARKER))):
                    skips.add(SkipReason.FOLDER_MARKER, path or b"/")
                elif not is_plain_path(path):
                    odd.append(name)
                elif (reason := leftover_path_reason(path)) is not None:
                    skips.add(reason, path)
                elif not names.admits_below(path):
                    skips.add(SkipReason.EXCLUDED, path)
                else:
                    files.append(path, found.size, found.stamp)
                    locators.append(f"{found.tag}\0{found.key}".encode("utf-8", "surrogateescape"))
        except FileNotFoundError as error:
            raise SourceError(f"there is no {printable(shown)}; check the URL") from error
        raise_odd_paths(odd, shown)
        if not len(files) and not skips.total:
            raise SourceError(f"nothing matches {printable(shown)}; check the URL")
        names.raise_unused()
        files.locators = locators
        files.sort()
        return FoundFiles(files, skips, 0, ObjectFiles(self.url))


def _named_objects(store: ObjectStore, key: str, url: str) -> Iterator[tuple[str, StoredObject]]:
    """Objects that a URL means, with their names below it.

    Raises:
        SourceError: the URL means both an object and a prefix, or an object that holds many files.
        FileNotFoundError: there is no such bucket.
    """
    shown = printable(without_credentials(url))
    prefix = f"{key.rstrip('/')}/" if key.strip("/") else key
    single = None if url.endswith("/") else ask(lambda: store.find_object(key.rstrip("/")), key)
    if single is not None and not single.size:
        # an empty object of the folder's name is a marker, too, if anything lies below
        single = None if next(store.list_below(prefix), None) is not None else single
    if single is None:
        for found in store.list_below(prefix):
            yield found.key[len(prefix) :], found
        return
    if next(store.list_below(prefix), None) is not None:
        raise SourceError(f"{shown} is an object, and objects lie below it; for those, write {shown}/ with a slash")
    if single.key.lower().endswith(_FILES_OF_MANY):
        raise SourceError(
            f"{shown} is one object that holds many files; copy it to a disk and pack it from there, "
            "archives and tables are not read from an object store"
        )
    yield single.key.rpartition("/")[2], single


@dataclass(frozen=True, slots=True)
class ObjectFiles:
    """Where the objects lie; see :class:`packer.sources.origin.Origin`."""

    url: str

    def local_paths(self) -> tuple[bytes, ...]:
        """None."""
        return ()

    def open_reader(self) -> "ObjectReader":
        """Connections are made when first needed."""
        return ObjectReader(open_store(self.url)[0])


class ObjectReader:
    """Reads objects; see :class:`packer.sources.origin.MemberReader`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def close(self) -> None:
        """Do nothing: connections belong to the driver, which shares them."""

    def read_into(self, locator: bytes, size: int, stamp: int, target: memoryview, offset: int) -> int:
        """Read a whole object into a place of a buffer."""
        crc = 0
        for piece in self.pieces(locator, size, stamp):
            target[offset : offset + len(piece)] = piece
            offset += len(piece)
            crc = crc32c(piece, crc)
        return crc

    def pieces(self, locator: bytes, size: int, stamp: int) -> Iterator[bytes]:
        """Read an object in ranges."""
        tag, _, key = locator.decode("utf-8", "surrogateescape").partition("\0")
        planned = _describe(size, tag)
        for start in range(0, max(size, 1), RANGE_BYTES):
            end = min(start + RANGE_BYTES, size)

            def read(start: int = start, end: int = end) -> tuple[bytes, str]:
                return self._store.read_range(key, start, end)

            try:
                data, found_tag = ask(read, key)
            except FileNotFoundError as error:
                raise SourceChangedError(key, planned, "no such object") from error
            if found_tag != tag:
                raise SourceChangedError(key, planned, f"an object with the tag {printable(found_tag)}")
            if len(data) != end - start:
                raise SourceChangedError(key, planned, f"{len(data)} bytes at byte offset {start}")
            yield data


def _describe(size: int, tag: str) -> str:
    return f"{size} bytes with the tag {printable(tag)}" if tag else f"{size} bytes"
