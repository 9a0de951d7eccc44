"""From what a user names (a path, a dataset id, the beginning of one) to the directory that holds the dataset.

Rules:
    * A path that exists is a path. Text that begins with ``blake3:`` is always a dataset id; hexadecimal text is one
      when no such path exists.
    * Nothing is guessed: an ambiguous or unknown id is an error that lists what there is.
"""

import os
import re
from dataclasses import dataclass

from shards.cache import MAX_VERSION_BYTES, STAGE_DIRECTORY, CacheLayout, check_version, dataset_id_of
from shards.digests import DIGEST_PREFIX
from shards.errors import LoadError, NotStagedError, list_offenders, printable
from shards.files import read_regular_file
from shards.manifest import MANIFEST_NAME

CACHE_DIR_VARIABLE = "STAGE_CACHE_DIR"
"""Environment variable that names the node's cache, the same that the stager reads."""

MIN_ID_DIGITS = 8
"""Shortest beginning of a dataset id that is taken for one."""

_ID_DIGITS = 64
_HEX = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlace:
    """Where a dataset lies."""

    directory: str
    """Absolute path."""
    dataset_id: str | None
    """The full id, ``blake3:hex``, when the dataset was asked for by id."""
    is_staged: bool
    """Whether the directory belongs to a node cache, so that a reader must hold its lease."""

    is_partial: bool = False
    """Whether only a part of it is there, or more is still coming."""

    @property
    def manifest_path(self) -> str:
        """The dataset's manifest."""
        return os.path.join(self.directory, *([STAGE_DIRECTORY] if self.is_partial else []), MANIFEST_NAME)

    @property
    def cache_root(self) -> str | None:
        """Root of the node cache that the directory belongs to; None when that cannot be seen from here."""
        datasets, name = os.path.split(self.directory)
        is_in_cache = dataset_id_of(name) is not None and os.path.basename(datasets) == "datasets"
        return os.path.dirname(datasets) if is_in_cache else None


def find_dataset(
    source: str | os.PathLike[str], cache_dir: str | os.PathLike[str] | None, *, allow_partial: bool = False
) -> DatasetPlace:
    """Find the directory of a dataset.

    Args:
        source: dataset directory, its ``manifest.json``, or a dataset id: ``blake3:`` and hexadecimal digits, or the
            digits alone; the first 8 or more are enough when they are unique in the cache.
        cache_dir: root of the node cache in which ids are looked up.
        allow_partial: also find a dataset that is being staged, or of which a part was.

    Raises:
        NotStagedError: nothing is there, or what is there is not complete.
        LoadError: the name is no dataset's, or it is not unique.
    """
    text = os.fspath(source)
    digits = text.removeprefix(DIGEST_PREFIX)
    looks_like_id = isinstance(source, str) and _HEX.fullmatch(digits) is not None and len(digits) <= _ID_DIGITS
    if text.startswith(DIGEST_PREFIX) or (looks_like_id and len(digits) >= MIN_ID_DIGITS and not os.path.lexists(text)):
        if not looks_like_id or len(digits) < MIN_ID_DIGITS:
            raise LoadError(
                f"{printable(text)} is not a dataset id: after {DIGEST_PREFIX} stand {MIN_ID_DIGITS} to {_ID_DIGITS} "
                "lower-case hexadecimal digits"
            )
        return _find_staged(digits, cache_dir, allow_partial=allow_partial)
    return _find_directory(text, allow_partial=allow_partial)


def _find_directory(path: str, *, allow_partial: bool) -> DatasetPlace:
    if os.path.isdir(path):
        directory = os.path.realpath(path)
    elif os.path.basename(path) == MANIFEST_NAME:
        directory = os.path.realpath(os.path.dirname(path) or os.curdir)
    elif os.path.lexists(path):
        raise LoadError(f"{printable(path)} is not a dataset directory and not its {MANIFEST_NAME}")
    else:
        raise NotStagedError(
            f"{printable(path)} does not exist; give a dataset directory, its {MANIFEST_NAME}, or a dataset id"
        )
    is_partial = _is_partial(directory, allow_partial=allow_partial)
    parent, name = os.path.split(directory)
    # a dataset directory that is mounted under another name still has the stager's subdirectory
    is_staged = os.path.isdir(os.path.join(directory, STAGE_DIRECTORY)) or (
        dataset_id_of(name) is not None and os.path.basename(parent) == "datasets"
    )
    return DatasetPlace(directory=directory, dataset_id=None, is_staged=is_staged, is_partial=is_partial)


def _find_staged(digits: str, cache_dir: str | os.PathLike[str] | None, *, allow_partial: bool) -> DatasetPlace:
    if cache_dir is None:
        raise LoadError(
            f"dataset id {digits} can only be looked up in a cache: pass cache_dir or set {CACHE_DIR_VARIABLE}"
        )
    cache = CacheLayout(os.path.realpath(os.fspath(cache_dir)))
    _check_cache_version(cache)
    ids = _list_dataset_ids(cache)
    matches = [dataset_id for dataset_id in ids if dataset_id.startswith(DIGEST_PREFIX + digits)]
    if not matches:
        staged = [dataset_id for dataset_id in ids if _is_complete(cache, dataset_id)]
        there = f"; it holds:\n{list_offenders(staged)}" if staged else "; it holds no dataset"
        raise NotStagedError(
            f"dataset {digits} is not staged in cache {printable(cache.root)}: run stage run for it{there}"
        )
    if len(matches) > 1:
        raise LoadError(
            f"dataset id {digits} is not unique in cache {printable(cache.root)}; give more digits of one of:\n"
            f"{list_offenders(matches)}"
        )
    [dataset_id] = matches
    directory = cache.dataset_dir(dataset_id)
    is_partial = _is_partial(directory, allow_partial=allow_partial)
    return DatasetPlace(directory=directory, dataset_id=dataset_id, is_staged=True, is_partial=is_partial)


def _is_partial(directory: str, *, allow_partial: bool) -> bool:
    """Tell whether only a part of a dataset is there.

    Raises:
        NotStagedError: no dataset is there, or only a part and that is not enough.
    """
    if os.path.exists(os.path.join(directory, MANIFEST_NAME)):
        return False
    has_part = os.path.exists(os.path.join(directory, STAGE_DIRECTORY, MANIFEST_NAME))
    if has_part and allow_partial:
        return True
    advice = "; to read what is there and wait for the rest, open it with wait_seconds" if has_part else ""
    raise NotStagedError(
        f"{printable(directory)} has no {MANIFEST_NAME}: it is not a dataset, or packing or staging it has not "
        f"finished; run pack build or stage run again, it goes on where it stopped{advice}"
    )


def _check_cache_version(cache: CacheLayout) -> None:
    try:
        content = read_regular_file(cache.version_path, max_bytes=MAX_VERSION_BYTES)
    except FileNotFoundError:
        return
    check_version(content, path=cache.version_path)


def _list_dataset_ids(cache: CacheLayout) -> list[str]:
    try:
        names = sorted(os.listdir(cache.datasets_dir))
    except FileNotFoundError:
        return []
    return [dataset_id for name in names if (dataset_id := dataset_id_of(name)) is not None]


def _is_complete(cache: CacheLayout, dataset_id: str) -> bool:
    return os.path.exists(os.path.join(cache.dataset_dir(dataset_id), MANIFEST_NAME))
