"""Places the files of a dataset, and of nothing else, in one directory of the cache."""

import os
import re
import tempfile

from tests.datasets.catalog import Dataset
from tests.datasets.fetch import CACHE, fetch_tree


def place_source(dataset: Dataset) -> str:
    """Fetch a dataset unless it is there; gives the directory to pack.

    Raises:
        UnavailableError: it cannot be had on this machine.
        FetchError: it did not come, or has other bytes than expected.
    """
    tree = fetch_tree(dataset.package)
    root = os.path.join(tree, dataset.root)
    if not dataset.pick:
        return root
    picked = os.path.join(CACHE, "picked", os.path.basename(tree))
    if not os.path.isdir(picked):
        os.makedirs(os.path.dirname(picked), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            _pick(root, dataset.pick, os.path.join(scratch, "picked"))
            os.rename(os.path.join(scratch, "picked"), picked)
    return picked


def _pick(root: str, pattern: str, target: str) -> None:
    """Link the files whose relative path has the pattern into a directory of their own."""
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.relpath(os.path.join(directory, name), root)
            if re.search(pattern, path):
                os.makedirs(os.path.join(target, os.path.dirname(path)), exist_ok=True)
                os.link(os.path.join(directory, name), os.path.join(target, path))
