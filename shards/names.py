"""Which names a manifest may give to files: relative, plain, and different on every filesystem; pure.

A name is one or more components joined by ``/``. It never leaves the directory of its dataset, never clashes with the
names that Shardferry keeps for itself, and never with another name of the same manifest, also where the filesystem
does not tell upper from lower case or composed from decomposed letters.
"""

import re
import unicodedata
from collections.abc import Iterable

from shards.strict_json import JsonError

MAX_COMPONENT_BYTES = 255
MAX_NAME_BYTES = 1024

STATE_NAME = ".pack"
"""Directory beside the shards in which a packer keeps its plan and what later packs need."""

DEFAULT_SPLIT = "train"
"""Split of samples of which nothing says otherwise."""

_CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_DRIVE = re.compile("[A-Za-z]:")
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_relative_name(name: str, path: str) -> None:
    """Check the name of a shard or index.

    Args:
        name: the name.
        path: JSON path of the name, for the fault.

    Raises:
        JsonError: the name is empty, absolute, escaping, reserved, too long, or has characters that some system
            or terminal takes for something else.
    """
    # also the directory of that name, which would keep the manifest from being written
    if _fold(name.partition("/")[0]) == "manifest.json":
        raise JsonError(path, f"the name {name!r} is reserved")
    if _PLAIN.fullmatch(name):
        return
    reason = _fault_of(name)
    if reason is not None:
        raise JsonError(path, f"the name {name!r} {reason}")


def check_component(name: str, path: str) -> None:
    """Check a name that becomes part of file names, such as a split's: a relative name without ``/``.

    Raises:
        JsonError: it is not one.
    """
    check_relative_name(name, path)
    if "/" in name:
        raise JsonError(path, f"the name {name!r} holds a slash")


def check_split_name(name: str) -> None:
    """Check that a split's name can begin a file name on any system.

    Raises:
        ValueError: it cannot.
    """
    if _SPLIT_NAME.fullmatch(name) is None:
        raise ValueError(
            f"{name!r} cannot name a split: use up to 64 letters, digits, '.', '_', '-', the first a letter or digit"
        )


def check_distinct(names: Iterable[tuple[str, str]]) -> None:
    """Check that no two names are the same file, and none is the directory of another.

    Args:
        names: (name, JSON path) of each.

    Raises:
        JsonError: two are, or would be on a filesystem that folds case or composes letters.
    """
    files: dict[str, tuple[str, str]] = {}
    directories: dict[str, tuple[str, str]] = {}
    for name, path in names:
        folded = _fold(name)
        other = files.get(folded) or directories.get(folded)
        parent = folded
        while other is None and "/" in parent:
            parent = parent.rpartition("/")[0]
            other = files.get(parent)
            directories.setdefault(parent, (name, path))
        if other is not None:
            same = "is used twice" if other[0] == name else f"clashes with {other[0]!r} on some filesystems"
            raise JsonError(path, f"the name {name!r} {same} (also at {other[1]})")
        files[folded] = (name, path)


def _fold(name: str) -> str:
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _fault_of(name: str) -> str | None:
    if not name:
        return "is empty"
    if _SURROGATE.search(name):
        return "is not UTF-8"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    if _CONTROL.search(name):
        return "holds a control character"
    if "\\" in name:
        return "holds a backslash"
    if name.startswith("/"):
        return "is absolute"
    if _DRIVE.match(name):
        return "begins with a drive letter"
    for component in name.split("/"):
        if component in {"", ".", ".."}:
            return f"holds the component {component!r}"
        if component.startswith("."):
            return "holds a component that begins with a dot, which is reserved"
        if len(component.encode()) > MAX_COMPONENT_BYTES:
            return f"holds a component longer than {MAX_COMPONENT_BYTES} bytes"
    return None
