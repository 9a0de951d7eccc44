"""Takes finished datasets apart: tar shards with GNU tar, TFRecord shards through the loaders."""

import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loaders import open_dataset

MOST_UNPACKED = 25_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """Members against what they must be. All is well when all are empty but the number of equal ones."""

    num_equal: int
    missing: list[str]
    unexpected: list[str]
    different: list[str]

    @property
    def is_equal(self) -> bool:
        return not (self.missing or self.unexpected or self.different)


def compare_tar(dataset: str, directory: str, expected: Mapping[str, str | bytes]) -> Comparison:
    """Let GNU tar read all shards and compare every member with its source.

    Up to :data:`MOST_UNPACKED` members are unpacked into one directory, where no member may meet another; of more, tar
    gives the list and the data, for making and removing so many files would take longer than all the rest.
    """
    shards = [os.path.join(dataset, name) for name in sorted(os.listdir(dataset)) if name.endswith(".tar")]
    if len(expected) > MOST_UNPACKED:
        return _compare(itertools.chain.from_iterable(map(_streamed_members, shards)), expected)
    os.mkdir(directory)
    for shard in shards:
        options = ("--extract", "--keep-old-files", "--no-same-owner", "--file", shard)
        subprocess.run(["tar", *options], cwd=directory, check=True)
    return _compare(_files_below(directory), expected)


def _streamed_members(shard: str) -> Iterator[tuple[str, bytes]]:
    listing = ["tar", "--list", "--verbose", "--numeric-owner", "--quoting-style=literal", "--file", shard]
    lines = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    with subprocess.Popen(["tar", "--extract", "--to-stdout", "--file", shard], stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None
        for line in lines:
            _, _, size, _, _, name = line.split(maxsplit=5)
            yield name, tar.stdout.read(int(size))
        assert not tar.stdout.read(1)
    assert tar.returncode == 0


def compare_loaded(dataset: str, splits: list[str], expected: Mapping[str, str | bytes]) -> Comparison:
    """Read every sample through the loaders and compare every member with its source."""
    return _compare(_loaded_members(dataset, splits), expected)


def _loaded_members(dataset: str, splits: list[str]) -> Iterator[tuple[str, bytes]]:
    for split in splits:
        with open_dataset(dataset, split=split) as samples:
            for sample in samples:
                for extension, data in sample.to_dict().items():
                    yield f"{sample.key}.{extension}", data


def _files_below(root: str) -> Iterator[tuple[str, bytes]]:
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            yield os.path.relpath(path, root), _read(path)


def _compare(found: Iterator[tuple[str, bytes]], expected: Mapping[str, str | bytes]) -> Comparison:
    num_equal = 0
    unexpected, different = [], []
    left = set(expected)
    for name, data in found:
        if name not in left:
            unexpected.append(name)
            continue
        left.remove(name)
        source = expected[name]
        if data == (source if isinstance(source, bytes) else _read(source)):
            num_equal += 1
        else:
            different.append(name)
    return Comparison(num_equal, sorted(left), unexpected, different)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
