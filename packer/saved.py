"""The plan as it is saved beside the shards, so that a later run knows whether it goes on with the same work.

Two files: ``plan.json`` (options, totals, and a digest of each shard's plan) and ``sources.tsv.gz`` (size, stamp and
path of every source file), which is only read to name the differences.
"""

import gzip
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from packer.plan import PLAN_VERSION, PackPlan
from packer.sources.files import SourceFile, SourceFiles, display_path
from shards.errors import LISTED_OFFENDERS, printable
from shards.strict_json import JsonError, JsonFields, JsonValue, parse_json, render_json


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedShard:
    """One shard of a saved plan."""

    name: str
    num_samples: int
    size_bytes: int
    plan_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """What identifies a plan."""

    plan_version: int
    options: Mapping[str, JsonValue]
    num_files: int
    source_bytes: int
    classes: tuple[str, ...]
    shards: tuple[SavedShard, ...]

    @property
    def num_samples(self) -> int:
        """Samples in all shards."""
        return sum(shard.num_samples for shard in self.shards)

    @property
    def digest(self) -> str:
        """Digest of the whole plan, hex."""
        content = [
            self.plan_version,
            sorted(self.options.items()),
            self.classes,
            [(shard.name, shard.plan_digest) for shard in self.shards],
        ]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()

    def to_json(self) -> bytes:
        """The file; the same bytes for the same value."""
        value: dict[str, JsonValue] = {
            "plan_version": self.plan_version,
            "plan_digest": self.digest,
            "options": self.options,
            "num_files": self.num_files,
            "source_bytes": self.source_bytes,
            "classes": self.classes,
            "shards": [
                {
                    "name": shard.name,
                    "num_samples": shard.num_samples,
                    "size_bytes": shard.size_bytes,
                    "plan_digest": shard.plan_digest,
                }
                for shard in self.shards
            ],
        }
        return render_json(value).encode("ascii") + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> "SavedPlan":
        """Read the file.

        Raises:
            JsonError: it is damaged, or not one of these.
        """
        fields = JsonFields(parse_json(data), "")
        version = fields.count("plan_version")
        if version != PLAN_VERSION:
            raise JsonError(
                "plan_version",
                f"is {version}, this release makes version {PLAN_VERSION}: another release of shardferry began this, "
                "and can go on with it",
            )
        claimed = fields.string("plan_digest")
        plan = cls(
            plan_version=version,
            options=fields.object("options"),
            num_files=fields.count("num_files"),
            source_bytes=fields.count("source_bytes"),
            classes=tuple(str(name) for name in fields.array("classes")),
            shards=tuple(
                SavedShard(
                    name=shard.string("name"),
                    num_samples=shard.count("num_samples"),
                    size_bytes=shard.count("size_bytes"),
                    plan_digest=shard.string("plan_digest"),
                )
                for shard in (JsonFields(value, "shards") for value in fields.array("shards"))
            ),
        )
        if plan.digest != claimed:
            raise JsonError("plan_digest", f"is {claimed!r}, but the content has {plan.digest}: the file was altered")
        return plan


def summarize_plan(plan: PackPlan, options: Mapping[str, JsonValue]) -> SavedPlan:
    """Make what is saved of a plan."""
    files, classes = plan.content.files, plan.content.classes
    return SavedPlan(
        plan_version=PLAN_VERSION,
        options=options,
        num_files=len(files),
        source_bytes=files.size_bytes,
        classes=classes.names if classes is not None else (),
        shards=tuple(
            SavedShard(
                name=shard.name,
                num_samples=shard.num_samples,
                size_bytes=shard.size_bytes,
                plan_digest=plan.shard_plan(number).digest(),
            )
            for number, shard in enumerate(plan.shards)
        ),
    )


def list_differences(old: SavedPlan, new: SavedPlan) -> list[str]:
    """Say how the options and totals of two plans differ, old first."""
    lines = []
    if old.plan_version != new.plan_version:
        lines.append(f"planned by another release: plan version {old.plan_version}, now {new.plan_version}")
    for name in sorted({*old.options, *new.options}):
        before, now = old.options.get(name), new.options.get(name)
        if before != now:
            lines.append(f"option {name}: was {json.dumps(before)}, now {json.dumps(now)}")
    for name in ("num_files", "source_bytes", "num_samples"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            lines.append(f"{name}: was {before}, now {now}")
    return lines


def list_source_differences(old: Iterator[SourceFile], new: Iterable[SourceFile]) -> list[str]:
    """Say which source files differ, the first :data:`LISTED_OFFENDERS` and then a count.

    Both in ascending order of their paths; they are merged, so memory does not grow with their number.
    """
    lines: list[str] = []
    num_lines = 0
    for line in _merge_differences(iter(old), iter(new)):
        num_lines += 1
        if num_lines <= LISTED_OFFENDERS:
            lines.append(line)
    if num_lines > LISTED_OFFENDERS:
        lines.append(f"… and {num_lines - LISTED_OFFENDERS} more source files")
    return lines


def _merge_differences(old: Iterator[SourceFile], new: Iterator[SourceFile]) -> Iterator[str]:
    before, now = next(old, None), next(new, None)
    while before is not None or now is not None:
        if before is not None and (now is None or before.path < now.path):
            yield f"source file {_name(before)}: is gone"
            before = next(old, None)
        elif now is not None and (before is None or now.path < before.path):
            yield f"source file {_name(now)}: is new"
            now = next(new, None)
        elif before is not None and now is not None:
            if before.size_bytes != now.size_bytes:
                yield f"source file {_name(now)}: had {before.size_bytes} bytes, now {now.size_bytes}"
            elif before.stamp != now.stamp:
                yield f"source file {_name(now)}: was modified since"
            before, now = next(old, None), next(new, None)


def _name(file: SourceFile) -> str:
    return printable(display_path(file.path))


def write_sources(files: SourceFiles, target: IO[bytes]) -> None:
    """Write the table of source files: ``size<TAB>stamp<TAB>path`` a line, gzip without a date or name."""
    with gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=target, mtime=0) as packed:
        writer = io.BufferedWriter(packed, 1024 * 1024)
        for path, size, stamp in zip(files.paths, files.sizes, files.stamps, strict=True):
            writer.write(b"%d\t%d\t%s\n" % (size, stamp, _escape(path)))
        writer.flush()
        writer.detach()


def read_sources(source: IO[bytes]) -> Iterator[SourceFile]:
    """Read the table of source files.

    Raises:
        ValueError, OSError, EOFError: it is damaged.
    """
    with gzip.GzipFile(mode="rb", fileobj=source) as packed:
        for line in packed:
            size, stamp, path = line.rstrip(b"\n").split(b"\t")
            yield SourceFile(_unescape(path), int(size), int(stamp))


def _escape(path: bytes) -> bytes:
    if b"\\" not in path and b"\n" not in path and b"\t" not in path:
        return path
    return path.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\t", b"\\t")


def _unescape(path: bytes) -> bytes:
    if b"\\" not in path:
        return path
    parts = path.split(b"\\\\")
    return b"\\".join(part.replace(b"\\n", b"\n").replace(b"\\t", b"\t") for part in parts)
