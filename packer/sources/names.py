"""Which names of a source are looked at: globs given by the user, and the leftovers that every source leaves out; pure.

A pattern without ``/`` is compared with the base name, at any depth. A pattern with ``/`` is compared with the whole
path relative to the source, where ``*`` and ``?`` stay within one component and ``**`` passes any number of them. A
directory that ``--exclude`` matches is left out with all that lies below.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packer.sources.files import SkipReason
from shards.errors import SourceError, list_offenders, printable


def leftover_reason(name: bytes) -> SkipReason | None:
    """Why one component of a path is left out by every source; None for a proper name."""
    if name == b"__MACOSX":
        return SkipReason.APPLE_DOUBLE
    if not name.startswith(b"."):
        return None
    if name.startswith(b"._") or name == b".DS_Store":
        return SkipReason.APPLE_DOUBLE
    return SkipReason.NFS_LEFTOVER if name.startswith(b".nfs") else SkipReason.HIDDEN


def leftover_path_reason(path: bytes) -> SkipReason | None:
    """Why a path is left out: the reason of its first component that has one."""
    if b"." not in path and b"__MACOSX" not in path:
        return None
    for component in path.split(b"/"):
        if (reason := leftover_reason(component)) is not None:
            return reason
    return None


def is_plain_path(path: bytes) -> bool:
    """Whether a path has only proper components, so that it leads nowhere but below the source."""
    return not path.startswith(b"/") and {b"", b".", b".."}.isdisjoint(path.split(b"/")) and b"\0" not in path


def raise_odd_paths(odd: Sequence[str], where: str) -> None:
    """Refuse names that no file below a directory can have.

    Raises:
        SourceError: there are some.
    """
    if odd:
        raise SourceError(
            f"{len(odd)} name(s) in {printable(where)} have empty, '.' or '..' components:\n"
            f"{list_offenders([printable(name) for name in odd])}\nrename them, or leave them out with --exclude"
        )


@dataclass(frozen=True, slots=True)
class Globs:
    """What ``--include`` and ``--exclude`` ask for."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


EVERYTHING = Globs()


class NameFilter:
    """Applies :class:`Globs` to paths, and knows which patterns never matched."""

    def __init__(self, globs: Globs) -> None:
        self.is_open = not (globs.include or globs.exclude)
        """Whether everything is admitted."""
        self._include = [(pattern, _compile(pattern)) for pattern in globs.include]
        self._exclude = [_compile(pattern) for pattern in globs.exclude]
        self._unused = set(globs.include)

    def admits(self, path: bytes) -> bool:
        """Whether a file is packed."""
        if self.is_open:
            return True
        # every pattern is tried, so that each knows whether it was of use
        found = [pattern for pattern, regex in self._include if regex.fullmatch(path)]
        self._unused.difference_update(found)
        return (bool(found) or not self._include) and not self._is_excluded(path)

    def excludes_directory(self, path: bytes) -> bool:
        """Whether a directory is left out with all that lies below."""
        return bool(self._exclude) and self._is_excluded(path)

    def admits_below(self, path: bytes) -> bool:
        """As :meth:`admits`, for sources that never meet the directories of a path by themselves."""
        if self.is_open:
            return True
        end = path.find(b"/")
        while self._exclude and end >= 0:
            if self._is_excluded(path[:end]):
                return False
            end = path.find(b"/", end + 1)
        return self.admits(path)

    def raise_unused(self) -> None:
        """Refuse include patterns that matched nothing: most likely they are misspelt.

        Raises:
            SourceError: there are some.
        """
        if self._unused:
            raise SourceError(
                f"{len(self._unused)} pattern(s) of --include match no file:\n"
                f"{list_offenders([printable(pattern) for pattern in sorted(self._unused)])}\n"
                "a pattern without / is compared with base names, one with / with whole paths below the source; "
                "case counts"
            )

    def _is_excluded(self, path: bytes) -> bool:
        return any(regex.fullmatch(path) for regex in self._exclude)


def _compile(pattern: str) -> re.Pattern[bytes]:
    """Translate a glob into a regular expression over whole paths."""
    parts = pattern.strip("/").split("/")
    if len(parts) == 1 and not pattern.startswith("/"):
        parts = ["**", *parts]
    text = ""
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if part == "**":
            text += ".*" if is_last else "(?:.*/)?"
        else:
            text += "".join(_translate(part)) + ("" if is_last else "/")
    return re.compile(text.encode("utf-8", "surrogateescape"), re.DOTALL)


def _translate(part: str) -> Iterable[str]:
    place = 0
    while place < len(part):
        char = part[place]
        place += 1
        end = part.find("]", place + 1) if char == "[" else -1
        if end >= 0:
            inside = part[place:end]
            negated = inside.startswith(("!", "^"))
            members = inside[1:] if negated else inside
            yield f"[{'^/' if negated else ''}{_escape_set(members)}]"
            place = end + 1
        elif char == "*":
            yield "[^/]*"
        elif char == "?":
            yield "[^/]"
        else:
            yield re.escape(char)


def _escape_set(members: str) -> str:
    return "".join(f"\\{char}" if char in "\\[]^&~|" else char for char in members)


def check_patterns(patterns: Sequence[str]) -> None:
    """Check patterns before any work.

    Raises:
        ValueError: one is empty or no pattern.
    """
    for pattern in patterns:
        if not pattern.strip("/"):
            raise ValueError(f"{pattern!r} is no pattern")
        try:
            _compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no pattern: {error}") from error
