"""Uploads to S3: small objects in one request, shards part by part.

The driver's own file objects hold four copies of a part at times. Here it is two while the pieces of a part are
joined, and one while it is on its way: the driver shares ``bytes``, but copies everything else. Each part carries its
MD5, which the server checks: Ceph RGW ignores the newer checksums.
"""

import base64
import hashlib
from typing import Any


class S3Upload:
    """An upload in parts; completed, or aborted and forgotten.

    Args:
        filesystem: driver of s3fs.
        path: of the object, as the driver calls it.
        part_bytes: of each part but the last; S3 wants 5 MiB at least.
    """

    def __init__(self, filesystem: Any, path: str, part_bytes: int) -> None:
        self._fs = filesystem
        bucket, key, _ = filesystem.split_path(path)
        self._target = {"Bucket": bucket, "Key": key}
        self._part_bytes = part_bytes
        self._part = bytearray(part_bytes)  # one for all parts; its memory is taken as it is filled
        self._used = 0
        self._parts: list[dict[str, str | int]] = []
        self._upload_id: str = filesystem.call_s3("create_multipart_upload", **self._target)["UploadId"]

    def write(self, piece: memoryview) -> None:
        """Append bytes, at most what is missing from the current part."""
        self._part[self._used : self._used + len(piece)] = piece
        self._used += len(piece)
        if self._used >= self._part_bytes:
            self._send()

    def commit(self) -> None:
        """Send the last part and complete the upload."""
        if self._used or not self._parts:
            self._send()
        self._fs.call_s3(
            "complete_multipart_upload",
            **self._target,
            UploadId=self._upload_id,
            MultipartUpload={"Parts": self._parts},
        )

    def discard(self) -> None:
        """Abort the upload."""
        self._fs.call_s3("abort_multipart_upload", **self._target, UploadId=self._upload_id)

    def _send(self) -> None:
        number = len(self._parts) + 1
        # a whole part is sent from where it lies: a driver makes copies of its own
        body = self._part if self._used == self._part_bytes else self._part[: self._used]
        answer = self._fs.call_s3(
            "upload_part",
            **self._target,
            UploadId=self._upload_id,
            PartNumber=number,
            Body=body,
            ContentMD5=_md5(body),
        )
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        self._used = 0


def put_object(filesystem: Any, path: str, data: bytes) -> None:
    """Write a small object in one request, checked by the server."""
    bucket, key, _ = filesystem.split_path(path)
    filesystem.call_s3("put_object", Bucket=bucket, Key=key, Body=data, ContentMD5=_md5(data))


def _md5(data: bytes | bytearray) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode("ascii")
