"""The one place that turns a location into a store."""

from packer.locations import directory_of, is_url
from packer.stores.base import DatasetStore
from packer.stores.directory import DirectoryStore


def open_store(location: str) -> DatasetStore:
    """Open the place where a dataset lies, or will lie.

    Args:
        location: a directory, or the URL of an object store.

    Raises:
        RemoteError: there is no driver for the URL, or it refuses.
    """
    if not is_url(location):
        return DirectoryStore(directory_of(location))
    from packer.stores.objects import ObjectStore  # noqa: PLC0415 (fsspec is loaded only where it is used)

    return ObjectStore(location)
