"""Sizes, times and counts as a user writes and reads them.

Rules:
    * A value is parsed once, at the command line, into a number whose unit is in its name (``_bytes``, ``_seconds``).
    * ``64M`` is refused: half of the tools read it as powers of 1000, the other half as powers of 1024.
    * Output never depends on the locale.
"""

import re
from fractions import Fraction
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    _IntType = click.ParamType[int]
    _FloatType = click.ParamType[float]
else:
    # click before 8.4 has no generic ParamType
    _IntType = _FloatType = click.ParamType

_BYTE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "pb": 10**15,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "pib": 2**50,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
    "pi": 2**50,
}
_AMBIGUOUS_BYTE_UNITS = frozenset({"k", "m", "g", "t", "p"})
_SECOND_UNITS = {
    "": Fraction(1),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?\s*[A-Za-z]*\s*)+", re.ASCII)
_MAX_DIGITS = 30
"""More digits than any size or time has; bounds the work spent on a malicious argument."""


def parse_bytes(text: str) -> int:
    """Parse a size such as ``1000``, ``64MiB``, ``64Mi`` or ``1.5GB`` into bytes.

    Raises:
        ValueError: the text is no size, its unit is ambiguous (``64M``) or it is not a whole number of bytes.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or len(text) > _MAX_DIGITS:
        raise ValueError(f"{text!r} is not a size; write for instance 1000, 64MiB or 1.5GB")
    number, unit = match[1], match[2]
    if unit.lower() in _AMBIGUOUS_BYTE_UNITS:
        letter = unit.upper()
        raise ValueError(f"{text!r} is ambiguous; write {number}{letter}iB (of 1024) or {number}{letter}B (of 1000)")
    factor = _BYTE_UNITS.get(unit.lower())
    if factor is None:
        raise ValueError(f"{text!r} has the unknown unit {unit!r}; use KiB, MiB, GiB, TiB or KB, MB, GB, TB")
    size_bytes = Fraction(number) * factor
    if size_bytes.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(size_bytes)


def parse_seconds(text: str) -> float:
    """Parse a time such as ``90``, ``500ms``, ``30s``, ``15m``, ``1h30m`` or ``2d`` into seconds.

    Raises:
        ValueError: the text is no time.
    """
    if _DURATION.fullmatch(text.strip()) is None or len(text) > _MAX_DIGITS:
        raise ValueError(f"{text!r} is not a time; write for instance 30s, 15m or 1h30m")
    parts = _QUANTITY.findall(text)
    if len(parts) > 1 and any(not unit for _, unit in parts):
        raise ValueError(f"{text!r} is not a time: each of its numbers needs a unit, as in 1h30m")
    seconds = Fraction(0)
    for number, unit in parts:
        factor = _SECOND_UNITS.get(unit.lower())
        if factor is None:
            raise ValueError(f"{text!r} has the unknown unit {unit!r}; use ms, s, m, h or d")
        seconds += Fraction(number) * factor
    return float(seconds)


class ByteSize(_IntType):
    """Command line value in bytes: ``64MiB``, ``1.5GB``, ``1000``.

    Args:
        min_bytes: smallest value that is accepted.
    """

    name = "size"

    def __init__(self, min_bytes: int = 0) -> None:
        self.min_bytes = min_bytes

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Turn text, or a default that is a number already, into bytes."""
        try:
            size_bytes = value if isinstance(value, int) else parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if size_bytes < self.min_bytes:
            self.fail(f"{value} is too small, the least is {format_bytes(self.min_bytes)}", param, ctx)
        return size_bytes


class Duration(_FloatType):
    """Command line value in seconds: ``30s``, ``15m``, ``1h30m``, ``90``."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn text, or a default that is a number already, into seconds."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return parse_seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def format_bytes(num_bytes: int) -> str:
    """Render a size for reading: ``0 B``, ``1023 B``, ``1.5 KiB``, ``21.4 MiB``; three significant digits or more."""
    if abs(num_bytes) < 1024:
        return f"{num_bytes} B"
    value = float(num_bytes)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        # compares the rounded value, or 1023.99 KiB would be shown as "1024.0 KiB"
        if abs(round(value, 1)) < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} EiB"


def format_count(count: int) -> str:
    """Render a count with commas between groups of three digits: ``6,223``."""
    return f"{count:,}"


def format_seconds(seconds: float) -> str:
    """Render a time for reading: ``0.25 s``, ``12.3 s``, ``4 min 05 s``, ``2 h 03 min``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
