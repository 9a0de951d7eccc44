"""What ``pack build`` was asked to do, as one value."""

from dataclasses import dataclass

from packer.checks import Checks, UnreadableFiles
from packer.engines.names import EngineName
from packer.group import CaseCollisions, DottedNames, GroupOptions, KeylessNames
from packer.sources.choose import SourceRequest
from packer.sources.options import PLAIN_OPTIONS, SourceOptions
from packer.sources.tree import SymlinkPolicy
from packer.splits import OneSplit, SplitByShare, SplitRule
from packer.transform import TransformSpec
from shards.keys import FIRST_DOT, KeyRule
from shards.names import DEFAULT_SPLIT
from shards.strict_json import JsonValue

DEFAULT_SHARD_SIZE_BYTES = 256 * 1024 * 1024
"""Long enough for sequential reads at full speed, short enough that a node fetches several at once."""

WHOLE = OneSplit(DEFAULT_SPLIT)
NO_CHECKS = Checks()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackConfig:
    """Everything ``pack build`` needs; made by the command line."""

    source: str
    """Directory, table, archive, glob of files, or URL of a prefix of objects."""
    destination: str
    """Directory of the dataset, or its URL; empty for a plan without one."""
    source_options: SourceOptions = PLAIN_OPTIONS
    format_name: str = "tar"
    shard_size_bytes: int = DEFAULT_SHARD_SIZE_BYTES
    split: SplitRule = WHOLE
    shuffle_seed: int | None = 0
    """None keeps the order of the keys."""
    has_classes: bool = False
    key_rule: KeyRule = FIRST_DOT
    symlinks: SymlinkPolicy = SymlinkPolicy.FOLLOW
    keyless: KeylessNames = KeylessNames.ERROR
    dotted: DottedNames = DottedNames.ERROR
    case_collisions: CaseCollisions = CaseCollisions.ERROR
    checks: Checks = NO_CHECKS
    transform: TransformSpec | None = None
    engine: EngineName = EngineName.LOCAL
    ray_address: str | None = None
    """Of the head of a Ray cluster; None finds the one of this machine."""
    jobs: int | None = None
    """Processes, or shards in work at once on a cluster; None takes as many as there are usable processors."""
    read_threads: int | None = None
    """Reading threads in each process; None measures."""
    overwrite: bool = False
    append_to: str | None = None
    """Dataset whose shards the new one shares; only what it lacks is packed."""

    @property
    def group_options(self) -> GroupOptions:
        """How source files become samples."""
        return GroupOptions(
            key_rule=self.key_rule, dotted=self.dotted, keyless=self.keyless, case_collisions=self.case_collisions
        )

    @property
    def source_request(self) -> SourceRequest:
        """What is known about the source before it is looked at."""
        return SourceRequest(
            path=self.source,
            options=self.source_options,
            symlinks=self.symlinks,
            key_rule=self.key_rule,
            excluded=self.destination or None,
            skips_unreadable=self.checks.unreadable is UnreadableFiles.SKIP,
        )

    def recorded_options(self) -> dict[str, JsonValue]:
        """What shaped the data, under the names of the flags; nothing about machines, paths or speed."""
        return {
            "format": self.format_name,
            "shard_size_bytes": self.shard_size_bytes,
            "split": self.split.text,
            **({"split_seed": self.split.seed} if isinstance(self.split, SplitByShare) and self.split.seed else {}),
            "shuffle": self.shuffle_seed,
            "class_from_dir": self.has_classes,
            "key_rule": self.key_rule.text,
            "symlinks": self.symlinks.value,
            "on_keyless": self.keyless.value,
            "dotted_names": self.dotted.value,
            "case_collisions": self.case_collisions.value,
            **self.checks.recorded(),
            **(
                {"transform": self.transform.text, "transform_code": self.transform.code_digest}
                if self.transform is not None
                else {}
            ),
            **self.source_options.recorded(),
        }
