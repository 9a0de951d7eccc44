"""What a source must fulfil before it is packed, beyond names that can be stored; pure values and functions.

Rules:
    * A sample that lacks a required member is an error that names it, or is left out, counted and named.
    * Almost as many extensions as samples mean that names were split in the wrong place: that stops with advice.
    * What could not be read may be left out only within a budget.
"""

from array import array
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from packer.columns import TextColumn
from packer.group import Samples
from packer.sources.files import SkipReason, Skips, SourceFiles, display_path
from shards.errors import SourceError, list_offenders, printable
from shards.strict_json import JsonValue

SUSPICIOUS_EXTENSIONS = 10
"""Fewer extensions than this never stop a build: a small mixed folder has as many."""

SUSPICIOUS_SHARE = 0.5
"""Extensions per sample from which on names look split in the wrong place. Real collections of mixed test images reach
0.3, real names with numbers behind a dot 1 to 2."""

_SHOWN_EXTENSIONS = 30


class MissingMembers(StrEnum):
    """What to do with a sample that lacks a required member."""

    ERROR = "error"
    SKIP = "skip"
    ALLOW = "allow"


class ManyExtensions(StrEnum):
    """What to do when there are almost as many extensions as samples."""

    ERROR = "error"
    ALLOW = "allow"


class UnreadableFiles(StrEnum):
    """What to do with files and directories that cannot be read."""

    ERROR = "error"
    SKIP = "skip"


class UnlistedSamples(StrEnum):
    """What to do with samples that no list of a split names."""

    ERROR = "error"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class SkipBudget:
    """How much may be left out because it cannot be read: a number, or a share of all that was found."""

    text: str
    count: int | None = None
    share: float | None = None

    def allows(self, num_skipped: int, num_found: int) -> bool:
        """Whether so many may be left out.

        Args:
            num_skipped: entries that could not be read.
            num_found: files that could be read.
        """
        if self.count is not None:
            return num_skipped <= self.count
        return num_skipped <= (self.share or 0) * (num_skipped + num_found)


def parse_skip_budget(text: str) -> SkipBudget:
    """Make a budget from ``20`` or ``0.5%``.

    Raises:
        ValueError: the text is neither.
    """
    number, is_share = (text[:-1], True) if text.endswith("%") else (text, False)
    if not number.isascii() or not number.replace(".", "", 1).isdigit() or (not is_share and "." in number):
        raise ValueError(f"{text!r} is neither a number of files such as 20 nor a share such as 0.5%")
    if not is_share:
        return SkipBudget(text, count=int(number))
    if float(number) > 100:
        raise ValueError(f"{text!r} is more than 100%")
    return SkipBudget(text, share=float(number) / 100)


ONE_PER_CENT = SkipBudget("1%", share=0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What was asked for."""

    required: tuple[str, ...] = ()
    """Extensions that each sample must have."""
    missing: MissingMembers = MissingMembers.ERROR
    many_extensions: ManyExtensions = ManyExtensions.ERROR
    unreadable: UnreadableFiles = UnreadableFiles.ERROR
    max_skipped: SkipBudget = ONE_PER_CENT
    unlisted: UnlistedSamples = UnlistedSamples.ERROR

    def recorded(self) -> dict[str, JsonValue]:
        """What shaped the data, under the names of the flags; what was left at its default is not mentioned."""
        options: dict[str, JsonValue] = {}
        if self.required:
            options["require"] = list(self.required)
            options["on_missing"] = self.missing.value
        if self.unreadable is not UnreadableFiles.ERROR:
            options["on_unreadable"] = self.unreadable.value
        if self.unlisted is not UnlistedSamples.ERROR:
            options["on_unlisted"] = self.unlisted.value
        return options


def parse_required(text: str) -> tuple[str, ...]:
    """Make extensions from ``jpg,cls``; a leading dot and upper case are what users write and readers never see.

    Raises:
        ValueError: an extension is empty or named twice.
    """
    names = tuple(name.strip().removeprefix(".").lower() for name in text.split(","))
    if not all(names):
        raise ValueError(f"{text!r} has an empty extension; write for instance jpg,cls")
    if len(set(names)) < len(names):
        raise ValueError(f"{text!r} names an extension twice")
    return names


class Lack(NamedTuple):
    """A sample that lacks required members."""

    number: int
    missing: tuple[str, ...]


def check_unreadable(skips: Skips, num_files: int, budget: SkipBudget) -> None:
    """Stop when more could not be read than may be left out.

    Args:
        skips: of the source.
        num_files: files that could be read.
        budget: what was allowed.

    Raises:
        SourceError: it is more.
    """
    num_skipped = skips.counts.get(SkipReason.UNREADABLE, 0)
    if not budget.allows(num_skipped, num_files):
        names = [printable(name) for name in skips.names[SkipReason.UNREADABLE]]
        more = f"\n  … and {num_skipped - len(names)} more" if num_skipped > len(names) else ""
        raise SourceError(
            f"{num_skipped} files or directories cannot be read, more than --max-skipped {budget.text} of "
            f"{num_skipped + num_files}; nothing was written:\n{list_offenders(names)}{more}\n"
            "give read access to them, or allow more with --max-skipped"
        )


def find_lacking(samples: Samples, required: tuple[str, ...], added: frozenset[str] = frozenset()) -> list[Lack]:
    """Find the samples that lack required members.

    Args:
        samples: all of them.
        required: extensions.
        added: extensions that each sample gets while it is packed.
    """
    places = {name: place for place, name in enumerate(samples.extensions)}
    wanted = [(name, places.get(name, -1)) for name in required if name not in added]
    ends, codes = samples.first_member, samples.extension_codes
    found = []
    for number in range(len(samples)):
        own = codes[ends[number] : ends[number + 1]]
        missing = tuple(name for name, code in wanted if code not in own)
        if missing:
            found.append(Lack(number, missing))
    return found


def require_members(samples: Samples, checks: Checks, skips: Skips, added: frozenset[str] = frozenset()) -> Samples:
    """Apply ``--require``: give the samples that are packed, and count the others as left out.

    Raises:
        SourceError: samples lack required members and that is an error, or all of them do.
    """
    if not checks.required or checks.missing is MissingMembers.ALLOW:
        return samples
    lacking = find_lacking(samples, checks.required, added)
    if not lacking:
        return samples
    if checks.missing is MissingMembers.ERROR or len(lacking) == len(samples):
        raise SourceError(_describe_lack(samples, lacking, checks, added))
    for number, _ in lacking:
        skips.add(SkipReason.MISSING_MEMBER, samples.keys[number].encode("utf-8", "surrogateescape"))
    return drop_samples(samples, {number for number, _ in lacking})


def drop_samples(samples: Samples, dropped: set[int]) -> Samples:
    """Give the samples without some of them. Source files and the table of extensions stay as they are."""
    keys = TextColumn()
    first_member = array(samples.first_member.typecode, [0])
    file_numbers = array(samples.file_numbers.typecode)
    extension_codes = array(samples.extension_codes.typecode)
    ends = samples.first_member
    for number, key in enumerate(samples.keys):
        if number in dropped:
            continue
        keys.append(key)
        file_numbers.extend(samples.file_numbers[ends[number] : ends[number + 1]])
        extension_codes.extend(samples.extension_codes[ends[number] : ends[number + 1]])
        first_member.append(len(file_numbers))
    return Samples(
        keys=keys,
        first_member=first_member,
        file_numbers=file_numbers,
        extension_codes=extension_codes,
        extensions=samples.extensions,
    )


def check_extensions(samples: Samples, files: SourceFiles, policy: ManyExtensions) -> None:
    """Stop when names were probably split in the wrong place.

    Suspicious is a source of at least :data:`SUSPICIOUS_EXTENSIONS` extensions, and at least one for two samples, of
    which most occur once.

    Raises:
        SourceError: it is suspicious.
    """
    num_extensions = len(samples.extensions)
    if policy is ManyExtensions.ALLOW or num_extensions < SUSPICIOUS_EXTENSIONS:
        return
    if num_extensions < SUSPICIOUS_SHARE * len(samples):
        return
    counts = Counter(samples.extension_codes)
    num_single = sum(count == 1 for count in counts.values())
    if 2 * num_single < num_extensions:
        return
    examples = [
        f"{printable(display_path(files.paths[file]))}: extension {printable(samples.extensions[code])}"
        for code, file in zip(samples.extension_codes, samples.file_numbers, strict=True)
        if counts[code] == 1
    ]
    raise SourceError(
        f"{num_extensions} different extensions for {len(samples)} samples, {num_single} of them used once: file names "
        f"were probably split in the wrong place:\n{list_offenders(examples)}\n"
        "dots that belong to the name: --key-rule last-dot --dotted-names escape (writes them as %2E); another "
        "pattern: --key-rule 'regex:(?P<key>…)(?P<extension>…)'; if these really are the members: --many-extensions "
        "allow"
    )


def _describe_lack(samples: Samples, lacking: list[Lack], checks: Checks, added: frozenset[str]) -> str:
    lines = [f"{printable(samples.keys[number])}: no {', '.join(map(printable, names))}" for number, names in lacking]
    present = sorted({*samples.extensions, *added})
    shown = ", ".join(map(printable, present[:_SHOWN_EXTENSIONS])) + (", …" if len(present) > _SHOWN_EXTENSIONS else "")
    wanted = printable(",".join(checks.required))
    if len(lacking) == len(samples):
        head, advice = f"none of the {len(samples)} samples has all of {wanted}", "name extensions that they have"
    else:
        head = f"{len(lacking)} of {len(samples)} samples lack a member of --require {wanted}"
        advice = (
            "complete them, leave them out with --on-missing skip, or pack them as they are with --on-missing allow"
        )
    return f"{head}:\n{list_offenders(lines)}\nextensions found: {shown}; {advice}"
