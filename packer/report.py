"""What ``pack build`` says at its end, as values first and as text or JSON last; pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from packer.config import PackConfig
from packer.plan import PackPlan
from packer.sources.files import Skips
from shardferry.console.units import format_bytes, format_count
from shards.errors import printable
from shards.manifest import Manifest
from shards.strict_json import JsonValue

_SHOWN_SKIPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """A finished dataset."""

    destination: str
    dataset_id: str
    format_name: str
    num_files: int
    num_samples: int
    num_shards: int
    num_kept: int
    """Shards that were there already."""
    size_bytes: int
    splits: Mapping[str, tuple[int, int]]
    """Split → (samples, shards)."""
    num_classes: int
    skips: Skips
    is_new: bool
    """False when all was done before and nothing was written."""

    @classmethod
    def of(cls, config: PackConfig, manifest: Manifest, skips: Skips, *, num_kept: int, is_new: bool) -> "BuildReport":
        """Gather the facts."""
        num_files = manifest.source.get("num_files")
        return cls(
            destination=config.destination,
            dataset_id=manifest.dataset_id,
            format_name=manifest.shard_format,
            num_files=num_files if isinstance(num_files, int) else 0,
            num_samples=manifest.num_samples,
            num_shards=manifest.num_shards,
            num_kept=num_kept,
            size_bytes=manifest.size_bytes,
            splits={split.name: (split.num_samples, len(split.shards)) for split in manifest.splits},
            num_classes=len(manifest.classes),
            skips=skips,
            is_new=is_new,
        )

    @property
    def num_opens_avoided(self) -> int:
        """Files that an epoch no longer opens: it opens shards instead."""
        return max(self.num_files - self.num_shards, 0)

    def as_json(self) -> dict[str, JsonValue]:
        """For ``--json``."""
        return {
            "destination": printable(self.destination),
            "dataset_id": self.dataset_id,
            "format": self.format_name,
            "num_files": self.num_files,
            "num_samples": self.num_samples,
            "num_shards": self.num_shards,
            "num_kept": self.num_kept,
            "size_bytes": self.size_bytes,
            "num_opens_avoided": self.num_opens_avoided,
            "num_classes": self.num_classes,
            "splits": {
                name: {"num_samples": num_samples, "num_shards": num_shards}
                for name, (num_samples, num_shards) in self.splits.items()
            },
            "skipped": skips_as_json(self.skips),
            "is_new": self.is_new,
        }

    def as_text(self) -> str:
        """For people."""
        destination = printable(self.destination)
        verb = "packed" if self.is_new else "already packed, nothing to do:"
        kept = f" ({self.num_kept} kept from an earlier run)" if self.is_new and self.num_kept else ""
        contents = f"{format_count(self.num_samples)} samples ({format_count(self.num_files)} files)"
        lines = [f"{verb} {contents} into {_count(self.num_shards, 'shard')}, {format_bytes(self.size_bytes)}{kept}"]
        lines.extend(
            f"  {name}: {format_count(num_samples)} samples in {_count(num_shards, 'shard')}"
            for name, (num_samples, num_shards) in self.splits.items()
        )
        if self.num_classes:
            lines.append(
                f"classes: {format_count(self.num_classes)}, numbered in the member cls, named in the manifest"
            )
        lines += [
            *skip_lines(self.skips),
            f"an epoch opens {format_count(self.num_shards)} instead of {format_count(self.num_files)} files",
            f"dataset id: {self.dataset_id}",
            f"next: pack verify {destination}   then: stage run {destination} --cache-dir DIR",
        ]
        return "\n".join(lines)


def plan_as_json(plan: PackPlan, skips: Skips) -> dict[str, JsonValue]:
    """What a build would do, for ``--dry-run --json``."""
    files, classes = plan.content.files, plan.content.classes
    return {
        "format": plan.options.format_name,
        "num_files": len(files),
        "source_bytes": files.size_bytes,
        "num_samples": plan.num_samples,
        "num_shards": len(plan.shards),
        "size_bytes": plan.size_bytes,
        "overhead_bytes": plan.size_bytes - _member_bytes(plan),
        "extensions": list(plan.content.samples.extensions),
        "classes": list(classes.names) if classes is not None else [],
        "shards": [
            {"name": shard.name, "split": shard.split, "num_samples": shard.num_samples, "size_bytes": shard.size_bytes}
            for shard in plan.shards
        ],
        "skipped": skips_as_json(skips),
    }


def plan_as_text(plan: PackPlan, skips: Skips) -> str:
    """What a build would do, for ``--dry-run``."""
    files, classes = plan.content.files, plan.content.classes
    overhead = plan.size_bytes - _member_bytes(plan)
    contents = f"{format_count(plan.num_samples)} samples ({format_count(len(files))} files"
    size = f"{format_bytes(plan.size_bytes)} ({format_bytes(overhead)} of it headers and padding)"
    lines = [
        f"would pack {contents}, {format_bytes(files.size_bytes)}) into {_count(len(plan.shards), 'shard')}, {size}"
    ]
    for split in plan.content.splits.names:
        shards = [shard for shard in plan.shards if shard.split == split]
        num_samples = sum(shard.num_samples for shard in shards)
        lines.append(f"  {split}: {format_count(num_samples)} samples in {_count(len(shards), 'shard')}")
    extensions = plan.content.samples.extensions
    more = f" and {len(extensions) - 10} more" if len(extensions) > 10 else ""
    lines.append(f"extensions: {printable(', '.join(extensions[:10]))}{more}")
    if classes is not None:
        lines.append(f"classes: {format_count(len(classes.names))}")
    lines.extend(skip_lines(skips))
    lines.append("first samples:")
    for sample in plan.order[:3]:
        members = ", ".join(f"{name} ({size} bytes)" for name, size in plan.content.members(sample))
        lines.append(f"  {printable(plan.content.samples.keys[sample])}: {printable(members)}")
    lines.append("nothing was written (--dry-run)")
    return "\n".join(lines)


def skips_as_json(skips: Skips) -> dict[str, JsonValue]:
    """Reason → count and first names."""
    return {
        reason.value: {"count": count, "names": [printable(name) for name in skips.names[reason]]}
        for reason, count in sorted(skips.counts.items())
    }


def skip_lines(skips: Skips) -> list[str]:
    """One line per reason, with the first names."""
    lines = []
    for reason, count in sorted(skips.counts.items()):
        names = [printable(name) for name in skips.names[reason][:_SHOWN_SKIPS]]
        more = ", …" if count > len(names) else ""
        lines.append(f"left out, {reason.value}: {format_count(count)} ({', '.join(names)}{more})")
    return lines


def _member_bytes(plan: PackPlan) -> int:
    classes = plan.content.classes
    own = sum(len(str(number)) for number in classes.numbers) if classes is not None else 0
    return own + sum(map(plan.content.files.sizes.__getitem__, plan.content.samples.file_numbers))


def _count(number: int, noun: str) -> str:
    return f"{format_count(number)} {noun}{'' if number == 1 else 's'}"
