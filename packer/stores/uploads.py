"""Uploads that were begun and never ended: a killed packer leaves them, they cost money, and nobody sees them.

S3 can list them. Stores that cannot, or that forget them by themselves, list none here; a lifecycle rule on the bucket
(``AbortIncompleteMultipartUpload``) is the net below.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from packer.stores.object_errors import explain_errors


@dataclass(frozen=True, slots=True)
class Upload:
    """One unfinished upload."""

    name: str
    """Of the file in the dataset."""
    bucket: str
    key: str
    upload_id: str


def list_uploads(filesystem: Any, root: str, url: str) -> Iterator[Upload]:
    """List the unfinished uploads below a dataset; none where the driver cannot tell.

    Args:
        filesystem: the fsspec driver.
        root: of the dataset, as the driver calls it.
        url: of the dataset, for messages.
    """
    if not is_s3(filesystem):
        return
    bucket, prefix, _ = filesystem.split_path(root.rstrip("/") + "/.")
    prefix = prefix.removesuffix(".")
    marker: dict[str, str] = {}
    while True:
        with explain_errors(url):
            page = filesystem.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **marker)
        for found in page.get("Uploads", ()):
            if found["Key"].startswith(prefix):
                yield Upload(found["Key"].removeprefix(prefix), bucket, found["Key"], found["UploadId"])
        if not page.get("IsTruncated"):
            return
        marker = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def abort_upload(filesystem: Any, upload: Upload, url: str) -> None:
    """Abort one upload; nothing happens when it has ended meanwhile."""
    try:
        with explain_errors(url):
            filesystem.call_s3(
                "abort_multipart_upload", Bucket=upload.bucket, Key=upload.key, UploadId=upload.upload_id
            )
    except FileNotFoundError:
        pass


def is_s3(filesystem: Any) -> bool:
    """Whether a driver is s3fs, whose requests can be made one by one."""
    return "s3" in getattr(filesystem, "protocol", ()) and hasattr(filesystem, "call_s3")
