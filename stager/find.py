"""From what a user names (an id, the beginning of one, a path) to a dataset of a cache."""

import os
import re

from shards.cache import CacheLayout, dataset_id_of, directory_name
from shards.digests import DIGEST_PREFIX
from shards.errors import NotStagedError, list_offenders, printable
from stager.local import staged_ids

MIN_ID_DIGITS = 8
"""Shortest beginning of an id that is taken for one."""

_HEX = re.compile(r"[0-9a-f]{1,64}")


def find_staged(layout: CacheLayout, text: str) -> str:
    """Give the id of a dataset of a cache, staged completely or not.

    Args:
        layout: of the cache.
        text: its id (``blake3:`` and hexadecimal digits, or the digits alone; the first 8 or more are enough), its
            directory, or a link to that.

    Raises:
        NotStagedError: the cache has no such dataset, or several.
    """
    digits = text.removeprefix(DIGEST_PREFIX)
    if _HEX.fullmatch(digits) and len(digits) >= MIN_ID_DIGITS and not os.path.lexists(text):
        ids = list(staged_ids(layout))
        matches = [dataset_id for dataset_id in ids if directory_name(dataset_id).startswith(digits)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise NotStagedError(f"{digits} is not unique; give more digits of one of:\n{list_offenders(matches)}")
        there = f"it holds:\n{list_offenders(ids)}" if ids else "it holds no dataset"
        raise NotStagedError(f"dataset {digits} is not in the cache {printable(layout.root)}; {there}")
    path = os.path.realpath(text)
    dataset_id = dataset_id_of(os.path.basename(path))
    if dataset_id is None or not os.path.isdir(path):
        raise NotStagedError(
            f"{printable(text)} is no staged dataset: give its id (8 digits or more), its directory in the cache, or a "
            "link to that"
        )
    if not os.path.isdir(layout.dataset_dir(dataset_id)) or not os.path.samefile(path, layout.dataset_dir(dataset_id)):
        raise NotStagedError(
            f"{printable(text)} is not in the cache {printable(layout.root)}; give the --cache-dir that it lies in"
        )
    return dataset_id
