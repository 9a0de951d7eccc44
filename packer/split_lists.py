"""Splits by lists: which sample belongs to which split is written in files; pure.

A line names a sample by its key, or by the path of one of its files; a leading ``./`` is ignored, empty lines are too.
Either one table (``--split @FILE``, lines of key, tab, split) or one list for each split (``train=@FILE,val=@FILE``).

Rules:
    * A line that names nothing in the source, and a sample that is given to two splits, are errors that name them all.
    * A sample that no line names is an error, or is left out and counted.
    * The order of lines, and naming a sample twice for the same split, change nothing.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence

from packer.checks import Checks, UnlistedSamples, drop_samples
from packer.group import Samples
from packer.labels import Labels
from packer.sources.files import SkipReason, Skips, SourceFiles, display_path
from packer.splits import SplitByList
from shards.errors import DuplicateKeyError, SourceError, list_offenders, printable
from shards.names import check_split_name

ReadText = Callable[[str], str]
"""Path of a list → its text."""


def is_split_list(text: str) -> bool:
    """Whether the text of ``--split`` names lists."""
    return text.startswith("@") or "=@" in text


def parse_split_lists(text: str, read_text: ReadText) -> SplitByList:
    """Read ``@FILE`` or ``train=@FILE,val=@FILE``.

    Args:
        text: the rule.
        read_text: gives a file's text, decoded as UTF-8 with surrogate escapes.

    Raises:
        ValueError: the text is neither, a name cannot be a split's, or a line has no tab or split.
        OSError: a list cannot be read.
    """
    if text.startswith("@"):
        entries = list(_read_table(text[1:], read_text(text[1:])))
    else:
        entries = []
        for part in text.split(","):
            name, sign, path = part.partition("=@")
            if not sign or not path:
                raise ValueError(f"{part!r} is no list; write train=@FILE,val=@FILE or @FILE")
            check_split_name(name)
            entries += [(line, name) for _, line in _lines(read_text(path))]
    names = tuple(sorted({name for _, name in entries}))
    if len({name.lower() for name in names}) < len(names):
        raise ValueError(f"splits of {text!r} differ only in case: {', '.join(names)}")
    numbers = {name: number for number, name in enumerate(names)}
    wanted: dict[str, tuple[int, ...]] = {}
    for line, name in entries:
        before, number = wanted.get(line, ()), numbers[name]
        if number not in before:
            wanted[line] = (*before, number)
    return SplitByList(names, wanted, _digest(names, wanted))


def split_by_list(
    samples: Samples, files: SourceFiles, rule: SplitByList, checks: Checks, skips: Skips
) -> tuple[Samples, Labels]:
    """Give each sample the split that a list names.

    Returns:
        The samples that are packed, and their splits.

    Raises:
        SourceError: lines that name nothing, samples that no line names, or a split without a sample.
        DuplicateKeyError: samples in several splits.
    """
    found = _resolve(samples, files, rule)
    torn = [
        f"{printable(samples.keys[number])}: {', '.join(rule.names[split] for split in sorted(splits))}"
        for number, splits in sorted(found.items())
        if len(splits) > 1
    ]
    if torn:
        raise DuplicateKeyError(
            f"{len(torn)} sample(s) are listed for several splits:\n{list_offenders(torn)}\nlist each for one"
        )
    unlisted = [number for number in range(len(samples)) if number not in found]
    if unlisted and (checks.unlisted is UnlistedSamples.ERROR or len(unlisted) == len(samples)):
        keys = [printable(samples.keys[number]) for number in unlisted]
        raise SourceError(
            f"{len(unlisted)} of {len(samples)} samples are in no list of --split:\n{list_offenders(keys)}\n"
            "add their keys, or leave them out with --on-unlisted skip"
        )
    used = {split for splits in found.values() for split in splits}
    empty = [name for number, name in enumerate(rule.names) if number not in used]
    if empty:
        raise SourceError(f"split(s) {', '.join(empty)} would get no sample; see the lists of --split")
    for number in unlisted:
        skips.add(SkipReason.UNLISTED, samples.keys[number].encode("utf-8", "surrogateescape"))
    numbers = array("I", (next(iter(found[number])) for number in range(len(samples)) if number in found))
    return drop_samples(samples, set(unlisted)) if unlisted else samples, Labels(rule.names, numbers)


def _resolve(samples: Samples, files: SourceFiles, rule: SplitByList) -> dict[int, set[int]]:
    """Sample number → numbers of the splits that lines name for it."""
    found: dict[int, set[int]] = {}
    left = dict(rule.splits_of)
    for number, key in enumerate(samples.keys):
        splits = left.pop(key, ())
        if splits:
            found[number] = set(splits)
    if left:
        for number in range(len(samples)):
            for _, file in samples.members(number):
                splits = left.pop(display_path(files.paths[file]), ())
                if splits:
                    found.setdefault(number, set()).update(splits)
    if left:
        lines = [printable(line) for line in sorted(left)]
        raise SourceError(
            f"{len(lines)} line(s) in the lists of --split name neither a key nor a file of the source:\n"
            f"{list_offenders(lines)}\n"
            "keys are paths below the source without the extension; remove these lines, or check the source"
        )
    return found


def _read_table(path: str, text: str) -> Iterator[tuple[str, str]]:
    for number, line in _lines(text):
        key, tab, name = line.rpartition("\t")
        if not tab:
            raise ValueError(f"line {number} of {path!r} has no tab: write key, tab, split")
        try:
            check_split_name(name)
        except ValueError as error:
            raise ValueError(f"line {number} of {path!r}: {error}") from None
        yield key, name


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(number from 1, line) of lines that are not empty; only newlines end lines, keys may hold other separators."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        name = line.removesuffix("\r")
        if name:
            yield number, name.removeprefix("./")


def _digest(names: Sequence[str], wanted: Mapping[str, Sequence[int]]) -> str:
    """Digest of what the lists say, hex, whatever the order of their lines."""
    hasher = hashlib.blake2b(digest_size=8)
    for line in sorted(wanted):
        splits = ",".join(sorted(names[number] for number in wanted[line]))
        hasher.update(f"{line}\0{splits}\n".encode("utf-8", "surrogateescape"))
    return hasher.hexdigest()
