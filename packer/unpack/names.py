"""From the key and extension of a member to the file it becomes; pure.

A member's name comes from a dataset that somebody else may have made. It becomes a list of plain components, or it is
refused: nothing here ever leaves the directory that is extracted into.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b

import numpy as np

from packer.sample_table import fold_key
from shards.keys import member_name

MAX_COMPONENT_BYTES = 255
MAX_PATH_BYTES = 4095
"""The longest path that Linux opens."""

_REFUSED = {"": "an empty component", ".": "the component .", "..": "the component .."}


@dataclass(frozen=True, slots=True)
class Selection:
    """Which members are wanted: those of the keys, those named, those that match a pattern; all if nothing is said."""

    keys: frozenset[str] = frozenset()
    """Keys (all members) or names ``KEY.EXT`` (one member)."""
    globs: tuple[str, ...] = ()
    """Shell patterns for ``KEY.EXT``; ``*`` also matches ``/``."""

    @property
    def is_all(self) -> bool:
        """Whether everything is wanted."""
        return not self.keys and not self.globs

    def wants(self, key: str, extension: str) -> bool:
        """Whether a member is wanted."""
        if self.is_all or key in self.keys:
            return True
        name = member_name(key, extension)
        return name in self.keys or any(fnmatchcase(name, glob) for glob in self.globs)


def unescape_dots(key: str) -> str:
    """Undo :func:`packer.group.escape_dots`: ``%2E`` is a dot and ``%25`` a per cent sign in the base name."""
    directory, slash, base = key.rpartition("/")
    # in this order: what %25 gives back must not be read again
    return f"{directory}{slash}{'%'.join(part.replace('%2E', '.') for part in base.split('%25'))}"


def file_parts(key: str, extension: str) -> tuple[str, ...]:
    """Components of the path that a member gets, below the target.

    Raises:
        ValueError: the name would lead elsewhere, or no file can have it.
    """
    name = member_name(key, extension)
    parts = tuple(name.split("/"))
    if "\0" in name:
        raise ValueError("a zero byte")
    for part in parts:
        reason = _REFUSED.get(part)
        if reason is not None:
            raise ValueError(reason)
        if len(_encode(part)) > MAX_COMPONENT_BYTES:
            raise ValueError(f"a component longer than {MAX_COMPONENT_BYTES} bytes")
    if len(_encode(name)) > MAX_PATH_BYTES:
        raise ValueError(f"a path longer than {MAX_PATH_BYTES} bytes")
    return parts


class Collisions:
    """Finds names that would be the same file, with 8 bytes of memory a name.

    Args:
        folds: also names that differ only in case or Unicode composition are the same.
    """

    def __init__(self, *, folds: bool) -> None:
        self._folds = folds
        self._hashes = array("Q")

    def add(self, name: str) -> None:
        """Take a name."""
        self._hashes.append(self._hash(name))

    def find(self, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Give pairs that collide.

        Args:
            names: all that were added, again.
        """
        hashes = np.sort(np.frombuffer(self._hashes, np.uint64)) if self._hashes else np.zeros(0, np.uint64)
        suspects = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        if not suspects:
            return
        first: dict[str, str] = {}
        for name in names:
            if self._hash(name) in suspects:
                folded = self._fold(name)
                if folded in first:
                    yield first[folded], name
                first.setdefault(folded, name)

    def _fold(self, name: str) -> str:
        return fold_key(name) if self._folds else name

    def _hash(self, name: str) -> int:
        return int.from_bytes(blake2b(_encode(self._fold(name)), digest_size=8).digest(), "little")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
