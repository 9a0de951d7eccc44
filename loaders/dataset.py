"""A split of a packed dataset as a random-access sequence of samples.

Rules:
    * Nothing is guessed or skipped: every file that the manifest names is there with its size before the first sample
      is given, and a damaged index is an error when it is first used.
    * The same code reads tar and TFRecord shards, for their indexes say the same of both.
    * ``os.environ`` is read once, in :func:`open_dataset`.
    * Cleaning up is ``with`` or ``close()``; a process that ends releases everything anyway.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, SupportsIndex, overload

from loaders.check import CheckLevel, check_files
from loaders.files import ShardFile
from loaders.foreign.find import Source, is_foreign
from loaders.foreign.open import open_foreign
from loaders.partial import PartialDataset
from loaders.parts import OpenCounts, Part, SampleReader, cut_parts
from loaders.place import CACHE_DIR_VARIABLE, DatasetPlace, find_dataset
from loaders.reader import OpenShard
from loaders.sample import Sample
from loaders.split import SplitReader, list_shard_files
from shards.errors import LoadError, ManifestFormatError, NotStagedError, printable
from shards.files import read_regular_file
from shards.manifest import MAX_MANIFEST_BYTES, Manifest, SplitEntry

Verify = Literal["none", "crc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """What the manifest says of an opened split."""

    directory: str
    """Absolute path of the dataset directory."""
    dataset_id: str
    shard_format: str
    split: str
    extensions: tuple[str, ...]
    """All extensions that occur in the split, sorted."""
    classes: tuple[str, ...]
    """Class names; a ``cls`` member holds a place in this tuple as ASCII decimal. Empty for a dataset without."""
    partial: PartialDataset | None = None
    """Set when the dataset was not complete when it was opened: how shards are waited for."""


class Dataset:
    """Samples of a split by position: ``len(dataset)``, ``dataset[i]``, slices, iteration in shard order.

    A slice is a dataset of its own over the same files: closing one closes all. Datasets can be given to worker
    processes by fork or by pickle; shards are opened there on first use.
    """

    def __init__(self, reader: SampleReader, numbers: range, info: DatasetInfo) -> None:
        """Show some samples of a split; users call :func:`open_dataset`.

        Args:
            reader: the whole split, or what stands for one; shared with other datasets over it.
            numbers: which samples, in which order.
            info: what the manifest says.
        """
        self._reader = reader
        self._numbers = numbers
        self._info = info

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, position: SupportsIndex) -> Sample: ...
    @overload
    def __getitem__(self, position: slice) -> "Dataset": ...
    def __getitem__(self, position: SupportsIndex | slice) -> "Sample | Dataset":
        number = self._numbers[position]  # does the work of negative positions, slices and IndexError
        if isinstance(number, range):
            return Dataset(self._reader, number, self._info)
        return self._reader.sample(number)

    def __iter__(self) -> Iterator[Sample]:
        if self._numbers.step == 1:
            return self._reader.samples(self._numbers)
        return map(self._reader.sample, self._numbers)

    def key(self, position: SupportsIndex) -> str:
        """Give the key of a sample."""
        return self._reader.sample(self._numbers[position]).key

    def find(self, key: str) -> int | None:
        """Give the position of the sample with this key, None when there is none.

        The first search reads all keys, about 0.5 s for a million; later ones are quick.
        """
        number = self._reader.find(key)
        return self._numbers.index(number) if number is not None and number in self._numbers else None

    def prefetch(self, positions: Iterable[SupportsIndex]) -> None:
        """Tell which samples will be read next, so that the disk can work on all of them at once.

        Worth it before a shuffled batch: one sample after the other, a disk that is not in the page cache does one
        small read at a time (measured: 7 300 samples/s of 24 KiB, and 32 000 with this). Costs about two microseconds a
        sample when they are in memory already.
        """
        self._reader.prefetch(self._numbers[position] for position in positions)

    def locate(self, position: SupportsIndex) -> tuple[OpenShard, int]:
        """Give the shard in which a sample lies and its row there, for tools that show where bytes are."""
        return self._reader.locate(self._numbers[position])

    @property
    def info(self) -> DatasetInfo:
        """What the manifest says of this split."""
        return self._info

    @property
    def shards(self) -> tuple[ShardFile, ...]:
        """The shards of the whole split, in order, also when this is a slice."""
        return self._reader.shards

    @property
    def numbers(self) -> range:
        """Which samples of the split these are, in their order."""
        return self._numbers

    @property
    def opens(self) -> OpenCounts:
        """What opening shards has cost in this process so far, for all datasets over the same split."""
        return self._reader.opens

    @property
    def is_whole_split(self) -> bool:
        """Whether this is all of the split in its own order, and not a slice."""
        return self._reader.is_split and self._numbers == range(len(self._reader))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The samples in their order, part by part: those of one shard, or what is known of a view."""
        return cut_parts(self._reader.parts, self._numbers)

    @property
    def extensions(self) -> tuple[str, ...]:
        """All extensions that occur in the split, sorted; a single sample may have fewer."""
        return self._info.extensions

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, in the order of their numbers."""
        return self._info.classes

    @property
    def dataset_id(self) -> str:
        """Digest of the dataset's content, ``blake3:hex``."""
        return self._info.dataset_id

    def close(self) -> None:
        """Release the lease and close the shards, also for all slices. Samples in hand stay readable."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        info = self._info
        return f"Dataset({info.directory!r}, split={info.split!r}, format={info.shard_format!r}, samples={len(self)})"


def open_dataset(
    source: Source,
    *,
    split: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    index_dir: str | os.PathLike[str] | None = None,
    check: CheckLevel = "size",
    verify: Verify = "none",
    wait_seconds: float | None = None,
) -> Dataset:
    """Open a split of a packed or staged dataset, or shards that somebody else made.

    Foreign shards (WebDataset tars, TFRecords, compressed ones too) are indexed when they are first opened, by several
    processes; see :mod:`loaders.foreign.records` for where the indexes are kept and when they count.

    Args:
        source: dataset directory, its ``manifest.json``, or the id of a dataset in the cache (``blake3:…``, the
            hexadecimal digits alone, or the first 8 or more of them); or foreign shards: a list of paths, a glob, a
            brace range such as ``train-{0000..0127}.tar``, one file, or a directory of them.
        split: may be left out when there is only one.
        cache_dir: root of the node cache, for ids; the environment's ``STAGE_CACHE_DIR`` when None.
        index_dir: where indexes of foreign shards are kept; the environment's ``LOAD_INDEX_DIR``, or
            ``~/.cache/shardferry/indexes``, when None.
        check: how deep to check the files now, see :mod:`loaders.check`.
        verify: ``"crc"`` checks the CRC-32C of every member that is read. Off by default: staging has verified every
            byte with BLAKE3 and made the files read-only, and the check would cost about half of the reading speed.
        wait_seconds: opens also a dataset that is still being staged, or of which this node holds a part, and waits so
            long for a shard that is not there when it is first read. None: everything must be there.

    Returns:
        The dataset. While it is open it holds the lease of a staged dataset, so that no cleaner removes the files.

    Raises:
        NotStagedError: the dataset, or a file of it, is not there.
        LoadError: the source names no dataset, several of them, or a split is to be chosen.
        DamagedShardsError: foreign shards are damaged; lists all.
        FormatError: the manifest or an index is damaged or from a newer release.
        IntegrityError: a file is not the promised one.
    """
    if verify not in ("none", "crc"):
        raise ValueError(f"verify must be none or crc, not {verify!r}")
    if is_foreign(source):
        return _open_foreign(source, split, index_dir, check, verify)
    if not isinstance(source, str | os.PathLike):
        raise TypeError("a dataset is named by one path or id")
    if wait_seconds is not None and wait_seconds < 0:
        raise ValueError(f"wait_seconds must not be negative: {wait_seconds}")
    place = find_dataset(
        source,
        cache_dir if cache_dir is not None else os.environ.get(CACHE_DIR_VARIABLE),
        allow_partial=wait_seconds is not None,
    )
    manifest = read_manifest(place)
    partial = None
    if place.is_partial and wait_seconds is not None:
        partial = PartialDataset(
            directory=place.directory,
            dataset_id=manifest.dataset_id,
            cache_root=place.cache_root,
            wait_seconds=wait_seconds,
        )
    entry = choose_split(manifest, split, place)
    reader = SplitReader(
        list_shard_files(place.directory, entry.shards),
        lease_dir=place.directory if place.is_staged else None,
        verify_crc=verify == "crc",
        partial=partial,
    )
    reader.hold()
    try:
        check_files(reader.shards, check, allow_missing=partial is not None)
    except BaseException:
        reader.close()
        raise
    info = DatasetInfo(
        directory=place.directory,
        dataset_id=manifest.dataset_id,
        shard_format=manifest.shard_format,
        split=entry.name,
        extensions=tuple(sorted(entry.extensions)),
        classes=tuple(manifest.classes),
        partial=partial,
    )
    return Dataset(reader, range(len(reader)), info)


def _open_foreign(
    source: Source, split: str | None, index_dir: str | os.PathLike[str] | None, check: CheckLevel, verify: Verify
) -> Dataset:
    found = open_foreign(
        source,
        split=split,
        index_dir=None if index_dir is None else os.fspath(index_dir),
        is_hashed=verify == "crc" or check == "full",
    )
    check_files(found.shards, check)
    reader = SplitReader(found.shards, lease_dir=None, verify_crc=verify == "crc")
    info = DatasetInfo(
        directory=found.directory,
        dataset_id=found.content_id,
        shard_format=found.shard_format,
        split=found.split,
        extensions=found.extensions,
        classes=(),
    )
    return Dataset(reader, range(len(reader)), info)


def opened_dataset(
    dataset: Dataset | Source,
    *,
    split: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Give a dataset that is open already, or open one.

    Raises:
        ValueError: a split or cache directory was given with an open dataset.
    """
    if not isinstance(dataset, Dataset):
        return open_dataset(dataset, split=split, cache_dir=cache_dir)
    if split is not None or cache_dir is not None:
        raise ValueError("an open dataset has its split and directory already; pass only one of both")
    return dataset


def read_manifest(place: DatasetPlace) -> Manifest:
    """Read and validate a dataset's manifest.

    Raises:
        NotStagedError: it has gone.
        ManifestFormatError: it is damaged, or belongs to another dataset than the directory's name says.
    """
    path = place.manifest_path
    try:
        content = read_regular_file(path, max_bytes=MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        raise NotStagedError(f"{printable(path)} has gone; run stage run for this dataset again") from None
    manifest = Manifest.from_json(content, name=path)
    if place.dataset_id is not None and manifest.dataset_id != place.dataset_id:
        raise ManifestFormatError(
            path, None, f"it describes dataset {manifest.dataset_id}, not {place.dataset_id}; stage the dataset again"
        )
    return manifest


def choose_split(manifest: Manifest, split: str | None, place: DatasetPlace) -> SplitEntry:
    """Give the split of that name, or the only one when the name is None.

    Raises:
        LoadError: there is no such split, or there are several to choose from; lists them.
    """
    names = [entry.name for entry in manifest.splits]
    if split is None and len(names) == 1:
        return manifest.splits[0]
    if split in names:
        return manifest.split(split)
    listed = ", ".join(printable(name) for name in names) or "none"
    wanted = "choose a split" if split is None else f"there is no split {printable(split)}"
    raise LoadError(f"{printable(place.directory)}: {wanted}; the dataset has: {listed}")
