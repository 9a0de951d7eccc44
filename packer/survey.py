"""What a plan amounts to, in numbers: plan → facts; pure.

One pass over the samples. Nothing here judges: :mod:`packer.advise` does.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packer.cut import SizeFunction
from packer.labels import CLASS_EXTENSION
from packer.mixing import Mixing, measure_mixing
from packer.plan import PackPlan
from packer.sources.files import Skips
from packer.space import plan_space_bytes

SIZE_BOUNDS = (1, 512, 4 * 1024, 32 * 1024, 256 * 1024, 2 * 1024**2, 16 * 1024**2, 128 * 1024**2)
"""Upper bounds of the bins of file sizes, in bytes, not included; the last bin has no bound. The first bin is that of
empty files, the second of files that are smaller than their tar header."""

NAMED_SAMPLES = 20
"""How many keys are named of each kind of sample."""

COMPARED_KINDS = 20
"""How many of the most frequent kinds of samples another kind is compared with."""

ESTIMATED_SAMPLES = 10_000
"""Samples, evenly spread, from which the size in the other format is estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionFacts:
    """The members with one extension."""

    name: str
    num_present: int
    num_missing: int
    """Samples without one."""
    size_bytes: int
    largest_bytes: int


@dataclass(frozen=True, slots=True)
class SizeBin:
    """Source files of a range of sizes."""

    from_bytes: int
    below_bytes: int | None
    """None: no bound."""
    num_files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SampleKind:
    """Samples with the same extensions."""

    extensions: tuple[str, ...]
    num_samples: int
    keys: tuple[str, ...]
    """The first ones, :data:`NAMED_SAMPLES` at most."""
    missing: tuple[str, ...] = ()
    """What a more frequent kind has besides, so that these samples are probably incomplete."""


@dataclass(frozen=True, slots=True)
class SplitFacts:
    """One split."""

    name: str
    num_samples: int
    num_shards: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What a plan amounts to."""

    plan: PackPlan
    skips: Skips
    extensions: tuple[ExtensionFacts, ...]
    size_bins: tuple[SizeBin, ...]
    """Without empty bins at either end."""
    kinds: tuple[SampleKind, ...]
    """Most frequent first."""
    splits: tuple[SplitFacts, ...]
    mixing: Mixing | None
    space_bytes: int
    """On disk, indexes included."""
    other_sizes: tuple[tuple[str, int], ...]
    """(another format, about the bytes of its shards)."""

    @property
    def num_files(self) -> int:
        """Source files that are packed or were left out for their sample's sake."""
        return self.plan.num_files

    @property
    def member_bytes(self) -> int:
        """Bytes of all members, without headers and padding."""
        return sum(extension.size_bytes for extension in self.extensions)

    @property
    def overhead_bytes(self) -> int:
        """Bytes of the shards that are no member's."""
        return self.plan.size_bytes - self.member_bytes

    @property
    def overhead_share(self) -> float:
        """Part of the shards' bytes that is overhead, 0 to 1."""
        return self.overhead_bytes / max(self.plan.size_bytes, 1)

    @property
    def num_opens_saved(self) -> int:
        """Files that an epoch no longer opens."""
        return max(self.num_files - len(self.plan.shards), 0)

    @property
    def num_incomplete(self) -> int:
        """Samples that lack what more frequent ones have."""
        return sum(kind.num_samples for kind in self.kinds if kind.missing)


def survey_plan(plan: PackPlan, skips: Skips, other_formats: Sequence[tuple[str, SizeFunction]] = ()) -> PlanFacts:
    """Gather the facts of a plan.

    Args:
        plan: of the dataset.
        skips: what was left out.
        other_formats: (name, size function) of formats whose size is estimated for comparison.
    """
    extensions = _survey_extensions(plan)
    member_bytes = sum(extension.size_bytes for extension in extensions)
    return PlanFacts(
        plan=plan,
        skips=skips,
        extensions=extensions,
        size_bins=bin_sizes(map(plan.content.files.sizes.__getitem__, plan.content.samples.file_numbers)),
        kinds=_survey_kinds(plan),
        splits=_survey_splits(plan),
        mixing=measure_mixing(plan),
        space_bytes=plan_space_bytes(plan),
        other_sizes=tuple(
            (name, _estimate_size(plan, member_bytes, sample_size)) for name, sample_size in other_formats
        ),
    )


def bin_sizes(sizes: Iterable[int]) -> tuple[SizeBin, ...]:
    """Count sizes in bins; bins without files are left out at both ends."""
    counts = [0] * (len(SIZE_BOUNDS) + 1)
    totals = [0] * (len(SIZE_BOUNDS) + 1)
    for size in sizes:
        place = bisect_right(SIZE_BOUNDS, size)
        counts[place] += 1
        totals[place] += size
    used = [place for place, count in enumerate(counts) if count]
    lower, upper = (0, *SIZE_BOUNDS), (*SIZE_BOUNDS, None)
    return tuple(
        SizeBin(lower[place], upper[place], counts[place], totals[place])
        for place in range(min(used, default=0), max(used, default=-1) + 1)
    )


def find_missing(kind: frozenset[str], more_frequent: Sequence[frozenset[str]]) -> frozenset[str]:
    """What a kind of sample lacks: the first of more frequent kinds that has all of its extensions and more tells."""
    for other in more_frequent:
        if kind < other:
            return other - kind
    return frozenset()


def _survey_extensions(plan: PackPlan) -> tuple[ExtensionFacts, ...]:
    samples, sizes, classes = plan.content.samples, plan.content.files.sizes, plan.content.classes
    present, total, largest = ([0] * len(samples.extensions) for _ in range(3))
    for code, file in zip(samples.extension_codes, samples.file_numbers, strict=True):
        size = sizes[file]
        present[code] += 1
        total[code] += size
        largest[code] = max(largest[code], size)
    rows = [row for row in zip(samples.extensions, present, total, largest, strict=True) if row[1]]
    if classes is not None and len(samples):
        digits = [len(str(number)) for number in range(len(classes.names))]
        rows.append((CLASS_EXTENSION, len(samples), sum(map(digits.__getitem__, classes.numbers)), max(digits)))
    return tuple(
        ExtensionFacts(
            name=name,
            num_present=num_present,
            num_missing=len(samples) - num_present,
            size_bytes=size_bytes,
            largest_bytes=largest_bytes,
        )
        for name, num_present, size_bytes, largest_bytes in sorted(rows)
    )


def _survey_kinds(plan: PackPlan) -> tuple[SampleKind, ...]:
    samples = plan.content.samples
    codes, ends = samples.extension_codes, samples.first_member
    counts: Counter[bytes] = Counter()
    first: dict[bytes, list[int]] = {}
    for number in range(len(samples)):
        kind = codes[ends[number] : ends[number + 1]].tobytes()
        counts[kind] += 1
        named = first.setdefault(kind, [])
        if len(named) < NAMED_SAMPLES:
            named.append(number)
    found: list[SampleKind] = []
    frequent: list[frozenset[str]] = []
    for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        number = first[kind][0]
        extensions = [samples.extensions[code] for code in codes[ends[number] : ends[number + 1]]]
        if plan.content.classes is not None:
            extensions = sorted([*extensions, CLASS_EXTENSION])
        missing = find_missing(frozenset(extensions), frequent)
        keys = tuple(samples.keys[named] for named in first[kind])
        found.append(SampleKind(tuple(extensions), count, keys, tuple(sorted(missing))))
        if len(frequent) < COMPARED_KINDS:
            frequent.append(frozenset(extensions))
    return tuple(found)


def _survey_splits(plan: PackPlan) -> tuple[SplitFacts, ...]:
    totals: dict[str, list[int]] = {}
    for shard in plan.shards:
        total = totals.setdefault(shard.split, [0, 0, 0])
        total[0] += shard.num_samples
        total[1] += 1
        total[2] += shard.size_bytes
    return tuple(SplitFacts(name, *total) for name, total in totals.items())


def _estimate_size(plan: PackPlan, member_bytes: int, sample_size: SizeFunction) -> int:
    """Size of the samples in a format, from evenly spread ones; 0 when the format cannot hold one of these."""
    num_samples, content = len(plan.order), plan.content
    if not num_samples:  # --append-to finds nothing new
        return 0
    chosen = plan.order[:: -(-num_samples // ESTIMATED_SAMPLES)]
    overhead_bytes = 0
    try:
        for number in chosen:
            members = content.members(number)
            overhead_bytes += sample_size(content.samples.keys[number], members) - sum(size for _, size in members)
    except ValueError:
        return 0
    return member_bytes + overhead_bytes * num_samples // len(chosen)
