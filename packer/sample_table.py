"""Finds the sample of a key among millions; pure.

Keys that fold to the same text are the same entry. The table holds a hash of each folded key and not its text, which
would be the biggest part of a plan's memory; equality is always decided by the keys themselves.
"""

from collections.abc import Callable

from packer.columns import TextColumn


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
