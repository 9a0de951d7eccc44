"""Finds out what kind of source a user means by SRC.

A directory is a tree. ``FILE.csv``, ``.tsv`` and ``.jsonl`` are tables, ``.parquet`` is a table, or inline bytes when
it has a column of bytes, ``.arrow`` is inline, ``.tar*`` and ``.zip`` are archives, ``scheme://`` is a prefix of
objects. A quoted glob names several files of one kind. ``--source-kind`` overrides; a directory then stands for its
files.
"""

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass

from packer.locations import directory_of, is_url, without_credentials
from packer.sources.archive import ArchiveSource
from packer.sources.options import SourceKind, SourceOptions
from packer.sources.source import Source
from packer.sources.tree import SymlinkPolicy, TreeOptions, TreeSource
from shards.errors import SourceError, list_offenders, printable
from shards.keys import KeyRule

_SUFFIXES = {
    SourceKind.TABLE: (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"),
    SourceKind.INLINE: (".parquet", ".arrow", ".feather"),
    SourceKind.ARCHIVE: (
        *(".tar", ".tgz", ".tbz2", ".txz", ".tzst", ".zip"),
        *(".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.zstd"),
    ),
}
"""By which a file's kind is known, and which files a directory stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequest:
    """What is known about the source before it is looked at."""

    path: str
    options: SourceOptions
    symlinks: SymlinkPolicy
    key_rule: KeyRule
    """Tables make the names of further members fit the key of the file."""
    excluded: str | None = None
    """The destination."""
    skips_unreadable: bool = False
    """What cannot be read is left out and counted, instead of an error."""


def choose_source(request: SourceRequest) -> Source:
    """Find the kind of a source.

    Raises:
        SourceError: there is no such thing, or its kind cannot be told or does not take the options given.
    """
    path = request.path if is_url(request.path) else directory_of(request.path)
    kind = request.options.kind
    if is_url(path):
        if kind not in {SourceKind.AUTO, SourceKind.OBJECTS}:
            raise SourceError(
                f"a source of kind {kind.value} has to lie on a filesystem, "
                f"{printable(without_credentials(path))} is a URL; "
                "copy it to a disk or mount it"
            )
        return _objects(request)
    files = _list_files(path, kind)
    if files is None:
        return _tree(request, path)
    if kind in {SourceKind.AUTO, SourceKind.OBJECTS, SourceKind.TREE}:
        kind = _kind_of_files(path, files)
    return _of_files(request, kind, files)


def _list_files(path: str, kind: SourceKind) -> list[str] | None:
    """The files a source stands for, in order; None for a tree."""
    if os.path.isdir(path):
        suffixes = _SUFFIXES.get(kind)
        if suffixes is None:
            return None
        files = sorted(
            os.path.join(directory, name)
            for directory, below, names in os.walk(path)
            for name in names
            if _prune(below) and name.lower().endswith(suffixes) and not name.startswith(".")
        )
        if not files:
            raise SourceError(f"{printable(path)} holds no file with one of the suffixes {', '.join(suffixes)}")
        return files
    if os.path.isfile(path):
        return [path]
    if os.path.lexists(path):
        what = "no directory and no regular file" if os.path.exists(path) else "a symbolic link that leads nowhere"
        raise SourceError(f"{printable(path)} is {what}; check the path")
    if glob.has_magic(path):
        files = sorted(name for name in glob.glob(path, recursive=True) if os.path.isfile(name))
        if not files:
            raise SourceError(f"no file matches {printable(path)}")
        return files
    raise SourceError(f"there is no {printable(path)}; check the path")


def _prune(directories: list[str]) -> bool:
    """Keep a walk out of hidden directories."""
    directories[:] = sorted(name for name in directories if not name.startswith("."))
    return True


def _kind_of_files(path: str, files: Iterable[str]) -> SourceKind:
    kinds: dict[SourceKind, str] = {}
    unknown = []
    for file in files:
        kind = _kind_of_file(file)
        if kind is None:
            unknown.append(printable(file))
        else:
            kinds.setdefault(kind, file)
    if unknown:
        many = f"{len(unknown)} files are no source that is known by its name:\n{list_offenders(unknown)}\n"
        raise SourceError(
            f"{f'{unknown[0]} is no source that is known by its name; ' if len(unknown) == 1 else many}"
            "give the directory that holds the source files, a table (.csv, .tsv, .jsonl, .parquet), an archive (.tar, "
            ".tar.gz, .zip …), Parquet or Arrow files, or a URL; --source-kind says what another name is"
        )
    if len(kinds) > 1:
        lines = [f"{kind.value}: {printable(file)}" for kind, file in kinds.items()]
        raise SourceError(
            f"{printable(path)} stands for files of several kinds:\n{list_offenders(lines)}\npack each kind for itself"
        )
    return next(iter(kinds))


def _kind_of_file(file: str) -> SourceKind | None:
    name = file.lower()
    if name.endswith(".parquet"):
        from packer.sources.columns import has_bytes_column  # noqa: PLC0415 (pyarrow: a tree does without)

        return SourceKind.INLINE if has_bytes_column(file) else SourceKind.TABLE
    for kind in (SourceKind.TABLE, SourceKind.INLINE, SourceKind.ARCHIVE):
        if name.endswith(_SUFFIXES[kind]):
            return kind
    return None


def _tree(request: SourceRequest, path: str) -> Source:
    options = request.options
    _refuse_options(request, SourceKind.TREE)
    tree = TreeOptions(symlinks=request.symlinks, globs=options.globs, skips_unreadable=request.skips_unreadable)
    return TreeSource(path, tree, request.excluded)


def _objects(request: SourceRequest) -> Source:
    from packer.sources.objects import ObjectSource  # noqa: PLC0415 (fsspec: a tree does without)

    _refuse_options(request, SourceKind.OBJECTS)
    return ObjectSource(request.path, request.options.globs)


def _of_files(request: SourceRequest, kind: SourceKind, files: list[str]) -> Source:
    options = request.options
    _refuse_options(request, kind)
    if kind is SourceKind.ARCHIVE:
        return ArchiveSource(tuple(files), options.globs)
    if kind is SourceKind.INLINE:
        from packer.sources.inline import InlineSource  # noqa: PLC0415 (pyarrow: a tree does without)

        return InlineSource(tuple(files), options.key_column, options.columns)
    from packer.sources.table import TableOptions, TableSource  # noqa: PLC0415 (pyarrow: a tree does without)

    table = TableOptions(
        path_column=options.path_column,
        root=options.root,
        columns=options.columns,
        key_rule=request.key_rule,
        skips_unreadable=request.skips_unreadable,
    )
    return TableSource(tuple(files), table)


_TAKES = {
    SourceKind.TREE: {"--include", "--exclude", "--on-unreadable"},
    SourceKind.OBJECTS: {"--include", "--exclude"},
    SourceKind.ARCHIVE: {"--include", "--exclude"},
    SourceKind.TABLE: {"--path-column", "--root", "--column", "--on-unreadable"},
    SourceKind.INLINE: {"--key-column", "--column"},
}


def _refuse_options(request: SourceRequest, kind: SourceKind) -> None:
    """Refuse options that would be ignored."""
    options = request.options
    given = {
        "--include": options.globs.include,
        "--exclude": options.globs.exclude,
        "--on-unreadable": request.skips_unreadable,
        "--path-column": options.path_column,
        "--root": options.root,
        "--key-column": options.key_column,
        "--column": options.columns,
    }
    useless = [name for name, value in given.items() if value and name not in _TAKES[kind]]
    if useless:
        raise SourceError(
            f"{', '.join(useless)} mean(s) nothing for {printable(without_credentials(request.path))}, "
            f"a source of kind {kind.value}; leave it out, or say what the source is with --source-kind"
        )
