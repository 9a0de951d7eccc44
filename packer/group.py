"""Source files → samples, by an explicit key rule; pure.

Rules:
    * The key is the path without its extension. Directories are part of the key, those of split and class too,
      so keys are unique in the whole dataset and a path can be told from its key.
    * Every file becomes exactly one member, or is named in an error, or is counted as skipped if that was asked for.
    * Only names that readers see the way we do are stored: see ``DottedNames``.
    * All offenders of a kind are reported at once, not only the first.

The result is in columns, like the source files: the bytes of its key and 12 more a sample, 8 a member.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, compress
from operator import ne

import numpy as np

from packer.columns import TextColumn, number_column
from packer.foreign_view import webdataset_view
from packer.plain_names import plain_dot, split_plain
from packer.refusals import Refusals
from packer.sample_table import SampleTable, fold_key
from packer.sources.files import SkipReason, Skips, SourceFiles, display_path
from shards.keys import Keyless, KeyRule, SampleName, is_storable, member_name, split_name

_SPAN = 4096
"""Files that are looked at together."""


class DottedNames(StrEnum):
    """What to do with a base name of several dots, which first-dot and last-dot readers split differently."""

    ERROR = "error"
    ALLOW = "allow"
    """Store it when readers of the first-dot rule (WebDataset) see the same key and extension."""
    ESCAPE = "escape"
    """Write a dot in the base name of a key as ``%2E`` and a per cent sign as ``%25``. Under first-dot the dots are in
    the extension, which nothing mends: refused as by ``ERROR``."""


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

    keys: Sequence[str]
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
    if named.has_renamed:
        _refuse_members_that_are_directories(samples, files, refusals)
    refusals.raise_any()
    return samples, named.skips


def escape_dots(key: str) -> str:
    """Write the dots in the base name of a key as ``%2E``, reversibly."""
    directory, slash, base = key.rpartition("/")
    return f"{directory}{slash}{base.replace('%', '%25').replace('.', '%2E')}"


class _NamedFiles:
    """Key and extension of every file that has them, in columns."""

    def __init__(self, files: SourceFiles, options: GroupOptions, refusals: Refusals) -> None:
        self.keys = TextColumn()
        """Of the samples, in the order they were first seen."""
        self.extensions: list[str] = []
        """In the order they were first seen."""
        self.file_numbers = array("I")
        self.sample_numbers = array("I")
        self.extension_codes = array("I")
        self.skips = Skips()
        self.has_renamed = False
        """Whether a member is stored under another name than its file has."""
        self._codes: dict[str, int] = {}
        self._last = "", -1
        """Key and number of the sample of the last file."""
        self._options = options
        is_first_dot = options.key_rule.kind == "first-dot"
        self._refused_dots = {DottedNames.ERROR, DottedNames.ESCAPE} if is_first_dot else {DottedNames.ERROR}
        self._refusals = refusals
        self._fold = options.case_collisions is CaseCollisions.ERROR
        self._read(files)

    def _read(self, files: SourceFiles) -> None:
        samples = SampleTable(fold_key if self._fold else str)
        self.keys = samples.keys
        splits_plainly = self._options.key_rule.kind != "regex" and files.dots is None
        for start in range(0, len(files), _SPAN):
            paths = files.paths[start : start + _SPAN]
            names = split_plain(paths) if splits_plainly else None
            if names is None or not self._take_plain(start, names, samples):
                self._take_any(start, paths, files.dots, samples)
        self.extensions = list(self._codes)

    def _take_plain(self, start: int, names: Sequence[tuple[str, str]], samples: SampleTable) -> bool:
        """Take files with plain names if all samples are new but that of the last file; takes none otherwise."""
        stems = [stem for stem, _ in names]
        last_key, last_sample = self._last
        is_first = [*map(ne, stems, [last_key, *stems])]  # the files of a sample mostly follow one another
        first = len(samples.keys)
        if not samples.add_if_new(list(compress(stems, is_first))):
            return False
        self.file_numbers.extend(range(start, start + len(names)))
        numbers = [first - 1 + count if count else last_sample for count in accumulate(is_first)]
        self.sample_numbers.extend(numbers)
        self._last = stems[-1], numbers[-1]
        code_of = {ending: self._code_of(ending.lower()) for ending in dict.fromkeys(ending for _, ending in names)}
        self.has_renamed = self.has_renamed or any(ending != ending.lower() for ending in code_of)
        self.extension_codes.extend([code_of[ending] for _, ending in names])
        return True

    def _code_of(self, extension: str) -> int:
        return self._codes.setdefault(extension, len(self._codes))

    def _take_any(self, start: int, paths: Sequence[bytes], dots: "array[int] | None", samples: SampleTable) -> None:
        is_regex = self._options.key_rule.kind == "regex"
        keys, codes = samples.keys, self._codes
        plain_codes: dict[bytes, int] = {}
        last_stem, (last_key, sample) = b"", self._last
        for number, path in enumerate(paths, start):
            known_dot = -1 if dots is None else dots[number]
            dot = -1 if is_regex or known_dot >= 0 else plain_dot(path)
            if dot > 0:
                ending, stem = path[dot + 1 :], path[:dot]
                code = plain_codes.get(ending, -1)
                if code < 0:
                    extension = ending.decode("ascii").lower()
                    code = plain_codes[ending] = codes.setdefault(extension, len(codes))
                    self.has_renamed = self.has_renamed or extension.encode("ascii") != ending
                key = last_key if stem == last_stem else stem.decode("ascii")
                last_stem = stem
            else:
                named = self._name(path, known_dot)
                if named is None:
                    continue
                key, extension = named
                code, last_stem = codes.setdefault(extension, len(codes)), b""
            if key != last_key:  # the files of a sample mostly follow one another
                num_samples = len(keys)
                sample = samples.find_or_add(key)
                last_key = key
                if sample < num_samples and keys[sample] != key:
                    self._refusals.case_collisions.append(f"{display_path(path)} and {keys[sample]}.*")
                    last_stem, last_key = b"", ""
                    continue
            self.file_numbers.append(number)
            self.sample_numbers.append(sample)
            self.extension_codes.append(code)
        self._last = last_key, sample

    def _name(self, path: bytes, known_dot: int) -> tuple[str, str] | None:
        """Key and extension of a file, or None when it was refused or left out; a known dot ends the key."""
        try:
            name = path.decode("utf-8")
        except UnicodeDecodeError:
            self._refusals.not_utf8.append(display_path(path))
            return None
        if known_dot < 0:
            found = split_name(name, self._options.key_rule)
        else:
            found = SampleName(name[:known_dot], name[known_dot + 1 :].lower())
        if isinstance(found, Keyless):
            self._take_keyless(path, name, found)
            return None
        storable = self._storable_key(name, *found)
        if storable is None:
            return None
        self.has_renamed = self.has_renamed or member_name(storable, found.extension) != name
        return storable, found.extension

    def _take_keyless(self, path: bytes, name: str, found: Keyless) -> None:
        if self._options.keyless is KeylessNames.SKIP:
            self.skips.add(SkipReason.KEYLESS, path)
        else:
            self._refusals.keyless.append((name, found.reason.value))

    def _storable_key(self, name: str, key: str, extension: str) -> str | None:
        """The key under which a file is stored, or None when it is refused."""
        dotted = self._options.dotted
        if dotted is DottedNames.ESCAPE:
            key = escape_dots(key)
        has_dots = "." in extension or "." in key[key.rfind("/") + 1 :]
        if has_dots and dotted in self._refused_dots:
            self._refusals.dotted.append((name, key, extension))
        elif not is_storable(key, extension) or not {"", ".", ".."}.isdisjoint(key.split("/")):
            self._refusals.unstorable.append((name, member_name(key, extension)))
        elif webdataset_view(member_name(key, extension)) != (key, extension):
            self._refusals.unseen.append(name)
        else:
            return key
        return None


def _collect(named: _NamedFiles, files: SourceFiles, refusals: Refusals) -> Samples:
    """Sort samples by key and their members by extension."""
    order, num_samples = named.keys.order(), len(named.keys)
    extensions = sorted(named.extensions)
    rank_of = {name: rank for rank, name in enumerate(extensions)}
    code_rank = np.array([rank_of[name] for name in named.extensions], np.int64)
    sample_numbers, codes = np.asarray(named.sample_numbers), code_rank[np.asarray(named.extension_codes)]
    if not isinstance(order, range):
        rank = np.empty(num_samples, np.int64)
        rank[np.asarray(order)] = np.arange(num_samples)
        sample_numbers = rank[sample_numbers]
    # one number per member sorts by (sample, extension)
    places = sample_numbers * np.int64(max(len(extensions), 1)) + codes
    file_numbers = np.asarray(named.file_numbers)
    if (places[1:] < places[:-1]).any():
        members = np.argsort(places, kind="stable")
        places, codes, file_numbers = places[members], codes[members], file_numbers[members]
    for left in np.flatnonzero(places[1:] == places[:-1]).tolist():
        pair = file_numbers[left : left + 2].tolist()
        refusals.same_member.append(" and ".join(display_path(files.paths[number]) for number in pair))
    ends = np.cumsum(np.bincount(sample_numbers, minlength=num_samples))
    return Samples(
        keys=named.keys if isinstance(order, range) else TextColumn(map(named.keys.__getitem__, order)),
        first_member=number_column(np.concatenate([[0], ends])),
        file_numbers=number_column(file_numbers),
        extension_codes=number_column(codes),
        extensions=tuple(extensions),
    )


def _refuse_members_that_are_directories(samples: Samples, files: SourceFiles, refusals: Refusals) -> None:
    """A renamed member (``a.JPG`` stored as ``a.jpg``) may be a directory of another: no tar can unpack both."""
    directories: set[str] = set()
    for directory in {key.rpartition("/")[0] for key in samples.keys}:
        above = directory
        while above and above not in directories:
            directories.add(above)
            above = above.rpartition("/")[0]
    if not any("." in directory.rpartition("/")[2] for directory in directories):
        return
    for number, key in enumerate(samples.keys):
        for extension, file in samples.members(number):
            name = member_name(key, extension)
            if name in directories:
                refusals.same_member.append(f"{display_path(files.paths[file])} and {name}/")
