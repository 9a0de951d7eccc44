"""Source files → samples, by an explicit key rule; pure.

Rules:
    * The key is the path without its extension. Directories are part of the key, those of split and class too,
      so keys are unique in the whole dataset and a path can be told from its key.
    * Every file becomes exactly one member, or is named in an error, or is counted as skipped if that was asked for.
    * Only names that readers see the way we do are stored: see ``DottedNames``.
    * All offenders of a kind are reported at once, not only the first.

The result is in columns, like the source files: some 100 bytes a sample and 12 a member.
"""

import itertools
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from packer.refusals import Refusals
from packer.sources.files import SkipReason, Skips, SourceFiles, display_path
from shards.keys import Keyless, KeyRule, SampleName, is_storable, member_name, split_name


class DottedNames(StrEnum):
    """What to do with a base name of several dots, which first-dot and last-dot readers split differently."""

    ERROR = "error"
    ALLOW = "allow"
    """Store it when readers of the first-dot rule (WebDataset) see the same key and extension."""
    ESCAPE = "escape"
    """As ``ALLOW``, and write a dot in the base name of a key as ``%2E`` and a per cent sign as ``%25``."""


class KeylessNames(StrEnum):
    """What to do with a file whose name gives no key."""

    ERROR = "error"
    SKIP = "skip"


class CaseCollisions(StrEnum):
    """What to do with keys that differ only in case or Unicode composition."""

    ERROR = "error"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """How source files become samples."""

    key_rule: KeyRule
    dotted: DottedNames
    keyless: KeylessNames
    case_collisions: CaseCollisions


@dataclass(slots=True)
class Samples:
    """Samples in ascending order of their keys (code points, which is the byte order of UTF-8)."""

    keys: list[str]
    first_member: "array[int]"
    """Sample ``i`` has the members ``first_member[i]`` to ``first_member[i + 1]``, by extension."""
    file_numbers: "array[int]"
    """Source file of each member."""
    extension_codes: "array[int]"
    """Place of each member's extension in :attr:`extensions`."""
    extensions: tuple[str, ...]
    """Ascending."""

    def __len__(self) -> int:
        return len(self.keys)

    def members(self, number: int) -> Iterator[tuple[str, int]]:
        """(extension, number of the source file) of each member that is a file."""
        for place in range(self.first_member[number], self.first_member[number + 1]):
            yield self.extensions[self.extension_codes[place]], self.file_numbers[place]


def group_files(files: SourceFiles, options: GroupOptions) -> tuple[Samples, Skips]:
    """Group source files into samples.

    Args:
        files: ascending by path.
        options: how.

    Returns:
        The samples, and the files that were left out because they have no key.

    Raises:
        SourceError: names that cannot be stored.
        DuplicateKeyError: two files are the same member, or two keys would be one file on some systems.
    """
    refusals = Refusals()
    named = _NamedFiles(files, options, refusals)
    refusals.raise_any()
    samples = _collect(named, files, refusals)
    refusals.raise_any()
    return samples, named.skips


def escape_dots(key: str) -> str:
    """Write the dots in the base name of a key as ``%2E``, reversibly."""
    directory, slash, base = key.rpartition("/")
    return f"{directory}{slash}{base.replace('%', '%25').replace('.', '%2E')}"


class _NamedFiles:
    """Key and extension of every file that has them, in columns."""

    def __init__(self, files: SourceFiles, options: GroupOptions, refusals: Refusals) -> None:
        self.keys: list[str] = []
        """Of the samples, in the order they were first seen."""
        self.extensions: list[str] = []
        """In the order they were first seen."""
        self.file_numbers = array("Q")
        self.sample_numbers = array("Q")
        self.extension_codes = array("L")
        self.skips = Skips()
        self._options = options
        self._refusals = refusals
        self._fold = options.case_collisions is CaseCollisions.ERROR
        self._read(files)

    def _read(self, files: SourceFiles) -> None:
        rule, is_regex = self._options.key_rule, self._options.key_rule.kind == "regex"
        samples: dict[str, int] = {}
        codes: dict[str, int] = {}
        dots = files.dots
        for number, path in enumerate(files.paths):
            try:
                name = path.decode("utf-8")
            except UnicodeDecodeError:
                self._refusals.not_utf8.append(display_path(path))
                continue
            if dots is None or (dot := dots[number]) < 0:
                found = split_name(name, rule)
            else:
                found = SampleName(name[:dot], name[dot + 1 :].lower())
            if isinstance(found, Keyless):
                self._take_keyless(path, name, found)
                continue
            key, extension = found
            # one dot in the base name: all rules agree. Only a pattern can make other names that need a look
            if is_regex or "." in extension or key.find(".", key.rfind("/") + 1) >= 0:
                storable = self._storable_key(name, key, extension)
                if storable is None:
                    continue
                key = storable
            folded = fold_key(key) if self._fold else key
            sample = samples.setdefault(folded, len(samples))
            if sample == len(self.keys):
                self.keys.append(key)
            elif self.keys[sample] != key:
                self._refusals.case_collisions.append(f"{name} and {self.keys[sample]}.*")
                continue
            self.file_numbers.append(number)
            self.sample_numbers.append(sample)
            self.extension_codes.append(codes.setdefault(extension, len(codes)))
        self.extensions = list(codes)

    def _take_keyless(self, path: bytes, name: str, found: Keyless) -> None:
        if self._options.keyless is KeylessNames.SKIP:
            self.skips.add(SkipReason.KEYLESS, path)
        else:
            self._refusals.keyless.append((name, found.reason.value))

    def _storable_key(self, name: str, key: str, extension: str) -> str | None:
        """The key under which a name of several dots is stored, or None when it is refused."""
        dotted = self._options.dotted
        if dotted is DottedNames.ESCAPE:
            key = escape_dots(key)
        has_dots = "." in extension or "." in key[key.rfind("/") + 1 :]
        if dotted is DottedNames.ERROR and has_dots:
            self._refusals.dotted.append((name, key, extension))
        elif not is_storable(key, extension) or not {"", ".", ".."}.isdisjoint(key.split("/")):
            self._refusals.unstorable.append((name, member_name(key, extension)))
        else:
            return key
        return None


def fold_key(key: str) -> str:
    """Fold what some filesystems do not tell apart: case and Unicode composition."""
    if key.isascii():
        folded = key.lower()
    else:
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold())
    return key if folded == key else folded  # one string in memory instead of two, for most keys


def _collect(named: _NamedFiles, files: SourceFiles, refusals: Refusals) -> Samples:
    """Sort samples by key and their members by extension."""
    order = sorted(range(len(named.keys)), key=named.keys.__getitem__)
    rank = _inverse(order)
    extensions = sorted(named.extensions)
    code_rank = _inverse(sorted(range(len(extensions)), key=named.extensions.__getitem__))
    num_codes = max(len(extensions), 1)
    # one integer per member sorts by (sample, extension) without a tuple for each
    places = array(
        "Q",
        (
            rank[sample] * num_codes + code_rank[code]
            for sample, code in zip(named.sample_numbers, named.extension_codes, strict=True)
        ),
    )
    members = sorted(range(len(places)), key=places.__getitem__)
    first_member = array("Q", [0]) * (len(order) + 1)
    for place in places:
        first_member[place // num_codes + 1] += 1
    for number in range(len(order)):
        first_member[number + 1] += first_member[number]
    for left, right in itertools.pairwise(members):
        if places[left] == places[right]:
            refusals.same_member.append(
                " and ".join(display_path(files.paths[named.file_numbers[member]]) for member in (left, right))
            )
    return Samples(
        keys=[named.keys[number] for number in order],
        first_member=first_member,
        file_numbers=array("Q", map(named.file_numbers.__getitem__, members)),
        extension_codes=array("L", (places[member] % num_codes for member in members)),
        extensions=tuple(extensions),
    )


def _inverse(order: Sequence[int]) -> "array[int]":
    """Rank of each number in an order of 0 … n-1."""
    rank = array("Q", [0]) * len(order)
    for place, number in enumerate(order):
        rank[number] = place
    return rank
