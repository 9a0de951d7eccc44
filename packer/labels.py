"""The split and the class of each sample, from its directories or its key; pure."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from packer.group import Samples
from packer.refusals import Refusals
from packer.sources.files import SourceFiles, display_path
from packer.splits import MAX_SPLITS, OneSplit, SplitByDirectory, SplitByShare, SplitRule
from shards.errors import SourceError, list_offenders, printable
from shards.names import check_split_name

CLASS_EXTENSION = "cls"
"""Extension of the member that holds the number of the sample's class, in ASCII decimal."""


@dataclass(frozen=True, slots=True)
class Labels:
    """One label per sample, as a number in a table of names."""

    names: tuple[str, ...]
    numbers: "array[int]"


def split_samples(samples: Samples, files: SourceFiles, rule: OneSplit | SplitByDirectory | SplitByShare) -> Labels:
    """Give each sample its split; names ascend.

    Raises:
        SourceError: a sample has no split, a directory's name cannot name one, or a split would be empty.
    """
    if isinstance(rule, OneSplit):
        return Labels((rule.name,), array("I", [0]) * len(samples))
    if isinstance(rule, SplitByDirectory):
        refusals = Refusals()
        labels = _label_by_directory(samples, files, 0, refusals.splitless, refusals.torn)
        refusals.raise_any()
        _check_splits(labels.names)
        return labels
    labels = _table([rule.shares[rule.number_of(key)][0] for key in samples.keys])
    empty = [name for name, _ in rule.shares if name not in labels.names]
    if empty:
        raise SourceError(
            f"split(s) {', '.join(empty)} would get none of the {len(samples)} samples with --split {rule.text}; "
            "give bigger shares, or name one split"
        )
    return labels


def classify_samples(samples: Samples, files: SourceFiles, rule: SplitRule) -> Labels:
    """Give each sample its class: its first directory, below the split's directory if directories are splits.

    Raises:
        SourceError: a sample lies in no class directory.
        DuplicateKeyError: a sample has a member ``cls`` already.
    """
    refusals = Refusals()
    depth = 1 if isinstance(rule, SplitByDirectory) else 0
    labels = _label_by_directory(samples, files, depth, refusals.classless, refusals.torn)
    if CLASS_EXTENSION in samples.extensions:
        code = samples.extensions.index(CLASS_EXTENSION)
        clashes = (file for file, own in zip(samples.file_numbers, samples.extension_codes, strict=True) if own == code)
        refusals.class_clashes.extend(display_path(files.paths[file]) for file in clashes)
    refusals.raise_any()
    return labels


def _label_by_directory(
    samples: Samples, files: SourceFiles, depth: int, homeless: list[str], torn: list[tuple[str, str, str]]
) -> Labels:
    """Label each sample with its directory at a depth; report samples without one, or with files in several."""
    found: list[str] = []
    ends = samples.first_member
    for number in range(len(samples)):
        first, *others = (files.paths[file] for file in samples.file_numbers[ends[number] : ends[number + 1]])
        name = _directory_at(first, depth)
        if name is None:
            homeless.append(display_path(first))
        elif any(_directory_at(path, depth) != name for path in others):
            torn.append((samples.keys[number], display_path(first), display_path(others[0])))
        else:
            found.append(name)
    return _table(found)


def _directory_at(path: bytes, depth: int) -> str | None:
    """Name of a directory in a path (0 = the top one), or None when the path has no such directory."""
    parts = path.split(b"/", depth + 1)
    return display_path(parts[depth]) if len(parts) > depth + 1 else None


def _table(found: list[str]) -> Labels:
    names = tuple(sorted(set(found)))
    numbers = {name: number for number, name in enumerate(names)}
    return Labels(names, array("I", map(numbers.__getitem__, found)))


def _check_splits(names: Iterable[str]) -> None:
    faults = []
    folded: dict[str, str] = {}
    for name in names:
        try:
            check_split_name(name)
        except ValueError as error:
            faults.append(printable(str(error)))
        other = folded.setdefault(name.lower(), name)
        if other != name:
            faults.append(f"{other} and {name} differ only in case")
    if faults:
        raise SourceError(f"top directories cannot be splits (--split by-dir):\n{list_offenders(faults)}")
    if len(folded) > MAX_SPLITS:
        raise SourceError(
            f"{len(folded)} top directories are too many to be splits; "
            "for classes use --class-from-dir without --split by-dir"
        )
