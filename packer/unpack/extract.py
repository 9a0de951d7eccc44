"""``pack extract``: members become files again, each checked against its sum.

Names are looked at first, all of them: what cannot be written, or would be one file, is listed before anything is made.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from packer.samples_of import ListedSample, choose_shards, walk_samples, walk_shard
from packer.stores.base import DatasetStore
from packer.unpack.names import Collisions, Selection, file_parts, unescape_dots
from packer.unpack.target import Existing, TargetDirectory
from shardferry.console.units import format_bytes, format_count
from shards.digests import crc32c
from shards.errors import DestinationError, DuplicateKeyError, IntegrityError, NotStagedError, list_offenders, printable
from shards.index import IndexedMember
from shards.manifest import Manifest
from shards.ranges import RangeReader
from shards.strict_json import JsonValue

PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractOptions:
    """What is extracted, and how."""

    selection: Selection = field(default_factory=Selection)
    split: str | None = None
    is_escaped: bool = False
    """Whether keys have their dots written as ``%2E``, to be undone."""
    allows_case_collisions: bool = False
    existing: Existing = Existing.ERROR


@dataclass(slots=True, kw_only=True)
class ExtractReport:
    """What was written."""

    target: str
    num_files: int = 0
    size_bytes: int = 0
    num_skipped: int = 0
    """Files that were there already."""

    def as_json(self) -> dict[str, JsonValue]:
        """For ``--json``."""
        return {
            "target": printable(self.target),
            "num_files": self.num_files,
            "size_bytes": self.size_bytes,
            "num_skipped": self.num_skipped,
        }

    def as_text(self) -> str:
        """For people."""
        skipped = f"; {format_count(self.num_skipped)} were there already" if self.num_skipped else ""
        return (
            f"extracted {format_count(self.num_files)} file(s), {format_bytes(self.size_bytes)}, "
            f"into {printable(self.target)}{skipped}"
        )


def is_escaped(manifest: Manifest) -> bool:
    """Whether a dataset was packed with ``--dotted-names escape``."""
    options = manifest.packer.get("options")
    return isinstance(options, dict) and options.get("dotted_names") == "escape"


def extract(
    store: DatasetStore,
    manifest: Manifest,
    target_path: str,
    options: ExtractOptions,
    report: Callable[[int], None],
) -> ExtractReport:
    """Write the wanted members as files.

    Args:
        store: of the dataset.
        manifest: of the dataset.
        target_path: directory to write into; made if missing.
        options: what and how.
        report: called with the number of bytes written since the last call; may raise to stop.

    Raises:
        NotStagedError: a wanted key is not there, or nothing matches.
        IntegrityError: a name leads out of the target, or a member is damaged.
        DuplicateKeyError: members would be one file.
        DestinationError: files are there already, or in the way.
    """
    _check_names(store, manifest, options)
    done = ExtractReport(target=target_path)
    with TargetDirectory(target_path, options.existing) as target:
        if options.existing is Existing.ERROR and not target.was_empty:
            _refuse_existing(store, manifest, options, target)
        for split, shard in choose_shards(manifest, options.split):
            samples = walk_shard(store, split.name, shard.name, shard.index_name)
            with store.open_reader(shard.name, is_sequential=options.selection.is_all) as reader:
                for sample, member in _wanted(samples, options.selection):
                    pieces = read_checked(reader, sample, member)
                    if target.write(_parts(sample.key, member.extension, options), pieces):
                        done.num_files += 1
                        done.size_bytes += member.size
                    else:
                        done.num_skipped += 1
                    report(member.size)
    return done


def read_checked(reader: RangeReader, sample: ListedSample, member: IndexedMember) -> Iterator[bytes]:
    """Read a member in pieces.

    Raises:
        IntegrityError: after the last piece, when the sum is wrong or bytes are missing.
    """
    done = crc = 0
    while done < member.size:
        piece = reader.read_at(min(PIECE_BYTES, member.size - done), member.offset + done)
        if not piece:
            break
        crc = crc32c(piece, crc)
        done += len(piece)
        yield piece
    if done != member.size or crc != member.crc32c:
        raise IntegrityError(
            f"member {printable(member.extension)} of {printable(sample.key)} in {sample.shard} is damaged: "
            f"expected {member.size} bytes with crc32c {member.crc32c:08x}, actual {done} with {crc:08x}; "
            "run pack verify"
        )


def _wanted(samples: Iterator[ListedSample], selection: Selection) -> Iterator[tuple[ListedSample, IndexedMember]]:
    for sample in samples:
        for member in sample.members:
            if selection.wants(sample.key, member.extension):
                yield sample, member


def _parts(key: str, extension: str, options: ExtractOptions) -> tuple[str, ...]:
    return file_parts(unescape_dots(key) if options.is_escaped else key, extension)


def _names(store: DatasetStore, manifest: Manifest, options: ExtractOptions) -> Iterator[str]:
    for sample, member in _wanted(walk_samples(store, manifest, options.split), options.selection):
        yield "/".join(_parts(sample.key, member.extension, options))


def _check_names(store: DatasetStore, manifest: Manifest, options: ExtractOptions) -> None:
    """Look at every name before anything is written."""
    collisions = Collisions(folds=not options.allows_case_collisions)
    unsafe: list[str] = []
    missing = set(options.selection.keys)
    num_files = 0
    for sample, member in _wanted(walk_samples(store, manifest, options.split), options.selection):
        num_files += 1
        missing -= {sample.key, f"{sample.key}.{member.extension}"}
        try:
            parts = _parts(sample.key, member.extension, options)
        except ValueError as error:
            unsafe.append(f"{printable(sample.key)}.{printable(member.extension)} in {sample.shard}: {error}")
            continue
        collisions.add("/".join(parts))
    if missing:
        names = [printable(name) for name in sorted(missing)]
        raise NotStagedError(f"{len(names)} key(s) are not in the dataset:\n{list_offenders(names)}\nsee pack ls")
    if not num_files and not options.selection.is_all:
        raise NotStagedError("no member matches; see pack ls for the names")
    if unsafe:
        raise IntegrityError(
            f"{len(unsafe)} member(s) have names that cannot be files below the target, nothing was written:\n"
            f"{list_offenders(unsafe)}\nleave them out with --glob or by naming keys, or read them with pack cat"
        )
    pairs = [
        f"{printable(first)} and {printable(other)}"
        for first, other in collisions.find(_names(store, manifest, options))
    ]
    if pairs:
        raise DuplicateKeyError(
            f"{len(pairs)} pair(s) of members would be one file, here or on another filesystem:\n"
            f"{list_offenders(pairs)}\n"
            "extract one split at a time with --split; for names that differ only in case, --case-collisions allow"
        )


def _refuse_existing(store: DatasetStore, manifest: Manifest, options: ExtractOptions, target: TargetDirectory) -> None:
    there = [name for name in _names(store, manifest, options) if target.has(name.split("/"))]
    if there:
        raise DestinationError(
            f"{len(there)} file(s) exist already in {printable(target.path)}, nothing was written:\n"
            f"{list_offenders([printable(name) for name in there])}\n"
            "choose an empty directory, or give --existing skip or --existing overwrite"
        )
