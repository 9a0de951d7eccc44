"""Which code this is: the release, and a digest of the modules that make a shard.

Two nodes with the same release may still differ: a checkout that was edited, an image that was built on another day.
"""

import hashlib
import os
from functools import lru_cache

import packer
import shards
from shardferry import __version__

_PACKAGES = (shards, packer)


@lru_cache(maxsize=1)
def code_identity() -> str:
    """Release and digest, for instance ``0.1.0 (code 5f0c2a9d41b7e633)``; equal where the modules are."""
    hasher = hashlib.blake2b(digest_size=8)
    for package in _PACKAGES:
        root = os.path.dirname(os.path.abspath(package.__file__ or ""))
        for path in sorted(_modules_below(root)):
            with open(path, "rb") as file:
                data = file.read()
            name = f"{package.__name__}/{os.path.relpath(path, root)}"
            hasher.update(f"{name}\0{len(data)}\0".encode())
            hasher.update(data)
    return f"{__version__} (code {hasher.hexdigest()})"


def _modules_below(root: str) -> list[str]:
    return [
        os.path.join(directory, name) for directory, _, names in os.walk(root) for name in names if name.endswith(".py")
    ]
