"""One digest for "the same samples with the same bytes", however they are read.

The digest of a set of samples is SHA-256 over its sorted lines ``key<TAB>sha256 of the picture``; it depends on keys
and bytes and not on the order of reading.
"""

import hashlib
import os
from collections.abc import Iterable

from icons import SourceTree


def digest_samples(samples: Iterable[tuple[str, bytes]]) -> tuple[int, str]:
    """Give the number of samples and their digest.

    Args:
        samples: key and picture of each, in any order.
    """
    lines = sorted(f"{key}\t{hashlib.sha256(picture).hexdigest()}" for key, picture in samples)
    return len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest_files(tree: SourceTree) -> tuple[int, str]:
    """Give the number and digest of the source files; a picture's key is its path without ``.png``."""
    return digest_samples(
        (path.removesuffix(".png"), read_file(os.path.join(tree.directory, path))) for path in tree.paths
    )


def read_file(path: str) -> bytes:
    """Read a small file as a plain dataset of files does: open, read, close."""
    with open(path, "rb") as file:
        return file.read()
