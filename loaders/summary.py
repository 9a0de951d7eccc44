"""What ``load inspect`` shows, as values: a dataset's splits and extensions, or where one sample lies."""

from dataclasses import dataclass

from loaders.check import check_files
from loaders.dataset import Dataset, choose_split, open_dataset, read_manifest
from loaders.place import DatasetPlace
from loaders.sample import Sample
from shards.errors import LoadError, printable
from shards.manifest import SplitEntry

NUM_FIRST_KEYS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSummary:
    """One extension of a split."""

    extension: str
    num_present: int
    num_missing: int
    mean_bytes: float
    """Of the members that are there; 0 when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSummary:
    """One split."""

    name: str
    num_samples: int
    num_shards: int
    size_bytes: int
    extensions: tuple[ExtensionSummary, ...]
    first_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSummary:
    """A whole dataset."""

    dataset_id: str
    directory: str
    shard_format: str
    is_staged: bool
    """Whether the directory belongs to a node cache."""
    is_verified: bool
    """Whether every byte has just been compared with its digest."""
    classes: tuple[str, ...]
    splits: tuple[SplitSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSummary:
    """Where a member's data lie in the shard."""

    extension: str
    offset: int
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSummary:
    """Where a sample lies."""

    key: str
    split: str
    number: int
    """0-based place in the split."""
    shard_path: str
    offset: int
    """Where the sample starts in the shard."""
    is_verified: bool
    """Whether the members have just been compared with their CRCs."""
    members: tuple[MemberSummary, ...]


def summarise_dataset(place: DatasetPlace, *, split: str | None, verify: bool) -> DatasetSummary:
    """Describe a dataset; reads the manifest, and the index of each split's first shard.

    Args:
        place: where it lies.
        split: only this one; all when None.
        verify: also compare every block with its digest and every member with its CRC-32C.
    """
    manifest = read_manifest(place)
    entries = manifest.splits if split is None else (choose_split(manifest, split, place),)
    return DatasetSummary(
        dataset_id=manifest.dataset_id,
        directory=place.directory,
        shard_format=manifest.shard_format,
        is_staged=place.is_staged,
        is_verified=verify,
        classes=tuple(manifest.classes),
        splits=tuple(_summarise_split(place, entry, verify=verify) for entry in entries),
    )


def find_sample(place: DatasetPlace, key: str, *, split: str | None, verify: bool) -> SampleSummary:
    """Look a sample up by its key, in one split or in all of them.

    Args:
        place: where the dataset lies.
        key: the sample's key.
        split: only this one; all when None.
        verify: also compare the members with their CRC-32C.

    Raises:
        LoadError: no sample has the key.
    """
    manifest = read_manifest(place)
    names = [entry.name for entry in manifest.splits] if split is None else [split]
    for name in names:
        with open_dataset(place.directory, split=name, verify="crc" if verify else "none") as dataset:
            position = dataset.find(key)
            if position is not None:
                return _summarise_sample(dataset, position, verify=verify)
    searched = ", ".join(printable(name) for name in names)
    raise LoadError(f"no sample of {printable(place.directory)} has the key {printable(key)}; searched: {searched}")


def _summarise_split(place: DatasetPlace, entry: SplitEntry, *, verify: bool) -> SplitSummary:
    with open_dataset(place.directory, split=entry.name, verify="crc" if verify else "none") as dataset:
        if verify:
            check_files(dataset.shards, "full")
            _read_all(dataset)
        first_keys = tuple(dataset.key(position) for position in range(min(NUM_FIRST_KEYS, len(dataset))))
    return SplitSummary(
        name=entry.name,
        num_samples=entry.num_samples,
        num_shards=len(entry.shards),
        size_bytes=entry.size_bytes,
        extensions=tuple(
            ExtensionSummary(
                extension=extension,
                num_present=found.num_present,
                num_missing=found.num_missing,
                mean_bytes=found.size_bytes / found.num_present if found.num_present else 0.0,
            )
            for extension, found in sorted(entry.extensions.items())
        ),
        first_keys=first_keys,
    )


def _read_all(dataset: Dataset) -> None:
    """Touch every member, so that a dataset opened with ``verify="crc"`` compares every CRC."""
    for sample in dataset:
        _read_members(sample)


def _read_members(sample: Sample) -> None:
    for extension in sample:
        sample.view(extension)


def _summarise_sample(dataset: Dataset, position: int, *, verify: bool) -> SampleSummary:
    sample = dataset[position]
    if verify:
        _read_members(sample)
    shard, row = dataset.locate(position)
    return SampleSummary(
        key=sample.key,
        split=dataset.info.split,
        number=sample.number,
        shard_path=shard.file.path,
        offset=shard.index.sample_offset(row),
        is_verified=verify,
        members=tuple(
            MemberSummary(
                extension=member.extension, offset=member.offset, size_bytes=member.size, crc32c=member.crc32c
            )
            for member in shard.index.members(row)
        ),
    )
