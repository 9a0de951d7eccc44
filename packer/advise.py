"""What to do about a plan: facts → advice; pure.

Every piece of advice names the numbers it stands on and what to type. A plan that needs nothing gets none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from packer.measured import Room
from packer.propose import Proposal
from packer.sources.files import SkipReason, display_path
from packer.survey import ExtensionFacts, PlanFacts
from shardferry.console.units import format_bytes, format_count
from shards.errors import printable

TINY_BYTES = 512
"""A member of fewer bytes is smaller than its tar header."""

TINY_COST_BYTES = 1024
"""What a tiny member takes in tar: header and padded data."""

MUCH_OVERHEAD_SHARE = 0.1
"""From this part of the shards' bytes on, overhead is worth a thought."""

BIG_FILE_BYTES = 64 * 1024**2
"""Files of this mean size are read at full speed as they are."""

BAD_QUALITY = 0.5
"""A shuffle buffer that shows less than this part of the groups that it could."""

MANY_LEFT_OUT_SHARE = 0.1

NAMED_FILES = 3


class Topic(StrEnum):
    """What a piece of advice is about."""

    SPACE = "space"
    INCOMPLETE = "incomplete"
    OVERHEAD = "overhead"
    TINY_MEMBERS = "tiny-members"
    ORDER = "order"
    SHARDS = "shards"
    BIG_FILES = "big-files"
    EMPTY_FILES = "empty-files"
    LEFT_OUT = "left-out"


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do or to look at."""

    topic: Topic
    text: str
    """One or two sentences, without a line break."""


def advise(
    facts: PlanFacts, *, required: Sequence[str] = (), room: Room | None = None, proposal: Proposal | None = None
) -> tuple[Advice, ...]:
    """Give advice, the most pressing first.

    Args:
        facts: of the plan.
        required: extensions that ``--require`` already names.
        room: of the destination, if there is one that tells.
        proposal: for the cluster that was asked about.
    """
    return (
        *_about_space(facts, room),
        *_about_incomplete(facts, required),
        *_about_left_out(facts),
        *_about_empty_files(facts),
        *_about_overhead(facts),
        *_about_order(facts),
        *_about_shards(facts, proposal),
        *_about_big_files(facts),
    )


def tiny_extensions(facts: PlanFacts) -> tuple[ExtensionFacts, ...]:
    """Extensions whose members are, on average, smaller than a tar header."""
    return tuple(found for found in facts.extensions if found.size_bytes < TINY_BYTES * found.num_present)


def _about_space(facts: PlanFacts, room: Room | None) -> Iterator[Advice]:
    if room is not None and facts.space_bytes > room.free_bytes:
        yield Advice(
            Topic.SPACE,
            f"{format_bytes(facts.space_bytes)} are needed at {printable(room.path)}, where "
            f"{format_bytes(room.free_bytes)} are free: a build would be refused; free some space or choose another "
            "destination",
        )


def _about_incomplete(facts: PlanFacts, required: Sequence[str]) -> Iterator[Advice]:
    lacked = sorted({name for kind in facts.kinds for name in kind.missing} - set(required))
    if not lacked:
        return
    text = (
        f"{_samples(facts.num_incomplete)} lack{_s(facts.num_incomplete)} {printable(', '.join(lacked))}, which more "
        "frequent samples with the same members have"
    )
    # required is required of all samples: what most do not have cannot be
    common = {found.name for found in facts.extensions if found.num_present > found.num_missing}
    usual = sorted(common.intersection(lacked))
    if usual:
        refused = sum(kind.num_samples for kind in facts.kinds if not {*usual, *required} <= {*kind.extensions})
        text += (
            f": --require {printable(','.join(sorted({*usual, *required})))} would refuse {_samples(refused)}, with "
            f"--on-missing skip leave {'it' if refused == 1 else 'them'} out"
        )
    yield Advice(Topic.INCOMPLETE, text)


def _about_left_out(facts: PlanFacts) -> Iterator[Advice]:
    total = facts.skips.total
    if total > MANY_LEFT_OUT_SHARE * (total + facts.num_files):
        reasons = ", ".join(reason.value for reason in sorted(facts.skips.counts))
        advice = "see the names above"
        if facts.skips.counts.get(SkipReason.KEYLESS):
            advice += ", or say with --key-rule how names are split"
        yield Advice(
            Topic.LEFT_OUT,
            f"{format_count(total)} of {format_count(total + facts.num_files)} entries are left out ({reasons}): "
            f"{advice}",
        )


def _about_empty_files(facts: PlanFacts) -> Iterator[Advice]:
    files = facts.plan.content.files
    empty = [number for number in facts.plan.content.samples.file_numbers if not files.sizes[number]]
    num_empty = len(empty)
    if num_empty:
        places = sorted(empty)[:NAMED_FILES]
        names = ", ".join(printable(display_path(files.paths[place])) for place in places)
        more = ", …" if num_empty > NAMED_FILES else ""
        yield Advice(
            Topic.EMPTY_FILES,
            f"{format_count(num_empty)} file{' is' if num_empty == 1 else 's are'} empty, as after a failed copy "
            f"({names}{more})",
        )


def _about_overhead(facts: PlanFacts) -> Iterator[Advice]:
    if facts.plan.options.format_name != "tar" or facts.overhead_share < MUCH_OVERHEAD_SHARE:
        return
    tiny = tiny_extensions(facts)
    num_merged = sum(found.num_present for found in tiny) - max((found.num_present for found in tiny), default=0)
    if num_merged and num_merged * TINY_COST_BYTES >= MUCH_OVERHEAD_SHARE * facts.plan.size_bytes:
        names = ", ".join(found.name for found in tiny)
        yield Advice(
            Topic.TINY_MEMBERS,
            f"members {printable(names)} have fewer than {TINY_BYTES} bytes on average and take {TINY_COST_BYTES} each "
            f"in tar: put into one json member a sample they would save about "
            f"{format_bytes(num_merged * TINY_COST_BYTES)}",
        )
    for name, size_bytes in facts.other_sizes:
        if 0 < size_bytes < (1 - MUCH_OVERHEAD_SHARE) * facts.plan.size_bytes:
            yield Advice(
                Topic.OVERHEAD,
                f"{facts.overhead_share:.0%} of the shards are headers and padding: --format {name} would take about "
                f"{format_bytes(size_bytes)} instead of {format_bytes(facts.plan.size_bytes)}, if your readers know it",
            )


def _about_order(facts: PlanFacts) -> Iterator[Advice]:
    mixing = facts.mixing
    if mixing is not None and mixing.quality < BAD_QUALITY:
        group = {"class": "classes", "directory": "directories"}[mixing.grouped_by]
        yield Advice(
            Topic.ORDER,
            f"samples lie sorted: {format_count(mixing.window_samples)} in a row show {mixing.quality:.0%} of the "
            f"{group} that mixed ones would, and no loader mends that with a small buffer: leave out --no-shuffle",
        )


def _about_shards(facts: PlanFacts, proposal: Proposal | None) -> Iterator[Advice]:
    if proposal is None:
        return
    num_shards = next(split.num_shards for split in facts.splits if split.name == proposal.split)
    readers = proposal.cluster.num_readers
    if num_shards < readers and proposal.num_shards > num_shards:
        yield Advice(
            Topic.SHARDS,
            f"{format_count(num_shards)} shard{'' if num_shards == 1 else 's'} of {proposal.split} for "
            f"{format_count(readers)} workers leave some without any, if each reads its own: "
            f"--shard-size {proposal.shard_size_bytes}",
        )


def _about_big_files(facts: PlanFacts) -> Iterator[Advice]:
    mean_bytes = facts.plan.source_bytes // max(facts.num_files, 1)
    if mean_bytes >= BIG_FILE_BYTES:
        yield Advice(
            Topic.BIG_FILES,
            f"files have {format_bytes(mean_bytes)} on average, which are read at full speed as they are: packing "
            "gains little",
        )


def _samples(count: int) -> str:
    return f"{format_count(count)} sample{'' if count == 1 else 's'}"


def _s(count: int) -> str:
    """The ending of a verb."""
    return "s" if count == 1 else ""
