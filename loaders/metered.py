"""Samples that measure their own reads, for some of the batches; see :mod:`loaders.io_metrics`."""

from collections.abc import Sequence
from time import perf_counter

from loaders.dataset import Dataset
from loaders.reader import OpenShard
from loaders.sample import Sample


class ReadMeter:
    """What reading the members of some samples has cost."""

    __slots__ = ("num_bytes", "read_seconds", "verify_seconds")

    def __init__(self) -> None:
        self.read_seconds = 0.0
        self.verify_seconds = 0.0
        self.num_bytes = 0


class MeteredShard:
    """An open shard whose reads are measured; stands for it behind a :class:`loaders.sample.Sample`."""

    __slots__ = ("_meter", "_shard")

    def __init__(self, shard: OpenShard, meter: ReadMeter) -> None:
        """Measure a shard's reads.

        Args:
            shard: to read from.
            meter: to add to.
        """
        self._shard = shard
        self._meter = meter

    def key(self, row: int) -> str:
        """Give the key of a sample."""
        return self._shard.key(row)

    def origin(self, row: int) -> str:
        """Say where a sample lies, for messages."""
        return self._shard.origin(row)

    @property
    def path(self) -> str:
        """Of the shard."""
        return self._shard.path

    def extensions(self, row: int) -> tuple[str, ...]:
        """Give the extensions of a sample's members, in shard order."""
        return self._shard.extensions(row)

    def read(self, row: int, extension: str) -> bytes | None:
        """Copy a member's bytes; None when the sample has no such member."""
        meter, shard = self._meter, self._shard
        started = perf_counter()
        found = shard.read_unverified(row, extension)
        read = perf_counter()
        meter.read_seconds += read - started
        if found is None:
            return None
        member, data = found
        meter.num_bytes += len(data)
        if shard.verifies_crc:
            shard.check(member, row, data)
            meter.verify_seconds += perf_counter() - read
        return data

    def read_all(self, row: int) -> dict[str, bytes]:
        """Copy all members of a sample, in shard order."""
        members = ((extension, self.read(row, extension)) for extension in self._shard.extensions(row))
        return {extension: data for extension, data in members if data is not None}

    def view(self, row: int, extension: str) -> memoryview | None:
        """Give a member's bytes in place; what the views cost is seen where the pages are touched, not here."""
        data = self._shard.view(row, extension)
        self._meter.num_bytes += 0 if data is None else len(data)
        return data


def metered_samples(dataset: Dataset, positions: Sequence[int], meter: ReadMeter) -> list[Sample]:
    """Give samples whose reads are added to a meter.

    Args:
        dataset: of which.
        positions: in the dataset.
        meter: to add to.
    """
    numbers = dataset.numbers
    located = (dataset.locate(position) for position in positions)
    return [
        Sample(MeteredShard(shard, meter), row, numbers[position])
        for position, (shard, row) in zip(positions, located, strict=True)
    ]
