"""``pack adopt``: scan all shards, then, only if all are whole, write indexes and manifest."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from packer.adopt.output import LinkKind, check_output, write_output
from packer.adopt.scan import scan_source
from packer.locations import directory_of, is_url
from packer.pool import map_in_processes
from packer.stores.open import open_store
from shardferry import __version__
from shards.errors import DamagedShardsError, SourceError, printable
from shards.foreign.manifest import make_manifest
from shards.foreign.names import Advice, ForeignShard, ForeignShards, choose_files, compressed_shards
from shards.foreign.scan import ScannedShard
from shards.index import ShardIndex
from shards.manifest import Manifest

Hashes = npt.NDArray[np.uint64]

ADVICE = Advice(
    no_shard=", others are named with --split NAME=GLOB and --format",
    formats="choose with --format",
    splits="say it with --split NAME=GLOB, once for each split",
    incomplete="copy what is missing, or take what there is with --allow-incomplete",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptConfig:
    """What ``pack adopt`` was asked to do."""

    source: str
    output: str | None = None
    """None: beside the shards."""
    link: LinkKind = LinkKind.HARD
    globs: tuple[tuple[str, str], ...] = ()
    """(split, pattern)."""
    format_name: str | None = None
    allows_incomplete: bool = False
    overwrite: bool = False
    num_jobs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What was made."""

    manifest: Manifest
    location: str
    """Of the manifest."""
    remarks: tuple[str, ...] = field(default=())
    """Gaps, duplicates, and what was left out; one sentence each."""


def adopt(config: AdoptConfig, check: Callable[[], None], report: Callable[[int, int], None]) -> Adopted:
    """Make a dataset of somebody else's shards.

    Args:
        config: what was asked for.
        check: called often; raises to stop.
        report: called with (samples, bytes) of each scanned shard.

    Raises:
        ForeignShardsError: there are no shards, or not such as can be adopted.
        SourceError: there is no such directory, or no sample in it.
        DamagedShardsError: some are damaged; all are named.
        DestinationError: the result cannot be written.
    """
    if not is_url(config.source) and not os.path.isdir(directory_of(config.source)):
        raise SourceError(f"{printable(config.source)} is no directory; give the one that holds the shards")
    files = choose_files(
        open_store(config.source).list_names(),
        ADVICE,
        globs=config.globs,
        format_name=config.format_name,
        allows_incomplete=config.allows_incomplete,
    )
    check_output(config.source, config.output, config.link, overwrite=config.overwrite)
    with tempfile.TemporaryDirectory(prefix="pack-adopt-") as spool:
        shards = _scan_all(config, files, spool, check, report)
        check()
        indexes = {shard.name: _spool_path(spool, place) for place, shard in enumerate(shards)}
        remarks = [*files.remarks, *_remarks(files, shards, indexes)]
        manifest = make_manifest(
            files,
            shards,
            packer={"program": "shardferry pack adopt", "version": __version__},
            source={"kind": "adopted", "path": printable(config.source), "num_shards": len(shards)},
        )
        write_output(config.source, config.output, config.link, manifest, indexes)
    return Adopted(manifest=manifest, location=config.output or config.source, remarks=tuple(remarks))


def _scan_file(location: str, file: ForeignShard) -> ScannedShard:
    return scan_source(location, file.name, file.format_name)


def _scan_all(
    config: AdoptConfig, files: ForeignShards, spool: str, check: Callable[[], None], report: Callable[[int, int], None]
) -> list[ScannedShard]:
    found: list[ScannedShard | None] = [None] * len(files.files)
    scan = partial(_scan_file, config.source)
    for place, shard in map_in_processes(scan, files.files, config.num_jobs, check):
        with open(_spool_path(spool, place), "wb") as file:
            file.write(shard.index_bytes)
        shard.index_bytes = b""
        found[place] = shard
        report(shard.num_samples, shard.size_bytes)
    shards = [shard for shard in found if shard is not None]
    compressed = [shard.name for shard in shards if shard.is_compressed]
    if compressed:
        raise compressed_shards(compressed)
    faults = [shard.fault for shard in shards if shard.fault]
    if faults:
        raise DamagedShardsError(
            f"{len(faults)} of {len(shards)} shard(s) in {printable(config.source)} cannot be adopted, "
            "nothing was written",
            faults,
            "copy or make them again, or move them away to adopt the rest",
        )
    if not any(shard.num_samples for shard in shards):
        raise SourceError(f"none of the {len(shards)} shard(s) in {printable(config.source)} holds a sample")
    return shards


def _remarks(files: ForeignShards, shards: Sequence[ScannedShard], indexes: dict[str, str]) -> Iterator[str]:
    keyless = sum(shard.num_keyless for shard in shards)
    if keyless:
        names = [name for shard in shards for name in shard.keyless_names][:3]
        yield f"{keyless} member(s) without a key belong to no sample: {', '.join(names)}"
    empty = [shard.name for shard in shards if not shard.num_samples]
    if empty:
        yield f"{len(empty)} shard(s) hold no sample: {', '.join(map(printable, empty[:3]))}"
    duplicates = _duplicate_keys(files, shards, indexes)
    if duplicates:
        shown = ", ".join(map(printable, duplicates[:3]))
        more = f" and {len(duplicates) - 3} more" if len(duplicates) > 3 else ""
        yield f"{len(duplicates)} key(s) stand for samples in several shards of a split: {shown}{more}"
    if files.left_out:
        names = [printable(name) for name in files.left_out[:3]]
        yield f"{len(files.left_out)} file(s) are no shards of this dataset: {', '.join(names)}"


def _duplicate_keys(files: ForeignShards, shards: Sequence[ScannedShard], indexes: dict[str, str]) -> list[str]:
    """Keys that re-appear in another shard of their split; found by their hashes, then proven by the keys."""
    found: list[str] = []
    by_split: dict[str, list[ScannedShard]] = {}
    for file, shard in zip(files.files, shards, strict=True):
        by_split.setdefault(file.split, []).append(shard)
    for several in by_split.values():
        hashes = np.sort(np.concatenate([np.frombuffer(shard.key_hashes, np.uint64) for shard in several]))
        suspects = hashes[1:][hashes[1:] == hashes[:-1]]
        if len(suspects):
            found += _prove(several, suspects, indexes)
    return found


def _prove(
    shards: Sequence[ScannedShard], suspects: "np.typing.NDArray[np.uint64]", indexes: dict[str, str]
) -> list[str]:
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for shard in shards:
        numbers = np.flatnonzero(np.isin(np.frombuffer(shard.key_hashes, np.uint64), suspects)).tolist()
        if not numbers:
            continue
        with ShardIndex.open(indexes[shard.name]) as index:
            for number in numbers:
                key = index.key(number)
                if key in seen:
                    twice[key] = None
                seen.add(key)
    return list(twice)


def _spool_path(spool: str, place: int) -> str:
    return os.path.join(spool, str(place))
