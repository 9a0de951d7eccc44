"""Groups the members of a shard into samples, strictly; pure.

Members of one sample lie next to each other. What does not fit raises
:class:`shards.errors.SampleGroupError` with shard and offset, because the other choice is a half sample:

* a key that re-appears after another sample, also far apart;
* two members of a sample whose extensions are equal in lower case;
* a shard with members of which none belongs to a sample.

A member without a key (no extension, hidden, AppleDouble) belongs to no sample. It is counted with its reason, and
does not end the sample it stands in.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from shards.errors import SampleGroupError, printable
from shards.keys import FIRST_DOT, Keyless, KeylessReason, KeyRule, split_name

Payload = TypeVar("Payload")

KEPT_KEYLESS_NAMES = 20
"""How many names of keyless members are kept for a report; the rest are only counted."""


@dataclass(frozen=True, slots=True)
class GroupedSample(Generic[Payload]):
    """The members of one sample."""

    key: str
    offset: int
    """Of its first member, as given to the grouper."""
    members: tuple[tuple[str, Payload], ...]
    """(extension in lower case, what the caller gave), in shard order."""


class SampleGrouper(Generic[Payload]):
    """Collects members in shard order and gives back each sample once its last member is known."""

    def __init__(self, shard: str, rule: KeyRule = FIRST_DOT) -> None:
        """Start a shard.

        Args:
            shard: its name, for messages.
            rule: how names are split.
        """
        self.keyless: Counter[KeylessReason] = Counter()
        """Members that belong to no sample, by reason."""
        self.keyless_names: list[str] = []
        """Their first names, printable."""
        self.num_others = 0
        """Members that have no data (directories, links, devices), counted by the caller; tells a shard without samples
        from an empty one."""
        self._shard = shard
        self._rule = rule
        self._seen: set[str] = set()
        self._key: str | None = None
        self._offset = 0
        self._members: list[tuple[str, Payload]] = []
        self._names: dict[str, str] = {}

    @property
    def num_keyless(self) -> int:
        """Count of members that belong to no sample."""
        return self.keyless.total()

    def add(self, name: str, offset: int, payload: Payload) -> GroupedSample[Payload] | None:
        """Take the next member.

        Args:
            name: as stored.
            offset: where the member starts, in bytes from the start of the shard.
            payload: given back in the sample.

        Returns:
            The sample before, when this member begins another one.

        Raises:
            SampleGroupError: the key was there before, or the extension is there already.
        """
        split = split_name(name, self._rule)
        if isinstance(split, Keyless):
            self.keyless[split.reason] += 1
            if len(self.keyless_names) < KEPT_KEYLESS_NAMES:
                self.keyless_names.append(printable(name))
            return None
        key, extension = split
        finished = None
        if key != self._key:
            if key in self._seen:
                raise SampleGroupError(
                    self._shard,
                    offset,
                    f"key re-appears: {printable(key)} (member {printable(name)}) after other samples; the members "
                    "of a sample must lie next to each other; sort the files by name and pack them again",
                )
            finished = self._take()
            self._seen.add(key)
            self._key = key
            self._offset = offset
        elif extension in self._names:
            raise SampleGroupError(
                self._shard,
                offset,
                f"extension twice: {printable(key)} {printable(extension)}, from the members "
                f"{printable(self._names[extension])} and {printable(name)}",
            )
        self._members.append((extension, payload))
        self._names[extension] = name
        return finished

    def finish(self) -> GroupedSample[Payload] | None:
        """End the shard. Call it only when the shard is known to be whole: a cut one would give a half sample.

        Returns:
            The last sample; None for a shard without members.

        Raises:
            SampleGroupError: there were members and no sample.
        """
        last = self._take()
        if last is None and (self.keyless or self.num_others):
            reasons = [f"{count} {reason.value}" for reason, count in self.keyless.items()]
            if self.num_others:
                reasons.append(f"{self.num_others} directories, links or devices")
            names = f": {', '.join(self.keyless_names)}" if self.keyless_names else ""
            raise SampleGroupError(
                self._shard,
                None,
                f"members but no sample ({', '.join(reasons)}){names}; a sample needs names like key.jpg",
            )
        self._key = None
        return last

    def _take(self) -> GroupedSample[Payload] | None:
        if self._key is None:
            return None
        sample = GroupedSample(self._key, self._offset, tuple(self._members))
        self._members = []
        self._names = {}
        return sample


def group_samples(
    members: Iterable[tuple[str, int, Payload]], shard: str, rule: KeyRule = FIRST_DOT
) -> Iterator[GroupedSample[Payload]]:
    """Group (name, offset, payload) of members into samples; see :class:`SampleGrouper`.

    Raises:
        SampleGroupError: the members do not form samples.
    """
    grouper: SampleGrouper[Payload] = SampleGrouper(shard, rule)
    for name, offset, payload in members:
        finished = grouper.add(name, offset, payload)
        if finished is not None:
            yield finished
    last = grouper.finish()
    if last is not None:
        yield last
