"""What a window over a dataset holds: of everything the readers will read, what comes next and fits; pure.

Rules:
    * What a reader needs next comes before what it needs later; several readers are served in turn.
    * What the window holds never exceeds its size.
    * What is there and no reader needs soon is dropped, to make room for what they need.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from shards.manifest import ShardEntry
from stager.tracker import bytes_of


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader is."""

    epoch: int
    """0-based."""
    num_passed: int
    """Shards of the epoch's sequence that it has done with."""
    sequence_of: Callable[[int], Sequence[ShardEntry]]
    """Gives the sequence of shards of an epoch."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What to do now."""

    wanted: tuple[ShardEntry, ...]
    """What the window should hold, most urgent first."""
    missing: tuple[ShardEntry, ...]
    """What of it is not there, most urgent first."""
    drop: tuple[ShardEntry, ...]
    """What is there and not wanted."""


def plan_window(places: Sequence[Place], staged: Mapping[str, ShardEntry], window_bytes: int) -> WindowPlan:
    """Decide what a window should hold.

    Args:
        places: of all readers; at least one.
        staged: what is there, by name.
        window_bytes: most that may be there.
    """
    wanted: dict[str, ShardEntry] = {}
    room = window_bytes
    for shard in _upcoming(places):
        if shard.name in wanted:
            continue
        room -= bytes_of(shard)
        if room < 0:
            break
        wanted[shard.name] = shard
    return WindowPlan(
        wanted=tuple(wanted.values()),
        missing=tuple(shard for name, shard in wanted.items() if name not in staged),
        drop=tuple(shard for name, shard in staged.items() if name not in wanted),
    )


def least_window_bytes(sequence: Sequence[ShardEntry], window_shards: int) -> int:
    """Give the least window that a reader can work with: the shards that it shuffles among each other, and one more.

    Args:
        sequence: of an epoch.
        window_shards: how many shards the reader needs at once.
    """
    width = window_shards + 1
    sizes = [bytes_of(shard) for shard in sequence]
    if len(sizes) <= width:
        return sum(sizes)
    # the worst case of any epoch, whose sequence is another one
    return sum(sorted(sizes)[-width:])


def _upcoming(places: Sequence[Place]) -> Iterator[ShardEntry]:
    """Yield what the readers need, in turn, through the end of the next epoch; with repetitions."""
    walks = [_walk(place) for place in places]
    while walks:
        for walk in list(walks):
            shard = next(walk, None)
            if shard is None:
                walks.remove(walk)
            else:
                yield shard


def _walk(place: Place) -> Iterator[ShardEntry]:
    yield from place.sequence_of(place.epoch)[place.num_passed :]
    yield from place.sequence_of(place.epoch + 1)
