"""Which of the wanted shards are there, in the order in which they are wanted; counts, nothing else; pure."""

from collections.abc import Iterable, Sequence

from shards.manifest import ShardEntry


def bytes_of(shard: ShardEntry) -> int:
    """Size of a shard with its index."""
    return shard.size_bytes + shard.index_size_bytes


class Tracker:
    """Counts staged shards, and those that are there without a gap from the first on.

    Args:
        wanted: the shards in the order of fetching.
        staged: names of those that are there.
    """

    def __init__(self, wanted: Sequence[ShardEntry], staged: Iterable[str] = ()) -> None:
        self.num_shards = len(wanted)
        self.size_bytes = sum(bytes_of(shard) for shard in wanted)
        self.num_staged = 0
        self.staged_bytes = 0
        self.num_ready = 0
        self.ready_bytes = 0
        self._wanted = wanted
        self._sizes = {shard.name: bytes_of(shard) for shard in wanted}
        self._staged: set[str] = set()
        for name in staged:
            self.add(name)

    @property
    def is_complete(self) -> bool:
        """Whether all that is wanted is there."""
        return self.num_staged == self.num_shards

    def has(self, name: str) -> bool:
        """Whether a shard is there."""
        return name in self._staged

    def add(self, name: str) -> None:
        """Count a shard that is there now."""
        if name in self._staged or name not in self._sizes:
            return
        self._staged.add(name)
        self.num_staged += 1
        self.staged_bytes += self._sizes[name]
        while self.num_ready < self.num_shards and self._wanted[self.num_ready].name in self._staged:
            self.ready_bytes += bytes_of(self._wanted[self.num_ready])
            self.num_ready += 1

    def remove(self, name: str) -> None:
        """Take back a shard that is not there any more. What was ready once stays counted: training has passed it."""
        if name in self._staged:
            self._staged.remove(name)
            self.num_staged -= 1
            self.staged_bytes -= self._sizes[name]
