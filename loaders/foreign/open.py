"""Opens foreign shards as a split: the files that a reader needs, and what a manifest would say of them."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loaders.files import ShardFile
from loaders.foreign.find import ForeignFile, Source, find_shards
from loaders.foreign.records import Record, place_of
from loaders.foreign.workers import ensure_records
from shards.digests import hash_bytes
from shards.errors import LoadError, printable
from shards.files import make_directory

logger = logging.getLogger(__name__)

INDEX_DIR_VARIABLE = "LOAD_INDEX_DIR"
"""Environment variable that names the directory of indexes of foreign shards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSplit:
    """What a manifest would say."""

    shards: tuple[ShardFile, ...]
    directory: str
    """That all shards have in common."""
    content_id: str
    """Digest of what is known of the content: see :func:`open_foreign`."""
    shard_format: str
    split: str
    """Empty for shards that were named one by one."""
    extensions: tuple[str, ...]


def open_foreign(source: Source, *, split: str | None, index_dir: str | None, is_hashed: bool) -> ForeignSplit:
    """Find shards, index those that are not indexed yet, and describe them.

    The content id is a digest over the indexes (keys, extensions, places and sizes of all members) and, when the shards
    were hashed, over their digests; where the shards lie does not count.

    Args:
        source: see :func:`loaders.foreign.find.find_shards`.
        split: of a directory.
        index_dir: where indexes are kept; ``$XDG_CACHE_HOME/shardferry/indexes`` when None.
        is_hashed: whether digests and CRCs are needed, for which all data are read once.

    Raises:
        LoadError: shards are missing, of two formats, or empty altogether; or indexes cannot be kept.
        DamagedShardsError: shards are damaged.
    """
    name, files = find_shards(source, split)
    directory = index_dir or default_index_dir(os.environ)
    try:
        make_directory(directory)
        records = ensure_records(os.path.realpath(directory), files, is_hashed=is_hashed)
    except OSError as error:
        raise LoadError(
            f"foreign shards cannot be indexed: {printable(str(error.filename or directory))}: {error.strerror}; "
            f"give a directory for their indexes with index_dir or {INDEX_DIR_VARIABLE}"
        ) from error
    _check_formats(files, records)
    _tell_keyless(files, records)
    shards = tuple(_shard_file(directory, file, record) for file, record in zip(files, records, strict=True))
    known = "\n".join(f"{record.index_digest} {record.digest}" for record in records)
    return ForeignSplit(
        shards=shards,
        directory=os.path.commonpath([os.path.dirname(file.path) for file in files]),
        content_id=hash_bytes(known.encode()),
        shard_format=records[0].format_name,
        split=name,
        extensions=tuple(sorted({extension for record in records for extension in record.extensions})),
    )


def default_index_dir(environ: Mapping[str, str]) -> str:
    """Give the directory in which indexes are kept when nobody says where."""
    named = environ.get(INDEX_DIR_VARIABLE)
    if named:
        return named
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "shardferry", "indexes")


def _check_formats(files: Sequence[ForeignFile], records: Sequence[Record]) -> None:
    formats = {record.format_name: file.path for file, record in zip(files, records, strict=True)}
    if len(formats) > 1:
        listed = ", ".join(f"{printable(path)} is {name}" for name, path in sorted(formats.items()))
        raise LoadError(f"shards of two formats do not make one dataset: {listed}; open them as two datasets")


def _tell_keyless(files: Sequence[ForeignFile], records: Sequence[Record]) -> None:
    num_keyless = sum(record.num_keyless for record in records)
    if num_keyless:
        names = [printable(file.path) for file, record in zip(files, records, strict=True) if record.num_keyless]
        logger.warning(
            "members without a key belong to no sample",
            extra={"num_keyless": num_keyless, "num_shards": len(names), "examples": names[:3]},
        )


def _shard_file(directory: str, file: ForeignFile, record: Record) -> ShardFile:
    place = place_of(os.path.realpath(directory), file.path)
    return ShardFile(
        name=os.path.basename(file.path),
        path=place.shard_path if record.is_compressed else file.path,
        size_bytes=record.size_bytes,
        digest=record.digest,
        num_samples=record.num_samples,
        index_path=place.index_path,
        index_size_bytes=record.index_size_bytes,
        index_digest=record.index_digest,
    )
