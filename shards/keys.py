"""Splits the name of a member into the key of its sample and its extension; pure.

The rule of WebDataset is the default: the key is the path up to the first dot of the *base name*, the extension is
the rest without that dot, in lower case. Dots in directories never count. Nothing is dropped in silence: a name that
belongs to no sample gives a :class:`Keyless` with the reason, which callers count and report.

The same for every rule, in this order:

1. Any leading ``./`` and ``/`` are stripped, however many. Names are names, never paths: ``..`` means nothing here.
2. A name that ends in ``/`` (or is empty) has no base name: ``empty-name``.
3. AppleDouble files (base name ``._…``, or anything below ``__MACOSX/``): ``apple-double``.
4. Other base names that begin with a dot: ``hidden``. A hidden *directory* does not matter.
5. The rule itself. Case is kept in keys (``b`` and ``B`` are two samples) and folded to lower case in extensions, so
   ``g.JPEG`` and ``g.jpeg`` give the same (key, extension): whoever groups them reports the collision.

Names are ``str``; bytes that are not UTF-8 are lone surrogates as made by ``surrogateescape``. No normalization:
NFC and NFD spellings of a name are two keys.
"""

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple

from shards.errors import KeyGrammarError


class KeylessReason(Enum):
    """Why a name belongs to no sample."""

    NO_EXTENSION = "no-extension"
    """The base name has no dot."""
    EMPTY_EXTENSION = "empty-extension"
    """Nothing follows the dot, or the extension group of a regular expression matched nothing."""
    HIDDEN = "hidden"
    """The base name begins with a dot."""
    APPLE_DOUBLE = "apple-double"
    """A resource fork that macOS adds to archives."""
    EMPTY_NAME = "empty-name"
    """There is no base name."""
    EMPTY_KEY = "empty-key"
    """The key group of a regular expression matched nothing."""
    RULE_MISMATCH = "rule-mismatch"
    """A regular expression does not match the whole name."""


class SampleName(NamedTuple):
    """What a name says: which sample, and which member of it.

    A named tuple, not a dataclass: it is made once for every member of a dataset and costs a third of the time.
    """

    key: str
    extension: str
    """Lower case, without the leading dot."""


class Keyless(NamedTuple):
    """A name that belongs to no sample."""

    reason: KeylessReason


@dataclass(frozen=True, slots=True)
class KeyRule:
    """How names are split. Made by :func:`parse_key_rule`."""

    kind: Literal["first-dot", "last-dot", "regex"]
    pattern: re.Pattern[str] | None = field(default=None)
    """Only of the kind ``regex``; has the groups ``key`` and ``extension`` and must match the whole name."""

    @property
    def text(self) -> str:
        """The text that :func:`parse_key_rule` turns into this rule again."""
        return self.kind if self.pattern is None else f"regex:{self.pattern.pattern}"


FIRST_DOT = KeyRule("first-dot")
LAST_DOT = KeyRule("last-dot")

_KEYLESS = {reason: Keyless(reason) for reason in KeylessReason}


def parse_key_rule(text: str) -> KeyRule:
    """Make a rule from ``first-dot``, ``last-dot`` or ``regex:PATTERN``.

    Raises:
        KeyGrammarError: an unknown rule, a pattern that is no regular expression, or one that lacks a group.
    """
    if text == "first-dot":
        return FIRST_DOT
    if text == "last-dot":
        return LAST_DOT
    if not text.startswith("regex:"):
        raise KeyGrammarError(text, "unknown key rule; use first-dot, last-dot or regex:PATTERN")
    try:
        pattern = re.compile(text.removeprefix("regex:"))
    except (re.error, RecursionError, OverflowError) as error:
        raise KeyGrammarError(text, f"not a regular expression: {error}") from error
    missing = [name for name in ("key", "extension") if name not in pattern.groupindex]
    if missing:
        groups = " and ".join(f"(?P<{name}>…)" for name in missing)
        raise KeyGrammarError(text, f"the pattern needs the named group {groups}")
    return KeyRule("regex", pattern)


def split_name(name: str, rule: KeyRule = FIRST_DOT) -> SampleName | Keyless:
    """Split the name of a member into key and extension, or say why it belongs to no sample."""
    while name.startswith(("/", "./")):
        name = name[1:] if name[0] == "/" else name[2:]
    base = name.rfind("/") + 1
    dot = name.find(".", base)
    if dot == base or base == len(name) or "__MACOSX/" in name:
        reason = _special_reason(name, base)
        if reason is not None:
            return _KEYLESS[reason]
    if rule.kind == "regex":
        return _split_by_pattern(name, rule)
    if rule.kind == "last-dot":
        dot = name.rfind(".", base)
    if dot < 0:
        return _KEYLESS[KeylessReason.NO_EXTENSION]
    extension = name[dot + 1 :]
    if not extension:
        return _KEYLESS[KeylessReason.EMPTY_EXTENSION]
    return SampleName(name[:dot], extension.lower())


def readers_agree(name: str) -> bool:
    """Whether readers that split at the first and at the last dot see the same sample and extension in ``name``."""
    return split_name(name, FIRST_DOT) == split_name(name, LAST_DOT)


def member_name(key: str, extension: str) -> str:
    """The name under which a member is stored."""
    return f"{key}.{extension}"


def is_storable(key: str, extension: str) -> bool:
    """Whether the stored name of a member gives its key and extension back under the first-dot rule.

    Other rules can make keys that no WebDataset reader would see again: with dots in the base name, a leading
    ``/``, an extension with a ``/`` or in upper case, a NUL anywhere.
    """
    name = member_name(key, extension)
    return "\0" not in name and split_name(name) == (key, extension)


def _special_reason(name: str, base: int) -> KeylessReason | None:
    if base == len(name):
        return KeylessReason.EMPTY_NAME
    if name.startswith("._", base) or name.startswith("__MACOSX/") or "/__MACOSX/" in name:
        return KeylessReason.APPLE_DOUBLE
    return KeylessReason.HIDDEN if name[base] == "." else None


def _split_by_pattern(name: str, rule: KeyRule) -> SampleName | Keyless:
    match = rule.pattern.fullmatch(name) if rule.pattern is not None else None
    if match is None:
        return _KEYLESS[KeylessReason.RULE_MISMATCH]
    key, extension = match["key"], match["extension"]
    if not key:
        return _KEYLESS[KeylessReason.EMPTY_KEY]
    if not extension:
        return _KEYLESS[KeylessReason.EMPTY_EXTENSION]
    return SampleName(key, extension.lower())
