"""Which shards of a dataset a node wants: splits, patterns of names, and its part among several nodes; pure.

Stager and loaders ask the same function, so that what one brings is what the other expects. The parts of all nodes are
disjoint, together they are everything, and in each split their numbers of shards differ by one at most; see
:mod:`shards.rendezvous`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the manifest's modules are not needed to say what is wanted
    from shards.manifest import Manifest, ShardEntry, SplitEntry

MAX_NODES = 65536
"""More nodes than any job has; bounds the work that a wrong number causes."""


@dataclass(frozen=True, slots=True)
class NodePart:
    """One node's part: ``index`` of ``count`` nodes."""

    index: int
    """0-based."""
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_NODES:
            raise ValueError(f"a dataset can be divided among 1 to {MAX_NODES} nodes, not {self.count}")
        if not 0 <= self.index < self.count:
            raise ValueError(f"of {self.count} nodes, the first is 0 and the last {self.count - 1}, not {self.index}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is wanted; everything when nothing is said. The fields narrow one another, in this order."""

    splits: tuple[str, ...] = ()
    """Names of splits; all when empty."""
    globs: tuple[str, ...] = ()
    """Patterns of shard names, one of which must match; all shards when empty. A pattern without ``/`` is compared
    with the last component of the name, one with ``/`` with the whole; ``*`` passes ``/``."""
    part: NodePart | None = None
    """This node's part of what is left of each split."""

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out, whatever the dataset."""
        return not self.splits and not self.globs and (self.part is None or self.part.count == 1)

    def to_text(self) -> str:
        """Write as one line, ``all`` or for instance ``split=train rank=0/4``."""
        texts = [f"split={name}" for name in self.splits]
        texts += [f"glob={pattern}" for pattern in self.globs]
        if self.part is not None:
            texts.append(f"rank={self.part.index}/{self.part.count}")
        return " ".join(texts) or "all"


ALL = Selection()
"""Everything."""


def select_shards(manifest: "Manifest", selection: Selection) -> "tuple[tuple[SplitEntry, ShardEntry], ...]":
    """Give the wanted shards with their splits, in the manifest's order.

    Raises:
        ValueError: the dataset has no split of a wanted name; the message lists those it has.
    """
    splits = [manifest.split(name) for name in selection.splits]
    chosen = []
    for split in manifest.splits:
        if splits and split not in splits:
            continue
        shards = [shard for shard in split.shards if _matches(shard.name, selection.globs)]
        if selection.part is not None:
            shards = _part_of(shards, selection.part)
        chosen += [(split, shard) for shard in shards]
    return tuple(chosen)


def _part_of(shards: "Sequence[ShardEntry]", part: NodePart) -> "list[ShardEntry]":
    if part.count == 1:
        return list(shards)
    from shards.rendezvous import select_shards as select_places  # noqa: PLC0415 (numpy: few runs need it)

    return [shards[place] for place in select_places([shard.name for shard in shards], part.index, part.count)]


def _matches(name: str, globs: Sequence[str]) -> bool:
    base = name.rpartition("/")[2]
    return not globs or any(fnmatchcase(name if "/" in pattern else base, pattern) for pattern in globs)
