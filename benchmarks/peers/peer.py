"""What the scripts of this directory have in common: each packs a tree of files with one library, and times itself.

    python PEER.py SOURCE DESTINATION RESULT.json

Imports are not timed: a library that loads for seconds is compared by how it packs. Ours are timed in full.
"""

import json
import os
import sys
import time
from collections.abc import Callable


def list_files(source: str) -> list[str]:
    """Paths of all files, directory after directory."""
    paths: list[str] = []
    for directory, names, files in os.walk(source):
        names.sort()
        paths.extend(os.path.join(directory, name) for name in sorted(files))
    return paths


def key_of(path: str, source: str) -> str:
    """Key of the sample: the path below the source, without its extension."""
    return os.path.relpath(path, source).removesuffix(".jpg")


def read_file(path: str) -> bytes:
    """Content of a file."""
    with open(path, "rb") as file:
        return file.read()


def main(pack: Callable[[str, str], None]) -> None:
    """Run a peer and write down how long it took."""
    source, destination, result = sys.argv[1:]
    before, started = sum(os.times()[:4]), time.perf_counter()
    pack(source, destination)
    seconds, cpu_seconds = time.perf_counter() - started, sum(os.times()[:4]) - before
    with open(result, "w") as file:
        json.dump({"seconds": seconds, "cpu_seconds": cpu_seconds}, file)
