"""Takes finished datasets apart: tar shards with GNU tar, TFRecord shards through the loaders."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loaders import open_dataset


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


def unpack_tar(dataset: str, directory: str) -> None:
    """Unpack all shards of a dataset with GNU tar into one directory, where no member may meet another."""
    os.mkdir(directory)
    for name in sorted(name for name in os.listdir(dataset) if name.endswith(".tar")):
        subprocess.run(
            ["tar", "--extract", "--keep-old-files", "--no-same-owner", "--file", os.path.join(dataset, name)],
            cwd=directory,
            check=True,
        )


def compare_tar(dataset: str, directory: str, expected: Mapping[str, str | bytes]) -> Comparison:
    """Unpack a tar dataset and compare every file with its source."""
    unpack_tar(dataset, directory)
    return _compare(_files_below(directory), expected)


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
