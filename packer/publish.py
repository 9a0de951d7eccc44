"""All shards → ``manifest.json``, written last: the commit of the whole dataset."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from packer.labels import CLASS_EXTENSION
from packer.plan import PackPlan
from packer.sources.files import Skips
from packer.stores.open import open_store
from packer.write import ShardResult
from shardferry import __version__
from shards.digests import BLOCK_BYTES
from shards.errors import printable
from shards.index_schema import index_name
from shards.manifest import MANIFEST_NAME, ExtensionEntry, Manifest, ShardEntry, SplitEntry
from shards.strict_json import JsonValue


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What the manifest tells people about the source."""

    kind: str
    path: str
    """As the user gave it."""
    skips: Skips


def make_manifest(
    plan: PackPlan,
    results: Mapping[int, ShardResult],
    *,
    options: Mapping[str, JsonValue],
    source: SourceFacts,
) -> Manifest:
    """Describe a finished dataset.

    Args:
        plan: of the dataset.
        results: of every shard, by number.
        options: that shaped the data, for people.
        source: for people.
    """
    by_split: dict[str, list[int]] = {}
    for number, shard in enumerate(plan.shards):
        if not results[number].num_samples:
            continue  # a transform dropped all of its samples
        by_split.setdefault(shard.split, []).append(number)
    splits = tuple(
        SplitEntry(
            name=name,
            num_samples=sum(results[number].num_samples for number in numbers),
            size_bytes=sum(results[number].size_bytes for number in numbers),
            shards=tuple(_shard_entry(results[number]) for number in numbers),
            extensions=_count_extensions(plan, results, numbers),
        )
        for name, numbers in sorted(by_split.items())
    )
    classes = plan.content.classes
    skipped: dict[str, JsonValue] = {reason.value: count for reason, count in sorted(source.skips.counts.items())}
    return Manifest(
        shard_format=plan.options.format_name,
        block_bytes=BLOCK_BYTES,
        splits=splits,
        classes=classes.names if classes is not None else (),
        packer={"program": "shardferry pack", "version": __version__, "options": options},
        source={
            "kind": source.kind,
            "path": printable(source.path),
            "num_files": plan.num_files,
            "size_bytes": plan.source_bytes,
            "skipped": skipped,
        },
    )


def write_manifest(manifest: Manifest, location: str) -> None:
    """Commit the dataset."""
    open_store(location).put(MANIFEST_NAME, manifest.to_json())


def _count_extensions(
    plan: PackPlan, results: Mapping[int, ShardResult], numbers: list[int]
) -> dict[str, ExtensionEntry]:
    accounts = [account for number in numbers if (account := results[number].transformed) is not None]
    if not accounts:
        return count_extensions(plan, numbers)
    num_samples = sum(results[number].num_samples for number in numbers)
    counts: dict[str, list[int]] = {}
    for account in accounts:
        for extension, (present, size) in account.extensions.items():
            count = counts.setdefault(extension, [0, 0])
            count[0] += present
            count[1] += size
    return {
        extension: ExtensionEntry(num_present=present, num_missing=num_samples - present, size_bytes=size)
        for extension, (present, size) in sorted(counts.items())
    }


def count_extensions(plan: PackPlan, shard_numbers: list[int]) -> dict[str, ExtensionEntry]:
    """Count the members of some shards by extension."""
    content = plan.content
    samples, classes = content.samples, content.classes
    num_codes = len(samples.extensions)
    present, size_bytes = np.zeros(num_codes, np.int64), np.zeros(num_codes, np.int64)
    num_samples = class_bytes = 0
    for number in shard_numbers:
        numbers = plan.sample_numbers(plan.shards[number])
        num_samples += len(numbers)
        _, places = plan.member_places(numbers)
        codes = np.asarray(samples.extension_codes)[places]
        present += np.bincount(codes, minlength=num_codes)
        np.add.at(
            size_bytes,
            codes,
            np.asarray(content.files.sizes)[np.asarray(samples.file_numbers)[places]].astype(np.int64),
        )
        if classes is not None:
            class_bytes += sum(len(str(classes.numbers[sample])) for sample in numbers.tolist())
    counts = {
        name: (count, size)
        for name, count, size in zip(samples.extensions, present.tolist(), size_bytes.tolist(), strict=True)
        if count
    }
    if classes is not None and num_samples:
        counts[CLASS_EXTENSION] = (num_samples, class_bytes)
    return {
        extension: ExtensionEntry(num_present=count, num_missing=num_samples - count, size_bytes=size)
        for extension, (count, size) in sorted(counts.items())
    }


def _shard_entry(result: ShardResult) -> ShardEntry:
    return ShardEntry(
        name=result.name,
        size_bytes=result.size_bytes,
        digest=result.digest,
        num_samples=result.num_samples,
        index_name=index_name(result.name),
        index_size_bytes=result.index_size_bytes,
        index_digest=result.index_digest,
    )
