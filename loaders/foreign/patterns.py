"""Brace ranges, as users of webdataset write them: ``train-{000000..000127}.tar``, ``{train,extra}-0.tar``; pure."""

import itertools
import re
from collections.abc import Iterator

from shards.errors import LoadError, printable

MAX_NAMES = 1_000_000
"""More shards than this is a slip of the pen."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")


def expand_braces(pattern: str) -> list[str]:
    """Write a pattern with braces out.

    Args:
        pattern: ``{a..b}`` stands for all whole numbers from a to b, upwards or downwards, as wide as the wider of the
            two when one of them begins with a zero; ``{x,y}`` for each of the texts between the commas.

    Returns:
        All names, the last braces changing quickest; the pattern itself when it has no braces.

    Raises:
        LoadError: braces that do not match, nested ones, or more than :data:`MAX_NAMES` names.
    """
    pieces = _BRACES.split(pattern)
    if any("{" in piece or "}" in piece for piece in pieces[::2]):
        raise LoadError(f"{printable(pattern)}: braces must come in pairs and not within one another")
    choices = [[piece] if place % 2 == 0 else _choices(piece, pattern) for place, piece in enumerate(pieces)]
    total = 1
    for several in choices:
        total *= len(several)
    if total > MAX_NAMES:
        raise LoadError(f"{printable(pattern)} stands for {total} names, more than {MAX_NAMES}")
    return ["".join(parts) for parts in itertools.product(*choices)]


def _choices(inside: str, pattern: str) -> list[str]:
    numbers = _RANGE.fullmatch(inside)
    if numbers is None:
        if "," not in inside:
            raise LoadError(
                f"{printable(pattern)}: {{{printable(inside)}}} is neither a range such as {{000..127}} nor a list "
                "such as {train,extra}"
            )
        return inside.split(",")
    first, last = (int(number) for number in numbers.groups())
    if abs(last - first) >= MAX_NAMES:
        raise LoadError(f"{printable(pattern)} stands for more than {MAX_NAMES} names")
    return list(_numbers(first, last, _width(*numbers.groups())))


def _numbers(first: int, last: int, width: int) -> Iterator[str]:
    step = 1 if first <= last else -1
    for number in range(first, last + step, step):
        yield f"{number:0{width}d}"


def _width(first: str, last: str) -> int:
    has_zeros = any(len(digits) > 1 and digits.startswith("0") for digits in (first.lstrip("-"), last.lstrip("-")))
    return max(len(first), len(last)) if has_zeros else 0
