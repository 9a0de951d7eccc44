"""Writes the status file of a staged dataset, which several stagers of a node add to; everything here blocks."""

import fcntl
import logging
import os
from collections.abc import Callable

from shards.cache import CacheLayout
from shards.files import write_file
from stager.local import read_status
from stager.status import DatasetStatus

logger = logging.getLogger(__name__)


def update_status(
    layout: CacheLayout, dataset_id: str, change: Callable[[DatasetStatus | None], DatasetStatus | None]
) -> bool:
    """Write the status file anew from what it says, while nobody else does; tell whether that went well.

    Args:
        layout: of the cache.
        dataset_id: which dataset.
        change: gives the new status; None leaves the file as it is.
    """
    try:
        lock = os.open(layout.stage_dir(dataset_id), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held for one small write
            path = layout.status_path(dataset_id)
            status = change(read_status(path))
            if status is not None:
                write_file(path, status.to_json())
        finally:
            os.close(lock)
    except OSError as error:
        logger.warning("status not written", extra={"reason": str(error)})
        return False
    return True


def forget_inode(layout: CacheLayout, dataset_id: str, inode: int) -> None:
    """Forget that a file was committed, so that the next run hashes it: it has a name in another dataset, and is bad.

    Args:
        layout: of the cache.
        dataset_id: whose records are changed.
        inode: of the bad file.
    """

    def change(status: DatasetStatus | None) -> DatasetStatus | None:
        if status is None or all(record.observed.inode != inode for record in status.records.values()):
            return None
        return status.without(name for name, record in status.records.items() if record.observed.inode == inode)

    update_status(layout, dataset_id, change)
