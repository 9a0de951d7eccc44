"""The samples that a source forms now, by the options that a manifest records: what a dataset should hold."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from packer.checks import Checks, MissingMembers, require_members
from packer.group import CaseCollisions, DottedNames, GroupOptions, KeylessNames, Samples, group_files
from packer.labels import CLASS_EXTENSION, Labels, classify_samples
from packer.sources.choose import SourceRequest, choose_source
from packer.sources.files import INLINE, SkipReason, SourceFiles, display_path
from packer.sources.options import SourceOptions
from packer.sources.tree import SymlinkPolicy
from packer.splits import OneSplit, SplitByDirectory
from shards.errors import SourceError, printable
from shards.keys import FIRST_DOT, parse_key_rule
from shards.manifest import Manifest
from shards.names import DEFAULT_SPLIT
from shards.strict_json import JsonValue


class SourceSamples:
    """The samples of a source, and the bytes of their members. Reading is safe from several threads.

    Args:
        manifest: of the dataset that was packed from it.
        source: as on the command line.
        root: where the paths of a table begin; None takes the table's directory.

    Raises:
        SourceError: the source cannot be read, or is not of a kind that can be compared.
    """

    def __init__(self, manifest: Manifest, source: str, root: str | None = None) -> None:
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
            options=replace(SourceOptions.from_recorded(options), root=root),
            symlinks=SymlinkPolicy(str(options.get("symlinks", "follow"))),
            key_rule=grouping.key_rule,
            skips_unreadable=options.get("on_unreadable") == "skip",
        )
        scanned = choose_source(request).scan(lambda: None)
        self._reader = scanned.origin.open_reader()
        self._files: SourceFiles = scanned.files
        added = frozenset({CLASS_EXTENSION} if options.get("class_from_dir") else ())
        grouped, skips = group_files(self._files, grouping)
        scanned.skips.take(skips)
        self._samples: Samples = require_members(grouped, _recorded_checks(options), scanned.skips, added)
        self._classes: Labels | None = None
        self._class_numbers = {name: number for number, name in enumerate(manifest.classes)}
        if options.get("class_from_dir"):
            rule = SplitByDirectory() if options.get("split") == SplitByDirectory().text else OneSplit(DEFAULT_SPLIT)
            self._classes = classify_samples(self._samples, self._files, rule)
        self._number_of = {key: number for number, key in enumerate(self._samples.keys)}
        self._recorded = _recorded_skips(manifest)
        self._skipped_now = scanned.skips.counts

    def __len__(self) -> int:
        return len(self._samples)

    def find(self, key: str) -> int | None:
        """Number of a sample."""
        return self._number_of.get(key)

    def members(self, number: int) -> Iterator[tuple[str, int]]:
        """(extension, number of its file) of each member that is a file."""
        return self._samples.members(number)

    def added_members(self, number: int) -> dict[str, bytes]:
        """Members that the packer adds to those of the source, by extension."""
        if self._classes is None:
            return {}
        name = self._classes.names[self._classes.numbers[number]]
        return {CLASS_EXTENSION: b"%d" % self._class_numbers.get(name, -1)}

    def path_of(self, file: int) -> str:
        """Path of a file, for people."""
        return display_path(self._files.paths[file])

    def size_of(self, file: int) -> int:
        """Size of a file in bytes."""
        return self._files.sizes[file]

    def pieces(self, file: int) -> Iterator[bytes]:
        """The bytes of a file."""
        files = self._files
        locator = files.paths[file] if files.locators is None else files.locators[file]
        if files.stamps[file] == INLINE:
            yield locator
        else:
            yield from self._reader.pieces(locator, files.sizes[file], files.stamps[file])

    def may_lack(self, num_samples: int, paths: list[str]) -> bool:
        """Whether what the dataset lacks may be what the build left out, by the counts that the manifest records.

        Names are not recorded. What the source now leaves out by itself needs no excuse: the rest is what no list of a
        split named, and what the build could not read and this process can.

        Args:
            num_samples: samples of which the dataset has nothing.
            paths: of all files that it lacks.
        """
        unlisted, unreadable, incomplete = (
            max(self._recorded.get(reason, 0) - self._skipped_now.get(reason, 0), 0)
            for reason in (SkipReason.UNLISTED, SkipReason.UNREADABLE, SkipReason.MISSING_MEMBER)
        )
        if not unreadable:
            return num_samples <= unlisted
        # a directory that cannot be listed counts once
        num_entries = min(len(paths), len({path.rpartition("/")[0] for path in paths}))
        return num_samples <= unlisted + incomplete or num_entries <= unlisted + unreadable

    def close(self) -> None:
        """Close the source."""
        self._reader.close()


def _recorded_skips(manifest: Manifest) -> dict[SkipReason, int]:
    recorded = manifest.source.get("skipped")
    counts = recorded if isinstance(recorded, Mapping) else {}
    return {reason: count for reason in SkipReason if isinstance(count := counts.get(reason.value), int)}


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
