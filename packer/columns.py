"""Columns of many short values in one piece of memory; pure.

A list holds an object for each value: 33 bytes and more for bytes, 49 and more for text, plus a pointer. A plan of
millions of files has no room for that. Here a value costs its own bytes and 8 for where it ends; reading one makes the
object anew. Values can be appended and never changed. Many are read and appended at once in a fraction of the time.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import le
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[Any]
"""A column of numbers, of whatever integer type it has."""

_SPAN = 65536
"""Values that are looked at together, and are objects in memory for that time."""


def number_column(values: Numbers) -> "array[int]":
    """Numbers below 2**32, four bytes each."""
    column = array("I")
    column.frombytes(values.astype(np.uint32).tobytes())
    return column


class _Column:
    """Bytes of all values, one behind the other, and where each begins and ends."""

    __slots__ = ("_bounds", "_data")

    def __init__(self) -> None:
        self._data = bytearray()
        self._bounds = array("Q", [0])

    @property
    def data(self) -> bytearray:
        """All values, one behind the other; only to be read."""
        return self._data

    @property
    def bounds(self) -> Numbers:
        """Where in :attr:`data` each value begins, and at last where they end; nothing may be appended meanwhile."""
        return np.asarray(self._bounds)

    def is_ascending(self) -> bool:
        """Whether no value comes before its neighbour on the left, by its bytes (for text: by its code points)."""
        for start in range(0, len(self), _SPAN):
            values = self._cut(slice(start, start + _SPAN + 1))
            if not all(map(le, values, values[1:])):
                return False
        return True

    def order(self) -> Sequence[int]:
        """Numbers of the values in ascending order of their bytes; a range, which takes no memory, if they ascend."""
        if self.is_ascending():
            return range(len(self))
        values = self._cut(slice(None))
        return array("I", sorted(range(len(values)), key=values.__getitem__))

    def _cut(self, numbers: "slice | Numbers") -> list[bytearray]:
        """The bytes of some values."""
        bounds, data = self.bounds, self._data
        starts, ends = bounds[:-1][numbers].tolist(), bounds[1:][numbers].tolist()
        return [data[start:end] for start, end in zip(starts, ends, strict=True)]

    def _extend(self, values: Sequence[bytes]) -> None:
        ends = np.cumsum(np.fromiter(map(len, values), np.uint64, len(values)), dtype=np.uint64) + np.uint64(
            len(self._data)
        )
        self._data += b"".join(values)
        self._bounds.frombytes(ends.tobytes())

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
        for start in range(0, len(self), _SPAN):
            yield from self._cut(slice(start, start + _SPAN))


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

    def extend(self, values: Sequence[bytes]) -> None:
        """Add many values at the end: much quicker than one by one."""
        self._extend(values)

    def take(self, numbers: Numbers) -> list[bytes]:
        """The values with some numbers."""
        return list(map(bytes, self._cut(numbers)))

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> list[bytes]: ...
    def __getitem__(self, number: int | slice) -> bytes | list[bytes]:
        if isinstance(number, slice):
            return list(map(bytes, self._cut(number)))
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

    def extend(self, values: Sequence[str]) -> None:
        """Add many values at the end: much quicker than one by one."""
        self._extend([value.encode("utf-8", "surrogateescape") for value in values])

    def take(self, numbers: Numbers) -> list[str]:
        """The values with some numbers."""
        return [value.decode("utf-8", "surrogateescape") for value in self._cut(numbers)]

    def take_bytes(self, numbers: "slice | Numbers") -> list[bytearray]:
        """The UTF-8 of the values with some numbers."""
        return self._cut(numbers)

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [value.decode("utf-8", "surrogateescape") for value in self._cut(number)]
        return self._at(number).decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        for value in self._all():
            yield value.decode("utf-8", "surrogateescape")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
