"""``pack build --append-to``: only what is new is packed, as more shards of a new dataset that shares the old ones.

Rules:
    * A dataset never changes. The result is another dataset, in another directory, with another id; the old one stays
      as it is, and whoever has its shards needs only the new ones.
    * The source must still hold every sample of the old dataset, unchanged. What was changed or removed is listed.
    * Old shards come first in each split, so old sample numbers stay; new classes get the numbers after the old ones.
    * Splits are those of the same rule. Shares are told from keys, so samples added later fall where they would have.
"""

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace

from packer.begun import SOURCES_NAME
from packer.checks import drop_samples
from packer.config import PackConfig
from packer.inspect import read_manifest
from packer.labels import CLASS_EXTENSION, Labels
from packer.plan import PackPlan, PlanContent
from packer.samples_of import walk_samples
from packer.saved import read_sources
from packer.sources.files import SourceFiles, display_path
from packer.stores.base import DatasetStore
from packer.stores.open import open_store
from shards.digests import BLOCK_BYTES
from shards.errors import PlanMismatchError, SourceError, list_offenders, printable
from shards.manifest import ExtensionEntry, Manifest, SplitEntry
from shards.names import STATE_NAME
from shards.ranges import ReaderStream
from shards.strict_json import JsonValue

_MAY_DIFFER = frozenset({"shard_size_bytes", "shuffle", "append_to"})
"""Options that do not say which samples there are, or how they look."""

_NUMBER = re.compile(r".*-(\d{6})\.[a-z]+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Base:
    """The dataset that is added to."""

    location: str
    manifest: Manifest


def read_base(config: PackConfig, location: str, source_kind: str) -> Base:
    """Read the dataset that is added to, and check that the options are its own.

    Args:
        config: what was asked for.
        location: of the dataset.
        source_kind: of the source at hand.

    Raises:
        NotStagedError: there is none.
        PlanMismatchError: it was not packed this way.
    """
    manifest = read_manifest(location)
    recorded = manifest.packer.get("options")
    if not isinstance(recorded, Mapping):
        raise PlanMismatchError(f"{printable(location)} was not made by pack build, so nobody knows how to add to it")
    kind = manifest.source.get("kind")
    if kind != source_kind:
        raise PlanMismatchError(
            f"{printable(location)} was packed from a source of the kind {printable(str(kind))}, this one is "
            f"{source_kind}; give the source that it was packed from, with what is new in it"
        )
    if manifest.block_bytes != BLOCK_BYTES:
        raise PlanMismatchError(
            f"{printable(location)} has blocks of {manifest.block_bytes} bytes, this release writes {BLOCK_BYTES}; "
            "pack the whole source anew"
        )
    wanted = config.recorded_options()
    lines = [
        f"option {name}: {recorded.get(name)!r} there, {wanted.get(name)!r} here"
        for name in sorted({*recorded, *wanted} - _MAY_DIFFER)
        if recorded.get(name) != wanted.get(name)
    ]
    if lines:
        raise PlanMismatchError(
            f"{printable(location)} was packed with other options:\n{list_offenders(lines)}\n"
            "give the same ones, or pack the whole source anew"
        )
    return Base(location, manifest)


def keep_new(content: PlanContent, base: Base) -> PlanContent:
    """Leave out the samples that the base has.

    Args:
        content: of the whole source.
        base: the dataset that is added to.

    Raises:
        SourceError: a sample of the base was changed or removed; all are listed.
    """
    store = open_store(base.location)
    is_old = bytearray(len(content.samples))
    number_of = {key: number for number, key in enumerate(content.samples.keys)}
    faults = _changed_files(store, content.files)
    for sample in walk_samples(store, base.manifest):
        number = number_of.get(sample.key)
        if number is None:
            faults.append(f"{printable(sample.key)}: was removed")
            continue
        is_old[number] = True
        sizes = {member.extension: member.size for member in sample.members}
        now = {extension: content.files.sizes[file] for extension, file in content.samples.members(number)}
        if content.classes is not None:
            sizes.pop(CLASS_EXTENSION, None)
        if sizes != now:
            faults.append(f"{printable(sample.key)}: had {_describe(sizes)}, now {_describe(now)}")
    if faults:
        raise SourceError(
            f"{len(faults)} source file(s) or sample(s) of {printable(base.location)} are not what they were:\n"
            f"{list_offenders(faults)}\n"
            "a dataset never changes and --append-to only adds: put them back, or pack the whole source anew"
        )
    kept = [number for number, old in enumerate(is_old) if not old]
    return PlanContent(
        content.files,
        drop_samples(content.samples, {number for number, old in enumerate(is_old) if old}),
        Labels(content.splits.names, array("I", map(content.splits.numbers.__getitem__, kept))),
        None if content.classes is None else _number_classes(content.classes, kept, base.manifest.classes),
    )


def renumber_shards(plan: PackPlan, manifest: Manifest) -> PackPlan:
    """Let the numbers of new shards follow those of the base in each split."""
    following = {
        split.name: 1
        + max((int(found[1]) for shard in split.shards if (found := _NUMBER.fullmatch(shard.name))), default=-1)
        for split in manifest.splits
    }
    shards = []
    for shard in plan.shards:
        number = following.get(shard.split, 0)
        following[shard.split] = number + 1
        shards.append(replace(shard, name=f"{shard.split}-{number:06d}{plan.options.suffix}"))
    return replace(plan, shards=tuple(shards))


def extend_manifest(base: Manifest, new: Manifest | None, *, options: Mapping[str, JsonValue]) -> Manifest:
    """Describe the base and the new shards as one dataset.

    Args:
        base: of the dataset that was added to.
        new: of the new shards alone; None when nothing is new.
        options: that the new shards were packed with.
    """
    if new is None:
        return base
    splits = {split.name: split for split in base.splits}
    for split in new.splits:
        old = splits.get(split.name)
        splits[split.name] = split if old is None else _extend_split(old, split)
    return replace(
        base,
        splits=tuple(split for _, split in sorted(splits.items())),
        classes=new.classes or base.classes,
        packer={**new.packer, "options": options},
        source=_extend_source(base.source, new.source),
    )


def _extend_source(old: Mapping[str, JsonValue], new: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The source as it is now, with the files of the base counted too: it still holds them."""
    source = dict(new)
    for name in ("num_files", "size_bytes"):
        before, added = old.get(name), new.get(name)
        if isinstance(before, int) and isinstance(added, int):
            source[name] = before + added
    return source


def _extend_split(old: SplitEntry, new: SplitEntry) -> SplitEntry:
    num_samples = old.num_samples + new.num_samples
    extensions = {}
    for extension in sorted({*old.extensions, *new.extensions}):
        entries = [split.extensions[extension] for split in (old, new) if extension in split.extensions]
        present = sum(entry.num_present for entry in entries)
        extensions[extension] = ExtensionEntry(
            num_present=present,
            num_missing=num_samples - present,
            size_bytes=sum(entry.size_bytes for entry in entries),
        )
    return replace(
        old,
        num_samples=num_samples,
        size_bytes=old.size_bytes + new.size_bytes,
        shards=old.shards + new.shards,
        extensions=extensions,
    )


def _changed_files(store: DatasetStore, files: SourceFiles) -> list[str]:
    """Source files that have another date than when the base was packed, as far as its plan is there to tell."""
    try:
        reader = store.open_reader(f"{STATE_NAME}/{SOURCES_NAME}")
    except OSError:
        return []
    now = {path: (size, stamp) for path, size, stamp in zip(files.paths, files.sizes, files.stamps, strict=True)}
    faults = []
    with reader:
        try:
            for file in read_sources(ReaderStream(reader)):  # type: ignore[arg-type]
                found = now.get(file.path)
                if found is not None and found[0] == file.size_bytes and found[1] != file.stamp:
                    faults.append(f"{printable(display_path(file.path))}: was modified since")
        except (OSError, ValueError, EOFError):
            return []
    return faults


def _number_classes(classes: Labels, kept: list[int], old_names: tuple[str, ...]) -> Labels:
    names = old_names + tuple(name for name in classes.names if name not in set(old_names))
    number_of = {name: number for number, name in enumerate(names)}
    numbers = array("I", (number_of[classes.names[classes.numbers[number]]] for number in kept))
    return Labels(names, numbers)


def _describe(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{printable(extension)} ({size} bytes)" for extension, size in sorted(sizes.items()))
