"""The first half of ``pack build``: look through the source, group, plan. Writes nothing, refuses what must be refused.

Loads no pyarrow, so that a refusal or a dry run is quick.
"""

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from packer.checks import check_extensions, check_unreadable, require_members
from packer.config import PackConfig
from packer.cut import plan_shards
from packer.group import group_files
from packer.labels import CLASS_EXTENSION, classify_samples, split_samples
from packer.locations import is_url, without_credentials
from packer.plan import PackPlan, PlanContent, PlanOptions
from packer.sources.choose import choose_source
from packer.sources.files import INLINE, Skips
from packer.sources.origin import Origin
from packer.split_lists import split_by_list
from packer.splits import SplitByList
from packer.stop import StopFlag
from shards.errors import DestinationError, SourceError, printable
from shards.formats import find_format

if TYPE_CHECKING:
    from packer.append import Base

logger = logging.getLogger(__name__)

_HOLDING_MANY = frozenset({"tar", "tar.gz", "tgz", "tar.zst", "tar.xz", "tar.bz2", "zip", "parquet", "arrow"})


@dataclass(frozen=True, slots=True)
class Preview:
    """What a build would do."""

    plan: PackPlan
    skips: Skips
    num_directories: int
    source_kind: str
    origin: Origin
    """Where the packer processes find the members."""
    base: "Base | None" = None
    """The dataset that is added to."""


def preview_build(config: PackConfig, stop: StopFlag) -> Preview:
    """Look through the source and plan; writes nothing.

    Raises:
        SourceError, DuplicateKeyError, OversizeSampleError: the source cannot be packed as asked.
        StoppedError: a stop was asked for.
    """
    _check_paths(config)
    source = choose_source(config.source_request)
    found = source.scan(stop.check)
    checks = config.checks
    num_readable = len(found.files) - found.files.stamps.count(INLINE)
    check_unreadable(found.skips, num_readable, checks.max_skipped)
    shown = printable(without_credentials(config.source))
    if not len(found.files):
        left_out = f"; {found.skips.total} entries were left out" if found.skips.total else ""
        raise SourceError(f"there is no file to pack in {shown}{left_out}; check the path")
    samples, skips = group_files(found.files, config.group_options)
    if not len(samples):
        raise SourceError(f"none of the {len(found.files)} files in {shown} gives a key")
    found.skips.take(skips)
    if source.kind == "tree" and _HOLDING_MANY.issuperset(samples.extensions):
        logger.warning("all files of the tree hold many samples each; --source-kind archive or inline packs those")
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
    if config.append_to is None:
        plan = plan_shards(content, options, shard_format, stop.check)
        return Preview(plan, found.skips, found.num_directories, source.kind, found.origin)
    from packer.append import keep_new, read_base, renumber_shards  # noqa: PLC0415 (reads indexes, so loads Arrow)

    base = read_base(config, config.append_to, source.kind)
    plan = plan_shards(keep_new(content, base), options, shard_format, stop.check)
    renumbered = renumber_shards(plan, base.manifest)
    return Preview(renumbered, found.skips, found.num_directories, source.kind, found.origin, base)


def _check_paths(config: PackConfig) -> None:
    """Refuse a destination inside of the source."""
    inside = os.path.realpath(config.source)
    if config.append_to is not None:
        if config.transform is not None:
            raise SourceError(
                "--append-to compares samples with their source files, and --transform makes them differ; "
                "pack the whole source anew"
            )
        _check_base(config, config.append_to, inside)
    if not config.destination:
        return
    if is_url(config.destination):
        if f"{config.destination.rstrip('/')}/".startswith(f"{config.source.rstrip('/')}/"):
            _refuse_inside(config)
        return
    above = os.path.realpath(config.destination)
    if os.path.isdir(inside) and os.path.commonpath([inside, above]) == inside:
        _refuse_inside(config)
    if os.path.lexists(config.destination) and not os.path.isdir(config.destination):
        raise DestinationError(
            f"the destination {printable(config.destination)} is no directory; choose one, it is made if missing"
        )


def _refuse_inside(config: PackConfig) -> NoReturn:
    raise SourceError(
        f"the destination {printable(without_credentials(config.destination))} lies inside the source "
        f"{printable(without_credentials(config.source))}; choose a destination outside of it"
    )


def _check_base(config: PackConfig, location: str, source_path: str) -> None:
    """Refuse a dataset to add to that is the destination, or lies in the source."""
    if is_url(location):
        is_same = location.rstrip("/") == config.destination.rstrip("/")
    else:
        base_path = os.path.realpath(location)
        is_url_or_none = not config.destination or is_url(config.destination)
        is_same = not is_url_or_none and base_path == os.path.realpath(config.destination)
        if os.path.isdir(source_path) and os.path.commonpath([source_path, base_path]) == source_path:
            raise SourceError(
                f"the dataset {printable(location)} lies inside the source {printable(config.source)}; "
                "move it out of there"
            )
    if is_same:
        raise DestinationError(
            f"{printable(location)} cannot be added to in place: a dataset never changes; "
            "give a new directory as destination, it gets links to the shards there are"
        )
