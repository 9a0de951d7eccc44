"""A dataset in an object store, through whatever driver fsspec has for the URL.

Rules:
    * A shard is one multipart upload: its parts are invisible until the upload is completed, and an abandoned one is
      aborted. What a killed process leaves is found and aborted by :mod:`packer.stores.uploads`. Drivers without such
      uploads write under a hidden name and rename.
    * Memory: the part being filled and the part being sent, whatever the size of the shard.
    * No listing is cached, no byte is cached but what was read ahead in one open file.
    * Endpoint, region and credentials come from the driver's own settings (for S3 ``AWS_ENDPOINT_URL``, ``AWS_PROFILE``
      and so on); nothing of them is shown or stored.
"""

import contextlib
import errno
import os
import re
import secrets
from typing import TYPE_CHECKING, Any, Self

import fsspec

from packer.locations import scheme_of
from packer.stores.object_errors import explain_errors
from packer.stores.object_reader import ObjectReader
from packer.stores.pending import MultipartUpload, StagedUpload, Upload
from packer.stores.s3_upload import S3Upload, put_object
from packer.stores.uploads import is_s3, list_uploads
from shards.errors import RemoteError, RemoteMissingError, SizeMismatchError, printable
from shards.index import ShardIndex
from shards.ranges import READ_BYTES

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PART_BYTES = 16 * 1024 * 1024
"""Of an upload. 10 000 parts of it, the most that S3 takes, are 156 GiB; bigger shards have bigger parts."""

MAX_PARTS = 10_000

PARTIAL_PREFIX = ".pack/partial/"
"""Where drivers that cannot keep a file invisible write it, until it is moved to its name; each writer its own."""

_HOLDING_BACK = frozenset({"gs", "gcs", "abfs", "abfss", "az", "adl"})
"""Other drivers whose files are uploads that stay invisible until they are committed."""

_S3_SCHEMES = frozenset({"s3", "s3a"})

_SECRET = re.compile(r"//[^/@]*@")


class ObjectStore:
    """The objects below one URL; see :class:`packer.stores.base.DatasetStore`.

    Args:
        url: of the dataset; with a driver that fsspec finds.

    Raises:
        RemoteError: there is no such driver, or it refuses its settings.
    """

    def __init__(self, url: str) -> None:
        self.location = _SECRET.sub("//", url.rstrip("/"))
        self._fs, self._root = _open_filesystem(url.rstrip("/"), self.location)

    @property
    def filesystem(self) -> Any:
        """The fsspec driver."""
        return self._fs

    @property
    def root(self) -> str:
        """Where the dataset lies, as the driver calls it."""
        return self._root

    def size_of(self, name: str) -> int | None:
        """Size of an object, or None when it is not there."""
        info = self._info(name)
        return None if info is None else int(info["size"])

    def version_of(self, name: str) -> str | None:
        """The ETag, where the store gives one."""
        info = self._info(name) or {}
        tag = info.get("ETag") or info.get("etag")
        return str(tag) if tag else None

    def read_file(self, name: str) -> bytes:
        """Read a whole object."""
        with explain_errors(self._url(name)):
            data: bytes = self._fs.cat_file(self._path(name))
            return data

    def open_index(self, name: str) -> ShardIndex:
        """Read the index of a shard into memory."""
        return ShardIndex.from_bytes(self.read_file(name), name=name)

    def open_reader(self, name: str, *, is_sequential: bool = True) -> ObjectReader:
        """Open an object for reads in ranges."""
        size_bytes = self.size_of(name)
        if size_bytes is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._url(name))
        window_bytes = READ_BYTES if is_sequential else 0
        return ObjectReader(self._fs, self._path(name), self._url(name), size_bytes, window_bytes)

    def list_names(self) -> list[str]:
        """Names of all objects, ascending, without hidden ones and folder markers."""
        return [name for name in self.list_all_names() if not any(part.startswith(".") for part in name.split("/"))]

    def list_all_names(self) -> list[str]:
        """Names of all objects, ascending, hidden ones too."""
        prefix = self._root.rstrip("/") + "/"
        try:
            with explain_errors(self.location):
                found = self._fs.find(self._root)
        except FileNotFoundError:
            return []
        return sorted(path.removeprefix(prefix) for path in found if path.startswith(prefix) and not path.endswith("/"))

    def list_leftovers(self) -> list[str]:
        """Names whose uploads were begun and not ended, where the driver can tell."""
        staged = [name for name in self.list_all_names() if name.startswith(PARTIAL_PREFIX)]
        return sorted({*staged, *(upload.name for upload in list_uploads(self._fs, self._root, self.location))})

    def create(self, name: str, size_bytes: int) -> "GrowingObject":
        """Begin an upload."""
        part_bytes = max(PART_BYTES, -(-size_bytes // MAX_PARTS))
        return GrowingObject(self, name, part_bytes)

    def open_upload(self, name: str, part_bytes: int) -> "Upload":
        """Open a file of the driver that stays invisible until it is committed."""
        url = self._url(name)
        try:
            with explain_errors(url):
                if is_s3(self._fs):
                    return S3Upload(self._fs, self._path(name), part_bytes)
                if not _HOLDING_BACK.isdisjoint(_protocols(self._fs)):
                    file = self._fs.open(self._path(name), "wb", block_size=part_bytes, autocommit=False)
                    return MultipartUpload(file)
                path = self._path(f"{PARTIAL_PREFIX}{name}.{secrets.token_hex(8)}")
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                return StagedUpload(self._fs, self._fs.open(path, "wb"), path, self._path(name))
        except FileNotFoundError as error:
            raise self._missing_place(error) from error

    def put(self, name: str, data: bytes) -> None:
        """Write a small object in one request."""
        try:
            with explain_errors(self._url(name)):
                if is_s3(self._fs):
                    put_object(self._fs, self._path(name), data)
                else:
                    self._fs.pipe_file(self._path(name), data)
        except FileNotFoundError as error:
            raise self._missing_place(error) from error

    def remove(self, name: str) -> None:
        """Remove an object; nothing happens when it is not there."""
        try:
            with explain_errors(self._url(name)):
                self._fs.rm_file(self._path(name))
        except FileNotFoundError:
            pass

    def url_of(self, name: str) -> str:
        """What messages call an object."""
        return self._url(name)

    def _info(self, name: str) -> dict[str, Any] | None:
        try:
            with explain_errors(self._url(name)):
                info: dict[str, Any] = self._fs.info(self._path(name))
        except FileNotFoundError:
            return None
        return info if info.get("type") == "file" else None

    def _missing_place(self, error: FileNotFoundError) -> RemoteMissingError:
        return RemoteMissingError(
            f"cannot write to {printable(self.location)}: {error.strerror}; "
            "does the bucket exist, and is it one of this endpoint?"
        )

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _url(self, name: str) -> str:
        return f"{self.location}/{name}"


class GrowingObject:
    """One upload; a context manager that aborts it unless it was committed."""

    def __init__(self, store: ObjectStore, name: str, part_bytes: int) -> None:
        self._store = store
        self._name = name
        self._url = store.url_of(name)
        self._part_bytes = part_bytes
        self._size_bytes = 0
        self._upload: Upload | None = store.open_upload(name, part_bytes)

    def write(self, data: "ReadableBuffer") -> None:
        """Append all of ``data``; never lets the driver gather more than one part."""
        if self._upload is None:
            raise ValueError("the upload has ended")
        with memoryview(data) as view, view.cast("B") as all_bytes, explain_errors(self._url):
            start = 0
            while start < len(all_bytes):
                room = self._part_bytes - self._size_bytes % self._part_bytes
                piece = all_bytes[start : start + room]
                self._upload.write(piece)
                start += len(piece)
                self._size_bytes += len(piece)

    def commit(self, expected_bytes: int) -> None:
        """Complete the upload: from then on the object is there."""
        if self._upload is None:
            raise ValueError("the upload has ended")
        if self._size_bytes != expected_bytes:
            raise SizeMismatchError(self._url, expected_bytes, self._size_bytes, "nothing was committed")
        try:
            with explain_errors(self._url):
                self._upload.commit()
        except FileNotFoundError:
            # a repeated request may find the upload gone because the first one had completed it
            if self._store.size_of(self._name) != expected_bytes:
                raise
        self._upload = None
        actual_bytes = self._store.size_of(self._name)
        if actual_bytes != expected_bytes:
            raise SizeMismatchError(self._url, expected_bytes, actual_bytes or 0, "the store lost part of the upload")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        upload, self._upload = self._upload, None
        if upload is not None:
            # the reason why it is abandoned matters more; the next run removes what is left
            with contextlib.suppress(RemoteError, FileNotFoundError), explain_errors(self._url):
                upload.discard()


def _protocols(filesystem: Any) -> set[str]:
    protocol = filesystem.protocol
    return {protocol} if isinstance(protocol, str) else set(protocol)


def _open_filesystem(url: str, shown: str) -> tuple[Any, str]:
    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme_of(url) in _S3_SCHEMES:
        # Ceph RGW refuses the trailing checksums that clients add over TLS; what is sent from here carries its MD5
        configured = fsspec.config.conf.get("s3", {}).get("config_kwargs", {})
        options["config_kwargs"] = {"request_checksum_calculation": "when_required", **configured}
    try:
        filesystem, root = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        advice = (
            "pip install 'shardferry[s3]'"
            if scheme_of(url) in _S3_SCHEMES
            else "the scheme needs a driver that fsspec knows"
        )
        raise RemoteError(f"cannot open {printable(shown)}: {error}; {advice}", is_transient=False) from error
    return filesystem, root
