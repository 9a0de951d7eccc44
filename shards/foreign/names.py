"""What the names of somebody else's shards say: format, split, number, and whether any is missing; pure.

Understood are the habits of WebDataset (``train-000012.tar``, ``00012.tar``), img2dataset, Energon, TFDS
(``mnist-train.tfrecord-00000-of-00010``) and plain ``validation-00000-of-00128``. What a name does not say for certain
is asked for, not guessed.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from shards.errors import LISTED_OFFENDERS, ForeignShardsError, list_offenders, printable
from shards.names import DEFAULT_SPLIT, check_relative_name, check_split_name

SPLIT_WORDS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval"})

_FORMATS = (
    ("tar", re.compile(r".*\.tar", re.IGNORECASE | re.DOTALL)),
    (
        "tfrecord",
        re.compile(r".*\.(?:tfrecords?|tfrec)(?:-\d+-of-\d+)?|.*[0-9]{5}-of-[0-9]{5}", re.IGNORECASE | re.DOTALL),
    ),
)
_COMPRESSED = re.compile(
    r".*\.(?:tgz|tbz2?|txz|(?:tar|tfrecords?|tfrec)\.(?:gz|bz2|xz|zst|lz4|zlib))", re.IGNORECASE | re.DOTALL
)
_NUMBERED = re.compile(r"(?P<prefix>.*?)(?P<number>\d+)(?:-of-(?P<total>\d+))?(?P<suffix>\.[A-Za-z]+)?", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignShard:
    """One file that is a shard by its name."""

    name: str
    """Relative to the source, with ``/``."""
    format_name: str
    split: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignShards:
    """The shards of a source, and what was left aside."""

    files: tuple[ForeignShard, ...]
    """Split by split in the order of their names, shards by number."""
    left_out: tuple[str, ...]
    remarks: tuple[str, ...]
    """Gaps in numbers, one sentence each."""

    @property
    def format_name(self) -> str:
        """Of all shards."""
        return self.files[0].format_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a user can do about names that do not say enough, in the words of the program that he runs."""

    no_shard: str
    formats: str
    splits: str
    incomplete: str


def choose_files(
    names: Iterable[str],
    advice: Advice,
    *,
    globs: Sequence[tuple[str, str]] = (),
    format_name: str | None = None,
    allows_incomplete: bool = False,
    takes_compressed: bool = False,
) -> ForeignShards:
    """Tell which files are shards, and of which split.

    Args:
        names: of all files, relative to the source.
        advice: ends the messages.
        globs: (split, pattern); when given, only files that match one are shards.
        format_name: only shards of this format; files that match a pattern are taken as such.
        allows_incomplete: take sets of which ``-of-N`` says that some are missing.
        takes_compressed: compressed shards are shards as well.

    Raises:
        ForeignShardsError: no shard, shards of two formats, compressed shards, splits that cannot be told, missing
            shards.
    """
    chosen: list[tuple[str, str, str | None]] = []
    left_out: list[str] = []
    compressed: list[str] = []
    for name in names:
        if name.endswith((".index.arrow", "manifest.json")):
            continue
        found = name_format(name)
        if found is None and takes_compressed and _COMPRESSED.fullmatch(name):
            found = "tfrecord" if ".tfrec" in name.lower() else "tar"
        splits = [split for split, glob in globs if fnmatchcase(name, glob)]
        if len(set(splits)) > 1:
            raise ForeignShardsError(f"{printable(name)} matches the patterns of several splits: {', '.join(splits)}")
        if splits and found is None and not _COMPRESSED.fullmatch(name):
            found = format_name
        if (globs and not splits) or (found is None and not _COMPRESSED.fullmatch(name)):
            left_out.append(name)
        elif found is None:
            compressed.append(name)
        elif format_name not in {None, found}:
            left_out.append(name)
        else:
            chosen.append((name, found, splits[0] if splits else None))
    _refuse(compressed, [(name, found) for name, found, _ in chosen], left_out, advice)
    split_of = {name: split for name, _, split in chosen if split is not None} or _guess_splits(
        [name for name, _, _ in chosen], advice
    )
    files = [ForeignShard(name=name, format_name=found, split=split_of[name]) for name, found, _ in chosen]
    files.sort(key=lambda file: (file.split, *_order(file.name)))
    return ForeignShards(
        files=tuple(files),
        left_out=tuple(left_out),
        remarks=tuple(_check_numbers([file.name for file in files], advice, allows_incomplete=allows_incomplete)),
    )


def parse_split_globs(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Read ``NAME=GLOB``.

    Raises:
        ValueError: it is not that.
    """
    found = []
    for text in texts:
        name, equals, glob = text.partition("=")
        if not equals or not glob:
            raise ValueError(f"{text!r} is not NAME=GLOB, for instance train='train-*.tar'")
        check_split_name(name)
        found.append((name, glob))
    return found


def name_format(name: str) -> str | None:
    """Give the format that a name tells of; None when it tells of none, or of a compressed shard."""
    return next((format_name for format_name, pattern in _FORMATS if pattern.fullmatch(name)), None)


def is_shard_name(name: str) -> bool:
    """Whether a name is that of a shard, compressed or not."""
    return name_format(name) is not None or _COMPRESSED.fullmatch(name) is not None


def _refuse(
    compressed: Sequence[str], chosen: Sequence[tuple[str, str]], left_out: Sequence[str], advice: Advice
) -> None:
    if compressed:
        raise compressed_shards(compressed)
    if not chosen:
        seen = f"; it holds, for instance, {', '.join(map(printable, left_out[:3]))}" if left_out else ""
        raise ForeignShardsError(
            f"there is no shard{seen}; shards are named *.tar, *.tfrecord or *-00000-of-00010{advice.no_shard}"
        )
    formats = {format_name for _, format_name in chosen}
    if len(formats) > 1:
        raise ForeignShardsError(
            f"the source holds tar and TFRecord shards, a dataset has one format; {advice.formats}"
        )
    faults = []
    for name, _ in chosen:
        try:
            check_relative_name(name, "name")
        except ValueError as error:
            faults.append(str(error).removeprefix("name: "))
    if faults:
        raise ForeignShardsError(
            f"{len(faults)} shard(s) have names that no manifest may hold:\n{list_offenders(faults)}"
        )


def compressed_shards(names: Sequence[str]) -> ForeignShardsError:
    """Say why compressed shards cannot be used where they lie."""
    return ForeignShardsError(
        f"{len(names)} shard(s) are compressed:\n{list_offenders([printable(name) for name in names])}\n"
        "an index points into plain bytes; decompress them (gzip -d, zstd -d, xz -d) and take the result. "
        "Shards of pictures or sound hardly grow"
    )


def _guess_splits(names: Sequence[str], advice: Advice) -> dict[str, str]:
    found: dict[str, str | None] = {}
    several = []
    for name in names:
        words = _split_words(name)
        if len(words) > 1:
            several.append(f"{printable(name)}: {', '.join(sorted(words))}")
        found[name] = words.pop() if len(words) == 1 else None
    unclear = [printable(name) for name, split in found.items() if split is None]
    if several or (unclear and len(unclear) < len(names)):
        raise ForeignShardsError(
            f"the split of some shards cannot be told from their names:\n{list_offenders(several or unclear)}\n"
            f"{advice.splits}"
        )
    return {name: split or DEFAULT_SPLIT for name, split in found.items()}


def _split_words(name: str) -> set[str]:
    """Words of a name that are splits: of the base name, else of the nearest directory that has any."""
    for part in reversed(name.split("/")):
        words = {word for word in _WORD.findall(part) if word.lower() in SPLIT_WORDS}
        if words:
            return words
    return set()


def _order(name: str) -> tuple[str, int, str]:
    parts = _NUMBERED.fullmatch(name)
    return (name, -1, name) if parts is None else (parts["prefix"], int(parts["number"]), name)


def _check_numbers(names: Sequence[str], advice: Advice, *, allows_incomplete: bool) -> list[str]:
    """Find what is missing in each series of numbered names."""
    numbers: dict[str, set[int]] = {}
    totals: dict[str, set[int]] = {}
    for name in names:
        parts = _NUMBERED.fullmatch(name)
        if parts is None:
            continue
        numbers.setdefault(parts["prefix"], set()).add(int(parts["number"]))
        if parts["total"] is not None:
            totals.setdefault(parts["prefix"], set()).add(int(parts["total"]))
    remarks, incomplete = [], []
    for prefix, present in numbers.items():
        of = totals.get(prefix, set())
        shown = printable(prefix)
        if len(of) > 1:
            incomplete.append(f"{shown}*: names of sets of {' and '.join(map(str, sorted(of)))} are mixed")
            continue
        start = min(0 if 0 in present else 1, *present)
        end = max(present) + 1
        if of:
            end = max(end, of.copy().pop() + start)
        missing = _ranges(number for number in range(start, end) if number not in present)
        if missing and of:
            incomplete.append(f"{shown}*: of {of.copy().pop()} shards these are missing: {missing}")
        elif missing:
            remarks.append(f"numbers missing in {shown}*: {missing}")
    if incomplete and not allows_incomplete:
        raise ForeignShardsError(f"the source is not complete:\n{list_offenders(incomplete)}\n{advice.incomplete}")
    return remarks + incomplete


def _ranges(numbers: Iterable[int]) -> str:
    """``3, 5-9``; the first :data:`LISTED_OFFENDERS` ranges and then a count."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    if len(texts) > LISTED_OFFENDERS:
        texts[LISTED_OFFENDERS:] = [f"and {len(texts) - LISTED_OFFENDERS} more"]
    return ", ".join(texts)
