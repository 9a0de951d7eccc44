"""Paths that every rule of the dot splits in the same place, recognised quickly: most paths are of this kind; pure.

They are ASCII, have one dot in the base name, neither first nor last, and nothing that :func:`shards.keys.split_name`
strips or refuses, that escaped dots would write in another way, or that WebDataset sees in another way.
"""

import re
from collections.abc import Sequence

_PLAIN = re.compile(r"^((?![./])(?:[^\n/]*/)*[^\n./]+)\.([^\n./]+)$", re.MULTILINE)


def plain_dot(path: bytes) -> int:
    """Where the dot of a plain path is; -1 for other paths."""
    dot = path.rfind(b".")
    base = path.rfind(b"/") + 1
    if not base < dot < len(path) - 1 or path.find(b".", base, dot) >= 0 or not path.isascii():
        return -1
    return -1 if path[0] in b"./" or b"__" in path or b"%" in path or b"\n" in path else dot


def split_plain(paths: Sequence[bytes]) -> list[tuple[str, str]] | None:
    """Split paths at their dots; None unless all are plain."""
    joined = b"\n".join(paths)
    if not joined.isascii() or b"__" in joined or b"%" in joined or joined.count(b"\n") >= len(paths):
        return None
    found: list[tuple[str, str]] = _PLAIN.findall(joined.decode("ascii"))
    return found if len(found) == len(paths) else None
