"""Columns of many short values in one piece of memory; pure.

A list holds an object for each value: 33 bytes and more for bytes, 49 and more for text, plus a pointer. A plan of
millions of files has no room for that. Here a value costs its own bytes and 8 for where it ends; reading one makes the
object anew. Values can be appended and never changed.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import overload


class _Column:
    """Bytes of all values, one behind the other, and where each begins and ends."""

    __slots__ = ("_bounds", "_data")

    def __init__(self) -> None:
        self._data = bytearray()
        self._bounds = array("Q", [0])

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def _at(self, number: int) -> bytearray:
        if number < 0:
            number += len(self)
            if number < 0:
                raise IndexError(number)
        bounds = self._bounds
        return self._data[bounds[number] : bounds[number + 1]]

    def _all(self) -> Iterator[bytearray]:
        start = 0
        for end in islice(self._bounds, 1, None):
            yield self._data[start:end]
            start = end


class BytesColumn(_Column, Sequence[bytes]):
    """Values that are bytes."""

    __slots__ = ()

    def __init__(self, values: Iterable[bytes] = ()) -> None:
        super().__init__()
        for value in values:
            self.append(value)

    def append(self, value: bytes) -> None:
        """Add a value at the end."""
        self._data += value
        self._bounds.append(len(self._data))

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> list[bytes]: ...
    def __getitem__(self, number: int | slice) -> bytes | list[bytes]:
        if isinstance(number, slice):
            return [self[place] for place in range(*number.indices(len(self)))]
        return bytes(self._at(number))

    def __iter__(self) -> Iterator[bytes]:
        return map(bytes, self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class TextColumn(_Column, Sequence[str]):
    """Values that are text; lone surrogates stand for bytes that are not UTF-8."""

    __slots__ = ()

    def __init__(self, values: Iterable[str] = ()) -> None:
        super().__init__()
        for value in values:
            self.append(value)

    def append(self, value: str) -> None:
        """Add a value at the end."""
        self._data += value.encode("utf-8", "surrogateescape")
        self._bounds.append(len(self._data))

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[place] for place in range(*number.indices(len(self)))]
        return self._at(number).decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        for value in self._all():
            yield value.decode("utf-8", "surrogateescape")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
