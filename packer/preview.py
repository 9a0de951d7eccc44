"""The first half of ``pack build``: look through the source, group, plan. Writes nothing, refuses what must be refused.

Loads neither pyarrow nor numpy, so that a refusal or a dry run is quick.
"""

import os
from dataclasses import dataclass

from packer.checks import UnreadableFiles, check_extensions, check_unreadable, require_members
from packer.config import PackConfig
from packer.cut import plan_shards
from packer.group import group_files
from packer.labels import CLASS_EXTENSION, classify_samples, split_samples
from packer.locations import is_url
from packer.plan import PackPlan, PlanContent, PlanOptions
from packer.sources.files import Skips
from packer.sources.tree import scan_tree
from packer.split_lists import split_by_list
from packer.splits import SplitByList
from packer.stop import StopFlag
from shards.errors import DestinationError, SourceError, printable
from shards.formats import find_format


@dataclass(frozen=True, slots=True)
class Preview:
    """What a build would do."""

    plan: PackPlan
    skips: Skips
    num_directories: int


def preview_build(config: PackConfig, stop: StopFlag) -> Preview:
    """Look through the source and plan; writes nothing.

    Raises:
        SourceError, DuplicateKeyError, OversizeSampleError: the source cannot be packed as asked.
        StoppedError: a stop was asked for.
    """
    _check_paths(config)
    checks = config.checks
    found = scan_tree(
        config.source,
        config.symlinks,
        excluded=config.destination or None,
        skips_unreadable=checks.unreadable is UnreadableFiles.SKIP,
        check=stop.check,
    )
    check_unreadable(found.skips, len(found.files), checks.max_skipped)
    if not len(found.files):
        left_out = f"; {found.skips.total} entries were left out" if found.skips.total else ""
        raise SourceError(f"there is no file to pack in {printable(config.source)}{left_out}; check the path")
    samples, skips = group_files(found.files, config.group_options)
    if not len(samples):
        raise SourceError(f"none of the {len(found.files)} files in {printable(config.source)} gives a key")
    for reason, count in skips.counts.items():
        found.skips.counts[reason] = count
        found.skips.names[reason] = skips.names[reason]
    stop.check()
    check_extensions(samples, found.files, checks.many_extensions)
    added = frozenset({CLASS_EXTENSION} if config.has_classes else ())
    samples = require_members(samples, checks, found.skips, added)
    if isinstance(config.split, SplitByList):
        samples, splits = split_by_list(samples, found.files, config.split, checks, found.skips)
    else:
        splits = split_samples(samples, found.files, config.split)
    classes = classify_samples(samples, found.files, config.split) if config.has_classes else None
    shard_format = find_format(config.format_name, where="--format")
    options = PlanOptions(
        format_name=shard_format.name,
        suffix=shard_format.suffix,
        end_marker_bytes=len(shard_format.end_marker),
        shard_size_bytes=config.shard_size_bytes,
        shuffle_seed=config.shuffle_seed,
        transform=config.transform,
    )
    content = PlanContent(found.files, samples, splits, classes)
    plan = plan_shards(content, options, shard_format.sample_size, stop.check)
    return Preview(plan, found.skips, found.num_directories)


def _check_paths(config: PackConfig) -> None:
    """Refuse a source that is none, and a destination inside of it."""
    source = printable(config.source)
    if not os.path.lexists(config.source):
        raise SourceError(f"there is no {source}; check the path")
    if not os.path.isdir(config.source):
        raise SourceError(f"{source} is no directory; give the directory that holds the files")
    if not config.destination or is_url(config.destination):
        return
    inside = os.path.realpath(config.source)
    above = os.path.realpath(config.destination)
    if os.path.commonpath([inside, above]) == inside:
        raise SourceError(
            f"the destination {printable(config.destination)} lies inside the source {source}; "
            "choose a destination outside of it"
        )
    if os.path.lexists(config.destination) and not os.path.isdir(config.destination):
        raise DestinationError(
            f"the destination {printable(config.destination)} is a file; choose a directory, it is made if missing"
        )
