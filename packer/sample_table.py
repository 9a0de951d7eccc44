"""Finds the sample of a key among millions; pure.

Keys that fold to the same text are the same entry. The table holds a hash of each folded key and not its text, which
would be the biggest part of a plan's memory; equality is always decided by the keys themselves.
"""

import unicodedata
from collections.abc import Callable, Sequence

from packer.columns import TextColumn


def fold_key(key: str) -> str:
    """Fold what some filesystems do not tell apart: case and Unicode composition."""
    if key.isascii():
        folded = key.lower()
    else:
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold())
    return key if folded == key else folded  # one string in memory instead of two, for most keys


class SampleTable:
    """Numbers keys in the order they are first seen.

    Args:
        fold: makes equal what shall be one entry.
        hash_of: of a folded key; only tests need another than the default. It may differ from run to run.
    """

    __slots__ = ("_fold", "_hash_of", "_numbers", "keys")

    def __init__(self, fold: Callable[[str], str], hash_of: Callable[[str], int] = hash) -> None:
        self.keys = TextColumn()
        """First key seen of each entry."""
        self._fold = fold
        self._hash_of = hash_of
        self._numbers: dict[int, int] = {}

    def find_or_add(self, key: str) -> int:
        """Number of a key's entry; it is :attr:`keys`' length before the call if the entry is new."""
        folded = self._fold(key)
        place, keys = self._hash_of(folded), self.keys
        while True:
            number = self._numbers.setdefault(place, len(keys))
            if number == len(keys):
                keys.append(key)
                return number
            other = keys[number]
            if other == key or self._fold(other) == folded:
                return number
            place += 1  # another key with the same hash

    def add_if_new(self, keys: Sequence[str]) -> bool:
        """Add keys in one go if all are certainly new and differ; otherwise nothing is added."""
        places = [*map(self._hash_of, map(self._fold, keys))]
        distinct = set(places)
        # an entry that was moved on from its place had found another there, so a free place proves a new key
        if len(distinct) < len(keys) or not self._numbers.keys().isdisjoint(distinct):
            return False
        start = len(self.keys)
        self._numbers.update(zip(places, range(start, start + len(keys)), strict=True))
        self.keys.extend(keys)
        return True
