"""A plan for people: facts, measurements and advice → text of 80 columns; pure."""

import textwrap
from collections.abc import Iterator

from packer.measured import ReadingTime
from packer.plan import PackPlan
from packer.plan_report import PlanReport
from packer.propose import Proposal, explain_rule
from packer.report import skip_lines
from packer.survey import PlanFacts, SampleKind, SizeBin
from shardferry.console.units import format_bytes, format_count, format_seconds
from shards.errors import printable

COLUMNS = 80
LISTED_ROWS = 12
"""Rows shown of a table in text; JSON has them all."""
LISTED_KEYS = 3
BAR_COLUMNS = 30
_LABEL_COLUMNS = 12


def render_plan(report: PlanReport) -> str:
    """Render a plan; no line is longer than :data:`COLUMNS` unless a single word is."""
    facts = report.facts
    lines = [
        f"plan for {printable(report.source)}; nothing was written",
        *_summary(report),
        "",
        *_extension_table(facts),
        "",
        *_size_table(facts.size_bins),
    ]
    for title, block in (
        ("samples by their extensions", [line for kind in _shown_kinds(facts) for line in kind]),
        (
            "left out",
            [part for line in skip_lines(facts.skips) for part in _wrap(line.removeprefix("left out, "), "  ")],
        ),
        ("first samples", list(_first_samples(facts.plan))),
        ("shards for a cluster", list(_proposal_lines(report.proposal))),
        ("advice", [part for advice in report.advice for part in _wrap(advice.text, "  - ")]),
    ):
        if block:
            lines += ["", title, *block]
    return "\n".join(lines)


def _summary(report: PlanReport) -> Iterator[str]:
    facts, plan = report.facts, report.facts.plan
    yield from _row(
        "samples",
        f"{format_count(plan.num_samples)} from {format_count(facts.num_files)} files of "
        f"{format_bytes(plan.source_bytes)}",
    )
    if plan.options.transform is not None:
        yield from _row("transform", f"{printable(plan.options.transform.text)}; all numbers are those before it")
    yield from _row(
        "shards",
        f"{format_count(len(plan.shards))} {plan.options.format_name} of at most "
        f"{format_bytes(plan.options.shard_size_bytes)}, {format_bytes(plan.size_bytes)} in all",
    )
    for split in facts.splits:
        counts = f"{format_count(split.num_samples)} samples in {_shards(split.num_shards)}"
        yield from _row("", f"{split.name}: {counts}")
    if plan.content.classes is not None:
        yield from _row("classes", format_count(len(plan.content.classes.names)))
    other = "".join(f"; {name} would take about {format_bytes(size)}" for name, size in facts.other_sizes if size)
    yield from _row(
        "overhead",
        f"{format_bytes(facts.overhead_bytes)} of headers and padding, {facts.overhead_share:.1%} of the shards{other}",
    )
    yield from _row(
        "opens", f"an epoch opens {_shards(len(plan.shards))} instead of {format_count(facts.num_files)} files"
    )
    yield from _order_lines(facts)
    free = "" if report.room is None else f", {format_bytes(report.room.free_bytes)} free"
    yield from _row("space", f"{format_bytes(facts.space_bytes)} with indexes{free}")
    if report.reading is not None:
        yield from _row("time", _describe_reading(report.reading))


def _order_lines(facts: PlanFacts) -> Iterator[str]:
    mixing, seed = facts.mixing, facts.plan.options.shuffle_seed
    order = "by key, not shuffled" if seed is None else f"shuffled by seed {seed}"
    if mixing is not None:
        groups = "classes" if mixing.grouped_by == "class" else "directories"
        order += (
            f"; {format_count(mixing.window_samples)} samples in a row show {mixing.quality:.0%} of the "
            f"{groups} that a perfect shuffle shows"
        )
        if seed is not None:
            order += f" (by key: {mixing.unshuffled_quality:.0%})"
    yield from _row("order", order)


def _shown_kinds(facts: PlanFacts) -> Iterator[list[str]]:
    kinds = facts.kinds
    for kind in kinds[:LISTED_ROWS]:
        yield _wrap(_describe_kind(kind), "  ")
    if len(kinds) > LISTED_ROWS:
        yield [f"  … and {format_count(len(kinds) - LISTED_ROWS)} more combinations"]


def _proposal_lines(proposal: Proposal | None) -> Iterator[str]:
    if proposal is None:
        return
    yield from _wrap(
        f"--shard-size {proposal.shard_size_bytes} ({format_bytes(proposal.shard_size_bytes)}) gives "
        f"{_shards(proposal.num_shards)} of {proposal.split}",
        "  ",
    )
    for sentence in explain_rule(proposal):
        yield from _wrap(sentence, "  ")


def _describe_reading(reading: ReadingTime) -> str:
    rate = f"{reading.num_files} files took {reading.seconds_a_file * 1000:.2g} ms each to read just now"
    slow = format_seconds(reading.one_by_one_seconds)
    quick = format_seconds(reading.best_seconds)
    return (
        f"{rate}: {slow} for all one by one, down to {quick} with {reading.num_readers} at once. A guess: files that "
        "were read lately come from memory"
    )


def _describe_kind(kind: SampleKind) -> str:
    names = f"{' '.join(kind.extensions[:LISTED_ROWS])}{' …' if len(kind.extensions) > LISTED_ROWS else ''}"
    text = f"{printable(names)}: {format_count(kind.num_samples)}"
    if kind.missing:
        keys = ", ".join(printable(key) for key in kind.keys[:LISTED_KEYS])
        more = ", …" if kind.num_samples > LISTED_KEYS else ""
        text += f", incomplete: no {printable(' '.join(kind.missing[:LISTED_ROWS]))} ({keys}{more})"
    return text


def _extension_table(facts: PlanFacts) -> Iterator[str]:
    rows = sorted(facts.extensions, key=lambda found: (-found.num_present, found.name))[:LISTED_ROWS]
    yield f"{'extension':<22}{'members':>14}{'missing':>12}{'size':>12}{'mean':>10}{'largest':>10}"
    for found in rows:
        yield (
            f"  {_cut(found.name, 20):<20}{format_count(found.num_present):>14}{format_count(found.num_missing):>12}"
            f"{format_bytes(found.size_bytes):>12}{format_bytes(found.size_bytes // found.num_present):>10}"
            f"{format_bytes(found.largest_bytes):>10}"
        )
    if len(facts.extensions) > len(rows):
        yield f"  … and {format_count(len(facts.extensions) - len(rows))} more extensions"


def _size_table(bins: tuple[SizeBin, ...]) -> Iterator[str]:
    most = max((found.num_files for found in bins), default=1)
    yield f"{'file size':<22}{'files':>14}{'size':>12}"
    for found in bins:
        bar = "#" * -(-found.num_files * BAR_COLUMNS // most)
        row = f"  {_describe_range(found):<20}{format_count(found.num_files):>14}{format_bytes(found.size_bytes):>12}"
        yield f"{row}  {bar}".rstrip()


def _describe_range(found: SizeBin) -> str:
    if found.below_bytes is None:
        return f"{_short(found.from_bytes)} and more"
    return "empty" if found.below_bytes == 1 else f"under {_short(found.below_bytes)}"


def _short(num_bytes: int) -> str:
    return format_bytes(num_bytes).replace(".0 ", " ")


def _first_samples(plan: PackPlan) -> Iterator[str]:
    for sample in plan.order[:LISTED_KEYS]:
        members = plan.content.members(sample)
        text = ", ".join(f"{name} ({size} bytes)" for name, size in members[:LISTED_ROWS])
        more = ", …" if len(members) > LISTED_ROWS else ""
        yield from _wrap(f"{printable(plan.content.samples.keys[sample])}: {printable(text)}{more}", "  ")


def _shards(count: int) -> str:
    return f"{format_count(count)} shard{'' if count == 1 else 's'}"


def _row(label: str, text: str) -> list[str]:
    indent = " " * _LABEL_COLUMNS
    return textwrap.wrap(text, COLUMNS, initial_indent=f"  {label}".ljust(_LABEL_COLUMNS), subsequent_indent=indent)


def _wrap(text: str, bullet: str) -> list[str]:
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=bullet,
        subsequent_indent=" " * max(len(bullet), 4),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _cut(name: str, columns: int) -> str:
    text = printable(name)
    return text if len(text) <= columns else f"{text[: columns - 1]}…"
