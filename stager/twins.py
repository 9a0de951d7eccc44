"""The same shard in another dataset of the cache, or in an earlier version of this one: gets a second name, no bytes.

Twins are found by digest in the records of the other datasets, and hashed before they get the name: what a disk has
damaged is not handed on. Where a second name is not possible (another user's file, too many names) the shard is
fetched.
"""

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass

from shards.cache import CacheLayout
from shards.files import fsync_directory
from stager.cache import DatasetDirectory
from stager.local import observe_file, read_status, staged_ids
from stager.plan import ObservedFile, StagePlan, WantedFile
from stager.records import forget_inode
from stager.staged_files import StagedFile, check_staged_file

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Twin:
    """A file of another dataset that has the wanted bytes."""

    wanted: WantedFile
    dataset_id: str
    """The other dataset."""
    path: str
    observed: ObservedFile
    block_bytes: int
    """Of the shard's digest; 0 for an index."""


def find_twins(layout: CacheLayout, dataset: DatasetDirectory, plan: StagePlan, block_bytes: int) -> list[Twin]:
    """Find twins of what a plan would fetch; at most one a file.

    Args:
        layout: of the cache.
        dataset: that lacks files.
        plan: for it.
        block_bytes: of its shards.
    """
    shard_names = {step.shard.name for step in plan.steps}
    missing = {
        (step.file.digest, step.file.size_bytes): step.file
        for step in plan.files()
        if step.is_needed and step.bad is None
    }
    twins = []
    for dataset_id in staged_ids(layout):
        status = None if dataset_id == dataset.dataset_id else read_status(layout.status_path(dataset_id))
        for name, record in {} if status is None else status.records.items():
            wanted = missing.get((record.digest, record.observed.size_bytes))
            path = os.path.join(layout.dataset_dir(dataset_id), name)
            if wanted is not None and observe_file(path) == record.observed:
                del missing[record.digest, record.observed.size_bytes]
                twins.append(
                    Twin(wanted, dataset_id, path, record.observed, block_bytes if wanted.name in shard_names else 0)
                )
    return twins


def is_right(layout: CacheLayout, twin: Twin) -> bool:
    """Hash a twin; one that is wrong is hashed again by the next run of its own dataset."""
    file = StagedFile(
        dataset_id=twin.dataset_id,
        name=twin.wanted.name,
        path=twin.path,
        size_bytes=twin.wanted.size_bytes,
        digest=twin.wanted.digest,
        block_bytes=twin.block_bytes,
    )
    bad = check_staged_file(file, lambda num_bytes: None)
    if bad is not None:
        logger.warning("staged file is damaged", extra={"file": twin.path, "reason": bad.reason})
        forget_inode(layout, twin.dataset_id, bad.inode)
    return bad is None


def link_twins(dataset: DatasetDirectory, twins: Iterable[Twin]) -> int:
    """Give twins their names in a dataset, durably; give the bytes that need not be fetched."""
    num_bytes = 0
    directories = set()
    for twin in twins:
        final_path = dataset.final_path(twin.wanted.name)
        try:
            os.link(twin.path, final_path, follow_symlinks=False)
        except OSError as error:  # evicted or committed meanwhile, another user's, too many names
            logger.debug("not linked", extra={"file": twin.wanted.name, "reason": str(error)})
            continue
        if observe_file(final_path) == twin.observed:
            directories.add(os.path.dirname(final_path))
            dataset.record(twin.wanted)
            num_bytes += twin.wanted.size_bytes
    for directory in directories:
        fsync_directory(directory)
    return num_bytes
