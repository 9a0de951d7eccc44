"""Removes a staged dataset from a cache: out of its place at once, then from the disk. Everything here blocks.

Only names that the dataset's manifest gives, and the stager's own files, are removed. When there is anything else in
the directory, that stays where it is.
"""

import logging
import os
import shutil
import stat
from contextlib import suppress

from shards.cache import STAGE_DIRECTORY, CacheLayout
from shards.errors import FormatError
from shards.files import fsync_directory, is_partial_name, read_regular_file
from shards.leases import try_exclude
from shards.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest
from stager.holders import read_leases
from stager.local import make_cache_directory
from stager.quarantine import is_token, new_token

logger = logging.getLogger(__name__)

_OWN_STAGE_NAMES = frozenset({"status.json", "manifest.json", "used.json", "listing.json"})


def evict(layout: CacheLayout, dataset_id: str) -> bool:
    """Take a dataset out of the cache, if nobody protects it; tell whether it went.

    Its bytes are still on disk afterwards: see :func:`empty_trash`.

    Raises:
        OSError: the cache cannot be written.
    """
    path = layout.dataset_dir(dataset_id)
    try:
        alone = try_exclude(path)
    except FileNotFoundError:
        return False
    if alone is None:
        return False
    with alone:
        if any(lease.is_live for lease in read_leases(layout, dataset_id)):
            return False
        names = own_names(layout, dataset_id)
        if names is None:
            return False
        trash = layout.trash_path(new_token())
        make_cache_directory(layout.trash_dir)
        own, foreign = sort_entries(path, names)
        if not foreign:
            os.rename(path, trash)
        else:
            logger.warning(
                "files that are not the stager's stay",
                extra={"dataset_id": dataset_id, "num_files": len(foreign), "first": foreign[0]},
            )
            _move_own_files(path, own, trash)
        fsync_directory(layout.datasets_dir)
    return True


def own_names(layout: CacheLayout, dataset_id: str) -> frozenset[str] | None:
    """Give the names that the stager may have given in a dataset's directory; None when it has never staged there."""
    try:
        data = read_regular_file(layout.wanted_path(dataset_id), max_bytes=MAX_MANIFEST_BYTES)
        manifest = Manifest.from_json(data, name=layout.wanted_path(dataset_id))
    except (OSError, FormatError):
        return None
    return frozenset(
        {MANIFEST_NAME, *(name for _, shard in manifest.shards() for name in (shard.name, shard.index_name))}
    )


def sort_entries(path: str, names: frozenset[str]) -> tuple[list[str], list[str]]:
    """Sort what lies in a dataset's directory into the stager's own and the rest, as paths relative to it.

    Directories are not listed: the stager's are empty when its files are gone.
    """
    own: list[str] = []
    foreign: list[str] = []
    for directory, subdirectories, files in os.walk(path):
        subdirectories.sort()
        links = [name for name in subdirectories if os.path.islink(os.path.join(directory, name))]
        for name in [*links, *sorted(files)]:
            full = os.path.join(directory, name)
            relative = os.path.relpath(full, path)
            is_own = _is_own(relative, names) and stat.S_ISREG(os.lstat(full).st_mode)
            (own if is_own else foreign).append(relative)
        relative = os.path.relpath(directory, path)
        if not subdirectories and not files and not _is_own_directory(relative, names):
            foreign.append(relative)
    return own, foreign


def empty_trash(layout: CacheLayout) -> int:
    """Delete what was evicted; give the bytes that this freed. Names that eviction does not give stay."""
    freed_bytes = 0
    for token in _tokens_in(layout.trash_dir):
        path = layout.trash_path(token)
        for directory, _, files in os.walk(path):
            for name in files:
                with suppress(OSError):
                    status = os.lstat(os.path.join(directory, name))
                    if status.st_nlink == 1:
                        freed_bytes += status.st_blocks * 512
        shutil.rmtree(path, ignore_errors=True)
    return freed_bytes


def _tokens_in(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if is_token(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_own(relative: str, names: frozenset[str]) -> bool:
    directory, name = os.path.split(relative)
    if directory == STAGE_DIRECTORY:
        return name in _OWN_STAGE_NAMES or name.endswith(".partial")
    return relative in names or is_partial_name(name)


def _is_own_directory(relative: str, names: frozenset[str]) -> bool:
    return relative in {".", STAGE_DIRECTORY} or any(name.startswith(f"{relative}/") for name in names)


def _move_own_files(path: str, own: list[str], trash: str) -> None:
    """Move the stager's files into the trash one by one, the manifest first: no moment shows a complete dataset."""
    order = sorted(own, key=lambda name: (name != MANIFEST_NAME, name == f"{STAGE_DIRECTORY}/manifest.json", name))
    for name in order:
        target = os.path.join(trash, name)
        make_cache_directory(os.path.dirname(target))
        os.rename(os.path.join(path, name), target)
        if name == MANIFEST_NAME:
            fsync_directory(path)
    for directory, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):  # not empty: somebody else's files are in it
            os.rmdir(directory)
