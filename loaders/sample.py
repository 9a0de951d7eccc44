"""One training example: a key and its members, read when they are asked for.

Rules:
    * A sample is a small handle (shard, row); a member's bytes are read at ``sample["jpg"]``, not before. Whoever
      wants only the labels reads only the labels.
    * It stays readable after the dataset is closed, for it keeps its shard open.
    * Pickling reads all members: what arrives in the other process no longer depends on files.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar, overload

from shards.errors import MissingMemberError, printable

Default = TypeVar("Default")

KEY_FIELD = "__key__"
"""Field of a sample's key among its members, as webdataset and our TFRecords call it."""


class SampleStore(Protocol):
    """Where a sample's bytes come from: an open shard, or memory for a sample that was sent by pickle."""

    def key(self, row: int) -> str:
        """Give the key of a sample."""
        ...

    def extensions(self, row: int) -> tuple[str, ...]:
        """Give the extensions of a sample's members, in shard order."""
        ...

    def read(self, row: int, extension: str) -> bytes | None:
        """Copy a member's bytes; None when the sample has no such member."""
        ...

    def read_all(self, row: int) -> dict[str, bytes]:
        """Copy all members of a sample, in shard order."""
        ...

    def view(self, row: int, extension: str) -> memoryview | None:
        """Give a member's bytes in place, read-only; None when the sample has no such member."""
        ...

    def origin(self, row: int) -> str:
        """Say where a sample lies, for messages."""
        ...

    @property
    def path(self) -> str:
        """Of the shard, empty when there is none any more."""
        ...


class Sample(Mapping[str, bytes]):
    """A read-only mapping from extension to bytes, in shard order, with a key and a number.

    ``sample["jpg"]`` raises :class:`shards.errors.MissingMemberError`, which lists what there is;
    ``sample.get("jpg")`` gives None. Extensions are lower case, as stored.
    """

    __slots__ = ("_number", "_row", "_store")

    def __init__(self, store: SampleStore, row: int, number: int) -> None:
        """Make a handle; datasets do this.

        Args:
            store: where the bytes are.
            row: place of the sample in the store.
            number: place of the sample in its split.
        """
        self._store = store
        self._row = row
        self._number = number

    @property
    def key(self) -> str:
        """Name of the sample within its split; bytes that are not UTF-8 are kept by surrogateescape."""
        return self._store.key(self._row)

    @property
    def number(self) -> int:
        """0-based place in the split, counted through its shards; the same in every slice of the dataset."""
        return self._number

    @property
    def shard_path(self) -> str:
        """The file that the sample lies in; empty for a sample that came from another process."""
        return self._store.path

    @property
    def origin(self) -> str:
        """Where the sample lies, for messages: shard and byte offset."""
        return self._store.origin(self._row)

    def __getitem__(self, extension: str) -> bytes:
        data = self._store.read(self._row, extension)
        if data is None:
            raise MissingMemberError(self.key, extension, self._store.extensions(self._row))
        return data

    def to_dict(self) -> dict[str, bytes]:
        """Read all members: extension to bytes, in shard order. Quicker than ``dict(sample)``."""
        return self._store.read_all(self._row)

    def view(self, extension: str) -> memoryview:
        """Give a member in place, without a copy.

        Returns:
            Read-only uint8 view into the shard's memory map. It keeps the map alive.

        Raises:
            MissingMemberError: the sample has no such member.
        """
        data = self._store.view(self._row, extension)
        if data is None:
            raise MissingMemberError(self.key, extension, self._store.extensions(self._row))
        return data

    @overload
    def get(self, extension: str, /) -> bytes | None: ...
    @overload
    def get(self, extension: str, /, default: bytes) -> bytes: ...
    @overload
    def get(self, extension: str, /, default: Default) -> bytes | Default: ...
    def get(self, extension: str, /, default: object = None) -> object:
        """Give a member's bytes, or the default when the sample has no such member."""
        data = self._store.read(self._row, extension)
        return default if data is None else data

    def __contains__(self, extension: object) -> bool:
        return extension in self._store.extensions(self._row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.extensions(self._row))

    def __len__(self) -> int:
        return len(self._store.extensions(self._row))

    def __repr__(self) -> str:
        return f"Sample(key={self.key!r}, number={self._number}, extensions={list(self)})"

    def __reduce__(self) -> tuple[type["Sample"], tuple["MemoryStore", int, int]]:
        return Sample, (MemoryStore(self.key, self.to_dict(), self.origin), 0, self._number)


def sample_to_dict(sample: Sample) -> dict[str, str | bytes]:
    """Turn a sample into ``{"__key__": key, extension: bytes, …}``, members in shard order."""
    return {KEY_FIELD: sample.key, **sample.to_dict()}


class BadSample(NamedTuple):
    """A sample that was left out."""

    key: str
    """Empty when the index does not give it."""
    origin: str
    """Shard and byte offset."""
    reason: str

    def __str__(self) -> str:
        return f"{printable(self.origin)}, key {printable(self.key)}: {printable(self.reason)}"


class MemoryStore:
    """One sample held in memory; the row is always 0."""

    __slots__ = ("_key", "_members", "_origin")

    path = ""

    def __init__(self, key: str, members: Mapping[str, bytes], origin: str = "in memory") -> None:
        """Hold a sample.

        Args:
            key: its key.
            members: extension to bytes, in shard order.
            origin: where it comes from, for messages.
        """
        self._key = key
        self._members = members
        self._origin = origin

    def key(self, row: int) -> str:
        """Give the key."""
        del row
        return self._key

    def extensions(self, row: int) -> tuple[str, ...]:
        """Give the extensions."""
        del row
        return tuple(self._members)

    def read(self, row: int, extension: str) -> bytes | None:
        """Give a member's bytes."""
        del row
        return self._members.get(extension)

    def read_all(self, row: int) -> dict[str, bytes]:
        """Give all members."""
        del row
        return dict(self._members)

    def view(self, row: int, extension: str) -> memoryview | None:
        """Give a member's bytes."""
        del row
        data = self._members.get(extension)
        return None if data is None else memoryview(data)

    def origin(self, row: int) -> str:
        """Say where the sample comes from."""
        del row
        return self._origin
