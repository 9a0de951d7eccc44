"""``pack verify --against``: is every member what its source file is, byte for byte, and is anything missing or extra?

The source is looked through and grouped again, with the options that the manifest records, so that the comparison
stands on the files alone, not on what the packer once wrote about them. Sizes and dates prove nothing: all is read.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from packer.checks import Checks, MissingMembers, UnlistedSamples, require_members
from packer.group import CaseCollisions, DottedNames, GroupOptions, KeylessNames, Samples, group_files
from packer.labels import CLASS_EXTENSION, Labels, classify_samples
from packer.samples_of import ListedSample, choose_shards, walk_shard
from packer.sources.choose import SourceRequest, choose_source
from packer.sources.files import INLINE, SourceFiles, display_path
from packer.sources.options import SourceOptions
from packer.sources.tree import SymlinkPolicy
from packer.splits import OneSplit, SplitByDirectory
from packer.stores.open import open_store
from shardferry.console.units import format_count
from shards.errors import LISTED_OFFENDERS, SourceError, printable
from shards.index import IndexedMember
from shards.keys import FIRST_DOT, member_name, parse_key_rule
from shards.manifest import Manifest
from shards.names import DEFAULT_SPLIT
from shards.ranges import RangeReader
from shards.strict_json import JsonValue


@dataclass(slots=True)
class Offenders:
    """Names of a kind: the first are kept, all are counted."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count one."""
        self.count += 1
        if len(self.names) < LISTED_OFFENDERS:
            self.names.append(printable(name))

    def lines(self, what: str) -> Iterator[str]:
        """One line per kept name, and one for the rest."""
        for name in self.names:
            yield f"{what}: {name}"
        if self.count > len(self.names):
            yield f"{what}: … and {self.count - len(self.names)} more"


@dataclass(slots=True)
class Comparison:
    """How a dataset and a source differ, member by member."""

    source: str
    num_compared: int = 0
    missing: Offenders = field(default_factory=Offenders)
    """In the source, not in the dataset."""
    extra: Offenders = field(default_factory=Offenders)
    """In the dataset, not in the source."""
    different: Offenders = field(default_factory=Offenders)

    def fault_lines(self) -> list[str]:
        """All differences as sentences."""
        return [
            *self.missing.lines("missing in the dataset"),
            *self.extra.lines("not in the source"),
            *self.different.lines("different from the source"),
        ]

    def as_json(self) -> dict[str, JsonValue]:
        """For ``--json``."""
        kinds = {"missing": self.missing, "extra": self.extra, "different": self.different}
        return {
            "source": printable(self.source),
            "num_compared": self.num_compared,
            **{f"num_{kind}": found.count for kind, found in kinds.items()},
            **{kind: list(found.names) for kind, found in kinds.items()},
        }

    def as_text(self) -> str:
        """For people, when nothing differs."""
        return f"compared {format_count(self.num_compared)} member(s) with {printable(self.source)}: all are the same"


def compare_with_source(
    location: str, manifest: Manifest, source: str, report_bytes: Callable[[int], None]
) -> Comparison:
    """Compare every member of a dataset with its source file.

    Args:
        location: of the dataset.
        manifest: of the dataset.
        source: what was packed, as on the command line.
        report_bytes: called with the number of bytes compared since the last call; may raise to stop.

    Raises:
        SourceError: the source cannot be read, or is not of a kind that can be compared.
    """
    files = _SourceSamples(manifest, source)
    store = open_store(location)
    found = Comparison(source)
    for split, shard in choose_shards(manifest, None):
        with store.open_reader(shard.name) as reader:
            for sample in walk_shard(store, split.name, shard.name, shard.index_name):
                files.compare(sample, reader, found)
                report_bytes(sum(member.size for member in sample.members))
    files.add_missing(found)
    return found


class _SourceSamples:
    """The samples that the source files form now."""

    def __init__(self, manifest: Manifest, source: str) -> None:
        kind = manifest.source.get("kind", "tree")
        options = manifest.packer.get("options") if kind != "adopted" else {}
        options = options if isinstance(options, Mapping) else {}
        if options.get("transform"):
            raise SourceError(
                f"the dataset was packed with --transform {printable(str(options['transform']))}, so its members are "
                "not those of the source; verify it without --against"
            )
        grouping = group_options(options)
        request = SourceRequest(
            path=source,
            options=SourceOptions.from_recorded(options),
            symlinks=SymlinkPolicy(str(options.get("symlinks", "follow"))),
            key_rule=grouping.key_rule,
            skips_unreadable=options.get("on_unreadable") == "skip",
        )
        scanned = choose_source(request).scan(lambda: None)
        self._source = scanned.origin.open_reader()
        self._files: SourceFiles = scanned.files
        added = frozenset({CLASS_EXTENSION} if options.get("class_from_dir") else ())
        grouped, skips = group_files(self._files, grouping)
        self._samples: Samples = require_members(grouped, _recorded_checks(options), skips, added)
        self._may_lack_samples = options.get("on_unlisted") == UnlistedSamples.SKIP.value
        self._classes: Labels | None = None
        self._class_numbers = {name: number for number, name in enumerate(manifest.classes)}
        if options.get("class_from_dir"):
            rule = SplitByDirectory() if options.get("split") == SplitByDirectory().text else OneSplit(DEFAULT_SPLIT)
            self._classes = classify_samples(self._samples, self._files, rule)
        self._number_of = {key: number for number, key in enumerate(self._samples.keys)}
        self._is_seen = bytearray(len(self._samples))

    def compare(self, sample: ListedSample, reader: RangeReader, found: Comparison) -> None:
        """Compare one sample of the dataset."""
        number = self._number_of.get(sample.key)
        if number is None or self._is_seen[number]:
            for member in sample.members:
                found.extra.add(member_name(sample.key, member.extension))
            return
        self._is_seen[number] = True
        files = dict(self._samples.members(number))
        inline = self._inline(number)
        for member in sample.members:
            name = member_name(sample.key, member.extension)
            if member.extension in inline:
                is_same = reader.read_at(member.size, member.offset) == inline.pop(member.extension)
            elif member.extension in files:
                is_same = self._is_same(files.pop(member.extension), reader, member)
            else:
                found.extra.add(name)
                continue
            found.num_compared += 1
            if not is_same:
                found.different.add(name)
        for extension in (*files, *inline):
            found.missing.add(member_name(sample.key, extension))

    def add_missing(self, found: Comparison) -> None:
        """Count what the dataset has nothing of; which samples no list of ``--split`` named is not recorded."""
        if self._may_lack_samples:
            return
        for number, is_seen in enumerate(self._is_seen):
            if not is_seen:
                for _, file in self._samples.members(number):
                    found.missing.add(display_path(self._files.paths[file]))

    def _inline(self, number: int) -> dict[str, bytes]:
        if self._classes is None:
            return {}
        name = self._classes.names[self._classes.numbers[number]]
        return {CLASS_EXTENSION: b"%d" % self._class_numbers.get(name, -1)}

    def _is_same(self, number: int, reader: RangeReader, member: IndexedMember) -> bool:
        files = self._files
        size, stamp = files.sizes[number], files.stamps[number]
        if size != member.size:
            return False
        locator = files.paths[number] if files.locators is None else files.locators[number]
        done = 0
        for theirs in (locator,) if stamp == INLINE else self._source.pieces(locator, size, stamp):
            if reader.read_at(len(theirs), member.offset + done) != theirs:
                return False
            done += len(theirs)
        return True


def _recorded_checks(options: Mapping[str, JsonValue]) -> Checks:
    """Which samples were left out because they lack members."""
    required = options.get("require")
    if not isinstance(required, list) or options.get("on_missing") != MissingMembers.SKIP.value:
        return Checks()
    return Checks(required=tuple(map(str, required)), missing=MissingMembers.SKIP)


def group_options(options: Mapping[str, JsonValue]) -> GroupOptions:
    """How source files became samples, from what a manifest records; without a record, as WebDataset does."""
    if "key_rule" not in options:
        return GroupOptions(
            key_rule=FIRST_DOT,
            dotted=DottedNames.ALLOW,
            keyless=KeylessNames.SKIP,
            case_collisions=CaseCollisions.ALLOW,
        )
    return GroupOptions(
        key_rule=parse_key_rule(str(options["key_rule"])),
        dotted=DottedNames(str(options.get("dotted_names", "error"))),
        keyless=KeylessNames(str(options.get("on_keyless", "error"))),
        case_collisions=CaseCollisions(str(options.get("case_collisions", "error"))),
    )
