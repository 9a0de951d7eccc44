"""Says which members must come out of a source, without any code of the packer; and counts what lies in a source.

Written for these datasets, whose names are all UTF-8; the nasty ones are in ``tests/packer/nasty``.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Splitting(StrEnum):
    """How a base name becomes the name of a member."""

    FIRST_DOT = "first-dot"
    """Kept but for the case of the extension, which begins at the first dot."""
    LAST_DOT_ESCAPED = "last-dot, escaped"
    """The extension begins at the last dot; other dots become ``%2E``, per cent signs ``%25``."""
    BROWN = "brown"
    """``ca01`` becomes ``ca01.a``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What the arguments of a packing ask for."""

    splitting: Splitting = Splitting.FIRST_DOT
    follows_links: bool = True
    has_classes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A source as it is."""

    files: int
    size_bytes: int
    links: int
    first_dot: Counter[str]
    """Key → files."""
    first_dot_extensions: frozenset[str]
    last_dot: Counter[str]
    last_dot_extensions: frozenset[str]
    without_extension: int
    dotted: int


def count_source(root: str) -> Found:
    """Count files and keys; links are counted and not followed, hidden files have no key."""
    links = sum(
        os.path.islink(os.path.join(directory, name))
        for directory, directories, files in os.walk(root)
        for name in (*directories, *files)
    )
    paths = list(_walk(root, "", follows_links=False, takes_hidden=True))
    visible = [path for path in paths if not os.path.basename(path).startswith(".")]
    first = [
        (os.path.join(os.path.dirname(path), base), extension)
        for path in visible
        for base, _, extension in [os.path.basename(path).partition(".")]
        if extension
    ]
    last = [os.path.splitext(path) for path in visible if os.path.splitext(path)[1]]
    return Found(
        files=len(paths),
        size_bytes=sum(os.path.getsize(os.path.join(root, path)) for path in paths),
        links=links,
        first_dot=Counter(key for key, _ in first),
        first_dot_extensions=frozenset(extension.lower() for _, extension in first),
        last_dot=Counter(key for key, _ in last),
        last_dot_extensions=frozenset(extension.lower() for _, extension in last),
        without_extension=len(visible) - len(first),
        dotted=sum(os.path.basename(path).count(".") > 1 for path in visible),
    )


def expected_members(root: str, naming: Naming) -> dict[str, str | bytes]:
    """Name of each member that must come out → the source file it must equal, or its bytes."""
    members: dict[str, str | bytes] = {}
    classes: dict[str, str] = {}
    for path in _walk(root, "", follows_links=naming.follows_links, takes_hidden=False):
        split = _split(path, naming.splitting)
        if split is None:
            continue
        key, extension = split
        name = f"{key}.{extension}"
        assert name not in members, f"two files are {name}"
        members[name] = os.path.join(root, path)
        classes[key] = path.split("/", 1)[0]
    if naming.has_classes:
        numbers = {name: number for number, name in enumerate(sorted(set(classes.values())))}
        members.update((f"{key}.cls", str(numbers[name]).encode()) for key, name in classes.items())
    return members


def _split(path: str, splitting: Splitting) -> tuple[str, str] | None:
    directory, slash, base = path.rpartition("/")
    match splitting:
        case Splitting.FIRST_DOT:
            stem, _, extension = base.partition(".")
        case Splitting.LAST_DOT_ESCAPED:
            stem, _, extension = base.rpartition(".")
            stem = stem.replace("%", "%25").replace(".", "%2E")
        case Splitting.BROWN:
            found = re.fullmatch("c([a-r])[0-9]{2}", base)
            stem, extension = (base, found[1]) if found else ("", "")
    return (f"{directory}{slash}{stem}", extension.lower()) if stem and extension else None


def _walk(
    root: str, below: str, *, follows_links: bool, takes_hidden: bool, above: tuple[str, ...] = ()
) -> Iterator[str]:
    """Relative paths of all files; a directory that contains itself through a link is entered once."""
    here = os.path.realpath(os.path.join(root, below))
    if here in above:
        return
    with os.scandir(os.path.join(root, below)) as entries:
        found = list(entries)
    for entry in found:
        path = f"{below}/{entry.name}" if below else entry.name
        if (entry.name.startswith(".") and not takes_hidden) or (entry.is_symlink() and not follows_links):
            continue
        if entry.is_dir():
            yield from _walk(root, path, follows_links=follows_links, takes_hidden=takes_hidden, above=(*above, here))
        elif entry.is_file():
            yield path
