"""``pack inspect`` and ``pack cat``: look at a finished dataset, or take one member out of it."""

import os
from dataclasses import dataclass

from packer.locations import is_url
from packer.stores.base import DatasetStore
from packer.stores.open import open_store
from shardferry.console.units import format_bytes, format_count
from shards.digests import crc32c
from shards.errors import IntegrityError, MissingMemberError, NotStagedError, printable
from shards.index import IndexedMember
from shards.manifest import MANIFEST_NAME, Manifest
from shards.strict_json import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSample:
    """Where one sample lies."""

    key: str
    split: str
    shard_name: str
    number: int
    """In the shard."""
    offset: int
    members: tuple[IndexedMember, ...]

    def as_json(self) -> dict[str, JsonValue]:
        """For ``--json``."""
        return {
            "key": printable(self.key),
            "split": self.split,
            "shard": self.shard_name,
            "number": self.number,
            "offset": self.offset,
            "members": [
                {"extension": m.extension, "offset": m.offset, "size_bytes": m.size, "crc32c": f"{m.crc32c:08x}"}
                for m in self.members
            ],
        }

    def as_text(self) -> str:
        """For people."""
        lines = [f"{printable(self.key)}: split {self.split}, shard {self.shard_name}, sample {self.number} in it"]
        lines.extend(
            f"  {printable(m.extension):<12} {m.size:>12} bytes  at {m.offset:<12} crc32c {m.crc32c:08x}"
            for m in self.members
        )
        return "\n".join(lines)


def read_manifest(location: str) -> Manifest:
    """Read the manifest of a finished dataset.

    Raises:
        NotStagedError: there is none.
        ManifestFormatError: it is damaged.
        RemoteError: the object store cannot be read.
    """
    store = open_store(location)
    what = printable(location)
    try:
        data = store.read_file(MANIFEST_NAME)
    except (FileNotFoundError, NotADirectoryError) as error:
        if not is_url(location) and not os.path.isdir(store.location):
            raise NotStagedError(f"there is no dataset directory {what}; check the path") from error
        raise NotStagedError(
            f"{what} has no {MANIFEST_NAME}: it is not a finished dataset; "
            "if pack build was stopped there, run it again"
        ) from error
    return Manifest.from_json(data, name=join_name(store, MANIFEST_NAME))


def join_name(store: DatasetStore, name: str) -> str:
    """What messages call a file of a dataset."""
    return f"{store.location.rstrip('/')}/{name}"


def find_samples(location: str, manifest: Manifest, key: str) -> list[FoundSample]:
    """Find a key in all splits.

    Raises:
        IndexFormatError, OSError, RemoteError: an index is damaged or missing.
    """
    store = open_store(location)
    found = []
    for split, entry in manifest.shards():
        with store.open_index(entry.index_name) as index:
            number = index.find(key)
            if number is not None:
                sample = FoundSample(
                    key=key,
                    split=split.name,
                    shard_name=entry.name,
                    number=number,
                    offset=index.sample_offset(number),
                    members=index.members(number),
                )
                found.append(sample)
    return found


def read_member(location: str, manifest: Manifest, name: str) -> bytes:
    """Read one member, checked against its sum.

    Args:
        location: of the dataset.
        manifest: of the dataset.
        name: key and extension, ``KEY.EXT``; any dot of the base name may be the one between them.

    Raises:
        NotStagedError: no sample has such a key.
        MissingMemberError: the sample has no such member.
        IntegrityError: the member is damaged.
    """
    missing: MissingMemberError | None = None
    dots = [place for place in range(name.rfind("/") + 1, len(name)) if name[place] == "."]
    for dot in dots:
        key, extension = name[:dot], name[dot + 1 :].lower()
        for sample in find_samples(location, manifest, key):
            for member in sample.members:
                if member.extension == extension:
                    return _read_checked(open_store(location), sample, member)
            missing = MissingMemberError(key, extension, [member.extension for member in sample.members])
    if missing is not None:
        raise missing
    raise NotStagedError(f"no sample in {printable(location)} has the key of {printable(name)}; write KEY.EXT")


def summary_as_json(manifest: Manifest) -> dict[str, JsonValue]:
    """The dataset as a whole, for ``--json``."""
    return {
        "dataset_id": manifest.dataset_id,
        "format": manifest.shard_format,
        "num_samples": manifest.num_samples,
        "num_shards": manifest.num_shards,
        "size_bytes": manifest.size_bytes,
        "classes": list(manifest.classes),
        "splits": [
            {
                "name": split.name,
                "num_samples": split.num_samples,
                "size_bytes": split.size_bytes,
                "extensions": {name: entry.as_json() for name, entry in sorted(split.extensions.items())},
                "shards": [
                    {"name": shard.name, "num_samples": shard.num_samples, "size_bytes": shard.size_bytes}
                    for shard in split.shards
                ],
            }
            for split in manifest.splits
        ],
        "packer": manifest.packer,
        "source": manifest.source,
    }


def summary_as_text(manifest: Manifest) -> str:
    """The dataset as a whole, for people."""
    total = (
        f"{format_count(manifest.num_samples)} samples in {format_count(manifest.num_shards)} shard(s), "
        f"{format_bytes(manifest.size_bytes)}"
    )
    lines = [f"dataset id: {manifest.dataset_id}", f"format: {manifest.shard_format}, {total}"]
    if manifest.classes:
        first = ", ".join(printable(name) for name in manifest.classes[:8])
        lines.append(f"classes: {len(manifest.classes)} ({first}{', …' if len(manifest.classes) > 8 else ''})")
    for split in manifest.splits:
        lines.append(
            f"split {split.name}: {format_count(split.num_samples)} samples in "
            f"{format_count(len(split.shards))} shard(s), {format_bytes(split.size_bytes)}"
        )
        for name, entry in sorted(split.extensions.items()):
            missing = f", missing in {format_count(entry.num_missing)}" if entry.num_missing else ""
            lines.append(
                f"  {printable(name):<12} {format_count(entry.num_present):>12} members, "
                f"{format_bytes(entry.size_bytes)}{missing}"
            )
    return "\n".join(lines)


def _read_checked(store: DatasetStore, sample: FoundSample, member: IndexedMember) -> bytes:
    with store.open_reader(sample.shard_name, is_sequential=False) as shard:
        data = shard.read_at(member.size, member.offset)
    actual = crc32c(data)
    if len(data) != member.size or actual != member.crc32c:
        raise IntegrityError(
            f"member {printable(member.extension)} of {printable(sample.key)} in {sample.shard_name} is damaged: "
            f"expected {member.size} bytes with crc32c {member.crc32c:08x}, actual {len(data)} with {actual:08x}; "
            "run pack verify"
        )
    return data
