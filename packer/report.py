"""What ``pack build`` says at its end, as values first and as text or JSON last; pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from packer.config import PackConfig
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


def _count(number: int, noun: str) -> str:
    return f"{format_count(number)} {noun}{'' if number == 1 else 's'}"
