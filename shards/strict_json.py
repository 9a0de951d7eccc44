"""JSON read strictly and written the same way every time; pure.

Read: UTF-8 only, no byte order mark, no NaN or infinities, no key twice in an object, bounded nesting. Every fault is
a :class:`JsonError` with the JSON path (``splits[0].shards[3].size_bytes``); callers turn it into an error that names
the file. Written: ASCII only, keys in the order given, objects and arrays of scalars on one line, so that a manifest
has one line a shard.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from shards.errors import printable

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"

MAX_DEPTH = 64
"""Nesting of a value that we keep for others. Ours needs six levels; Python's encoder gives up at a thousand."""

MAX_INTEGER = 2**63 - 1
"""Largest count or size: what every other language reads as a signed 64-bit integer."""


class JsonError(ValueError):
    """What is wrong with a JSON document, and where.

    Attributes:
        path: JSON path of the faulty value, ``""`` for the whole document.
        reason: what is wrong with it, one clause.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(printable(f"{path}: {reason}" if path else reason))

    def below(self, parent: str) -> "JsonError":
        """The same fault, seen from a value that holds this one under ``parent``."""
        separator = "." if parent and self.path and not self.path.startswith("[") else ""
        return JsonError(f"{parent}{separator}{self.path}", self.reason)


def parse_json(data: bytes) -> JsonValue:
    """Parse a whole document.

    Raises:
        JsonError: it is empty, cut, not UTF-8, or no strict JSON.
    """
    if not data.strip():
        raise JsonError("", "the file is empty")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError("", f"not UTF-8 at byte {error.start}") from error
    try:
        parsed: JsonValue = json.loads(
            text, object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite_float
        )
    except JsonError:
        raise
    except json.JSONDecodeError as error:
        raise JsonError("", f"no JSON, or cut: {error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise JsonError("", "nested too deeply") from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise JsonError("", "a number is too large") from error
    return parsed


def check_json(value: object, path: str) -> None:
    """Check that a value can be written as JSON and is not nested deeper than :data:`MAX_DEPTH`.

    Raises:
        JsonError: it cannot.
    """
    pending = [(value, path, 0)]
    while pending:
        node, where, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise JsonError(path, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, float) and not math.isfinite(node):
            raise JsonError(where, f"{node} is not a JSON number")
        if isinstance(node, Mapping):
            for key, child in node.items():
                if not isinstance(key, str):
                    raise JsonError(where, f"a key is {kind_of(key)}, not a string")
                pending.append((child, f"{where}.{key}" if where else key, depth + 1))
        elif isinstance(node, list | tuple):
            pending.extend((child, f"{where}[{place}]", depth + 1) for place, child in enumerate(node))
        elif node is not None and not isinstance(node, bool | int | float | str):
            raise JsonError(where, f"{type(node).__name__} is not a JSON type")


def kind_of(value: object) -> str:
    """The JSON name of a value's type, for messages."""
    if value is None:
        return "null"
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "a boolean"),
        (int, "an integer"),
        (float, "a number"),
        (str, "a string"),
        (Mapping, "an object"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "an array")


class JsonFields:
    """The fields of one JSON object, taken out one by one; what is left over at the end is unknown to us and kept."""

    def __init__(self, value: JsonValue, path: str) -> None:
        if not isinstance(value, dict):
            raise JsonError(path, f"expected an object, found {kind_of(value)}")
        self.path = path
        self._left: dict[str, JsonValue] = dict(value)

    def at(self, name: str) -> str:
        """JSON path of the field ``name``."""
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str) -> JsonValue:
        """Any value; it must be there."""
        if name not in self._left:
            raise JsonError(self.at(name), "missing")
        return self._left.pop(name)

    def string(self, name: str) -> str:
        """A string."""
        value = self.take(name)
        if not isinstance(value, str):
            raise JsonError(self.at(name), f"expected a string, found {kind_of(value)}")
        return value

    def count(self, name: str) -> int:
        """An integer from 0 to :data:`MAX_INTEGER`."""
        value = self.take(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise JsonError(self.at(name), f"expected an integer, found {kind_of(value)}")
        check_count(value, self.at(name))
        return value

    def expect(self, name: str, known: int) -> None:
        """An integer that says of which version this is: the one that this release knows."""
        found = self.count(name)
        if found != known:
            raise JsonError(self.at(name), f"is {found}, this release knows {known}")

    def number(self, name: str) -> float:
        """A finite number."""
        value = self.take(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise JsonError(self.at(name), f"expected a number, found {kind_of(value)}")
        if abs(value) > MAX_INTEGER:
            raise JsonError(self.at(name), "the number is too large")
        return float(value)

    def boolean(self, name: str) -> bool:
        """A boolean."""
        value = self.take(name)
        if not isinstance(value, bool):
            raise JsonError(self.at(name), f"expected a boolean, found {kind_of(value)}")
        return value

    def array(self, name: str) -> list[JsonValue]:
        """An array of anything."""
        value = self.take(name)
        if not isinstance(value, list):
            raise JsonError(self.at(name), f"expected an array, found {kind_of(value)}")
        return value

    def object(self, name: str) -> dict[str, JsonValue]:
        """An object of anything."""
        value = self.take(name)
        if not isinstance(value, dict):
            raise JsonError(self.at(name), f"expected an object, found {kind_of(value)}")
        return value

    def rest(self) -> dict[str, JsonValue]:
        """The fields that nobody took."""
        return self._left


def check_count(value: int, path: str) -> None:
    """Check that a count or a size lies in 0 … :data:`MAX_INTEGER`.

    Raises:
        JsonError: it does not.
    """
    if value < 0:
        raise JsonError(path, f"must not be negative, is {value}")
    if value > MAX_INTEGER:
        raise JsonError(path, "the number is too large")


def render_json(value: JsonValue, indent: str = "") -> str:
    """Write a value in the one layout of this project; the same value always gives the same text."""
    if not isinstance(value, Mapping | list | tuple) or _is_flat(value):
        return json.dumps(dict(value) if isinstance(value, Mapping) else value, ensure_ascii=True, allow_nan=False)
    inner = indent + "  "
    if isinstance(value, Mapping):
        lines = [f"{json.dumps(key)}: {render_json(child, inner)}" for key, child in value.items()]
        left, right = "{}"
    else:
        lines = [render_json(child, inner) for child in value]
        left, right = "[]"
    separator = ",\n" + inner
    return f"{left}\n{inner}{separator.join(lines)}\n{indent}{right}"


def _is_flat(value: Mapping[str, JsonValue] | Sequence[JsonValue]) -> bool:
    children = value.values() if isinstance(value, Mapping) else value
    return not any(isinstance(child, Mapping | list | tuple) for child in children)


def _unique_keys(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonError("", f"the key {key!r} appears twice in one object")
            seen.add(key)
    return value


def _no_constant(text: str) -> JsonValue:
    raise JsonError("", f"{text} is not a JSON number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError("", "a number is too large")
    return value
