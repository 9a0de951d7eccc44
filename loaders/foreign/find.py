"""Which files a user means: a list, a glob, a brace range, one file, or a directory without a manifest.

What is named must be there: a shard that is missing from a range is an error that names it, for training on a part of
the data by accident is worse than not starting.
"""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from loaders.foreign.patterns import expand_braces
from shards.cache import STAGE_DIRECTORY
from shards.errors import LoadError, NotStagedError, list_offenders, printable
from shards.foreign.names import Advice, choose_files, is_shard_name, name_format
from shards.index_schema import INDEX_SUFFIX
from shards.manifest import MANIFEST_NAME
from shards.names import STATE_NAME

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

ADVICE = Advice(
    no_shard="; give others as a list, open_dataset([...])",
    formats="give the shards of one as a list or a glob",
    splits="give the shards of one split as a list or a glob",
    incomplete="copy what is missing, or give what there is as a list or a glob",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """One shard, as a user named it."""

    path: str
    """Absolute, links resolved."""
    format_name: str | None
    """What the name says; None when the content has to."""


def is_foreign(source: Source) -> bool:
    """Whether a source names shards rather than a dataset of ours.

    A list does, a pattern does unless a file has just that name, and so does a file that is no manifest. A directory
    does when it holds shards but no manifest, no index and nothing of a stager: one of ours that is not finished is not
    somebody else's.
    """
    if not isinstance(source, str | os.PathLike):
        return True
    path = os.fspath(source)
    if os.path.isdir(path):
        return not _is_ours(path) and any(is_shard_name(name) for name in _names_below(path))
    if os.path.lexists(path):
        return os.path.basename(path) != MANIFEST_NAME
    return any(char in path for char in "*?[{")


def find_shards(source: Source, split: str | None) -> tuple[str, tuple[ForeignFile, ...]]:
    """Find the files of a source.

    Args:
        source: see :func:`is_foreign`.
        split: of a directory whose names tell of several.

    Returns:
        The split's name, and its shards in the order in which they were named; those of a glob by name.

    Raises:
        LoadError: the pattern cannot be read, the same shard twice, or a split is to be chosen.
        NotStagedError: shards are not there; lists them.
        ForeignShardsError: the names in a directory do not form a dataset.
    """
    if isinstance(source, str | os.PathLike) and os.path.isdir(source):
        return _find_below(os.fspath(source), split)
    if split is not None:
        raise LoadError(
            f"there is no split {printable(split)} of shards that are named one by one; leave split out, and name the "
            "shards of one split"
        )
    several = [source] if isinstance(source, str | os.PathLike) else list(source)
    paths = [path for one in several for path in _paths(os.fspath(one))]
    missing = [printable(path) for path in paths if not os.path.isfile(path)]
    if missing:
        raise NotStagedError(
            f"{len(missing)} of {len(paths)} shards are not there:\n{list_offenders(missing)}\n"
            "copy them, or name only those that are there; gaps in the numbers do no harm when a manifest lists the "
            "shards (pack adopt makes one)"
        )
    if not paths:
        raise LoadError("an empty list of shards holds no sample")
    files = tuple(ForeignFile(path=os.path.realpath(path), format_name=name_format(path)) for path in paths)
    _refuse_twice(file.path for file in files)
    return "", files


def _paths(pattern: str) -> Iterator[str]:
    if os.path.lexists(pattern):
        yield pattern
        return
    for path in expand_braces(pattern):
        if not glob.has_magic(path):
            yield path
            continue
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise NotStagedError(f"no file matches {printable(path)}")
        yield from found


def _find_below(directory: str, split: str | None) -> tuple[str, tuple[ForeignFile, ...]]:
    found = choose_files(_names_below(directory), ADVICE, takes_compressed=True)
    splits = sorted({file.split for file in found.files})
    if split is None and len(splits) == 1:
        split = splits[0]
    if split not in splits:
        wanted = "choose a split" if split is None else f"there is no split {printable(split)}"
        raise LoadError(f"{printable(directory)}: {wanted}; the names of the shards tell of: {', '.join(splits)}")
    root = os.path.realpath(directory)
    files = tuple(
        ForeignFile(path=os.path.join(root, file.name), format_name=file.format_name)
        for file in found.files
        if file.split == split
    )
    return split, files


def _names_below(directory: str) -> list[str]:
    names = []
    for parent, directories, files in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        relative = os.path.relpath(parent, directory)
        names += [name if relative == "." else f"{relative}/{name}" for name in files if not name.startswith(".")]
    return sorted(names)


def _is_ours(directory: str) -> bool:
    names = os.listdir(directory)
    return (
        MANIFEST_NAME in names
        or STAGE_DIRECTORY in names
        or STATE_NAME in names
        or any(name.endswith(INDEX_SUFFIX) for name in names)
    )


def _refuse_twice(paths: Iterable[str]) -> None:
    seen: set[str] = set()
    twice = []
    for path in paths:
        if path in seen:
            twice.append(printable(path))
        seen.add(path)
    if twice:
        raise LoadError(f"{len(twice)} shard(s) are named twice:\n{list_offenders(twice)}")
