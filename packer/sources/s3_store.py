"""Objects of S3 (AWS, Ceph RGW …) through the client of s3fs: listed page by page, read with the ETag of what was read.

The file-like calls of s3fs would keep the whole listing in memory and not say which version they read.
"""

import functools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from botocore.exceptions import ClientError
from fsspec.asyn import sync
from s3fs import S3FileSystem
from s3fs.errors import translate_boto_error

from packer.sources.object_store import StoredObject, ask

_GONE = frozenset({"404", "NoSuchKey", "NoSuchBucket", "NotFound"})
_DENIED = frozenset({"403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"})


class S3Store:
    """See :class:`packer.sources.object_store.ObjectStore`."""

    def __init__(self, filesystem: S3FileSystem) -> None:
        self._filesystem = filesystem

    def find_object(self, key: str) -> StoredObject | None:
        """Ask for one object."""
        bucket, _, name = key.partition("/")
        if not name:
            return None
        try:
            head = self._call("head_object", Bucket=bucket, Key=name)
        except FileNotFoundError:
            return None
        return StoredObject(key, head["ContentLength"], head["ETag"])

    def list_below(self, prefix: str) -> Iterator[StoredObject]:
        """List page by page."""
        bucket, _, start = prefix.partition("/")
        arguments = {"Bucket": bucket, "Prefix": start}
        while True:
            page = ask(functools.partial(self._call, "list_objects_v2", **arguments), f"s3://{prefix}")
            for entry in page.get("Contents", ()):
                yield StoredObject(f"{bucket}/{entry['Key']}", entry["Size"], entry["ETag"])
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def read_range(self, key: str, start: int, end: int) -> tuple[bytes, str]:
        """Get a range; the answer says which version it is of."""
        bucket, _, name = key.partition("/")
        # a range of an empty object does not exist, and servers say so with an error
        wanted = {"Range": f"bytes={start}-{end - 1}"} if end > start else {}

        async def get(client: Any) -> tuple[bytes, str]:
            answer = await client.get_object(Bucket=bucket, Key=name, **wanted)
            async with answer["Body"] as body:
                return await body.read(), answer["ETag"]

        data, tag = self._run(get)
        return data, tag

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        async def call(client: Any) -> dict[str, Any]:
            answer: dict[str, Any] = await getattr(client, method)(**arguments)
            return answer

        found: dict[str, Any] = self._run(call)
        return found

    def _run(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await call(await self._filesystem.set_session())

        try:
            return sync(self._filesystem.loop, run)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _GONE:
                raise FileNotFoundError(str(error)) from error
            if code in _DENIED:
                raise PermissionError(str(error)) from error
            if code == "InvalidRange":  # the object is shorter than it was
                return b"", "shorter"
            raise translate_boto_error(error) from error
