"""Archives as a source: the members of tar and zip files become members of samples, without unpacking to disk.

Rules:
    * What an archive is, its content says, not its name. Tar is read as strictly as a shard (``docs/format.md``).
    * A plain tar and a zip are read at the offsets of their members. A compressed tar is looked through once here and
      streamed once in each packer process; see :mod:`packer.sources.chunks`.
    * Names are taken as they are, but for a leading ``./`` or ``/``. Names with ``..`` in them are refused, links are
      left out and counted. The same name twice is an error, within an archive and among several.
"""

import itertools
import os
import stat
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from packer.sources.archive_locator import StoredFile, ZippedFile
from packer.sources.archive_read import Archive, ArchiveFiles
from packer.sources.chunks import CHUNK_BYTES
from packer.sources.files import FoundFiles, SkipReason, Skips, SourceFiles, SourcePart, display_path
from packer.sources.names import Globs, NameFilter, is_plain_path, leftover_path_reason, raise_odd_paths
from packer.sources.persist import explain_errno, persist
from packer.sources.zip import is_zip, list_zip
from shards.compression import DecodedStream
from shards.errors import DuplicateKeyError, SourceError, list_offenders, printable
from shards.tar.member import DEFAULT_LIMITS, MemberKind, TarMember
from shards.tar.reader import FileReader
from shards.tar.source import open_source
from shards.tar.walk import TarWalk

_CHECK_EVERY = 4096
"""Members."""


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """Tar and zip files; see :class:`packer.sources.source.Source`."""

    paths: tuple[str, ...]
    globs: Globs
    kind = "archive"

    def scan(self, check: Callable[[], None]) -> FoundFiles:
        """Look through the headers of all archives; all of them again when one fails for a moment, which is rare."""
        path = ""

        def look_through() -> _Scan:
            nonlocal path
            scan = _Scan(self.paths, NameFilter(self.globs), check)
            for number, path in enumerate(self.paths):
                scan.look_through(number, path)
            return scan

        try:
            scan = persist(look_through)
        except OSError as error:
            raise SourceError(f"cannot read the archive {printable(path)}: {explain_errno(error)}") from error
        return scan.finish()


class _Scan:
    """Gathers the members of archives."""

    def __init__(self, paths: Sequence[str], names: NameFilter, check: Callable[[], None]) -> None:
        self._paths = paths
        self._filter = names
        self._check = check
        self._skips = Skips()
        self._num_directories = 0
        self._odd: list[str] = []
        self._archives: list[Archive] = []
        self._files = SourceFiles()
        self._locators: list[bytes] = []
        self._numbers = array("L")
        self._batches = array("L")
        self._parts: list[SourcePart] = []

    def look_through(self, number: int, path: str) -> None:
        """Take all members of one archive."""
        with open(path, "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SourceError(f"the archive {printable(path)} is no regular file; copy it to a disk first")
            is_compressed = False
            first_part = len(self._parts)
            if is_zip(stream):
                members: Iterator[tuple[bytes, int, bytes, int]] = self._zip_members(path, number)
            else:
                source = open_source(stream, path)
                is_compressed = isinstance(source, DecodedStream)
                walk = TarWalk(source, path, DEFAULT_LIMITS, require_end_marker=True)
                members = self._tar_members(walk, number)
            if not is_compressed:
                self._parts.append(SourcePart(0, number))
            for count, (name, size, locator, offset) in enumerate(members):
                if count % _CHECK_EVERY == 0:
                    self._check()
                part = first_part + offset // CHUNK_BYTES if is_compressed else first_part
                while len(self._parts) <= part:
                    self._parts.append(SourcePart(CHUNK_BYTES, number))
                self._take(name, size, status.st_mtime_ns, locator, (number, part))
        self._archives.append(Archive(os.path.abspath(path), status.st_size, status.st_mtime_ns, is_compressed))

    def finish(self) -> FoundFiles:
        """Sort what was found.

        Raises:
            SourceError: names that lead elsewhere, or globs without a match.
            DuplicateKeyError: names that occur twice.
        """
        raise_odd_paths(self._odd, "the archive" if len(self._paths) == 1 else "the archives")
        self._filter.raise_unused()
        files = self._files
        self._raise_same_names()
        files.locators = self._locators
        if any(archive.is_compressed for archive in self._archives):
            files.batches, files.parts = self._batches, self._parts
        files.sort()
        return FoundFiles(files, self._skips, self._num_directories, ArchiveFiles(tuple(self._archives)))

    def _take(self, name: bytes, size: int, stamp: int, locator: bytes, place: tuple[int, int]) -> None:
        name = _without_lead(name)
        if (reason := leftover_path_reason(name)) is not None and is_plain_path(name):
            self._skips.add(reason, name)
        elif not self._filter.admits_below(name):
            self._skips.add(SkipReason.EXCLUDED, name)
        elif not is_plain_path(name):
            self._odd.append(display_path(name))
        else:
            self._files.append(name, size, stamp)
            self._locators.append(locator)
            self._numbers.append(place[0])
            self._batches.append(place[1])

    def _tar_members(self, walk: TarWalk, number: int) -> Iterator[tuple[bytes, int, bytes, int]]:
        """(name, size, locator, offset of the data) of each file of a tar."""
        reader = FileReader(walk, self._leave_tar_member)
        for member, file in reader.files():
            holes_bytes = file.size - sum(size for _, size, _ in file.extents) if file.extents else 0
            if holes_bytes > walk.limits.max_hole_bytes:
                walk.fail(file.header_offset, f"member {printable(file.name)} has {holes_bytes} bytes of holes")
            stored = StoredFile(number, file.offset, file.extents)
            yield member.name.encode("utf-8", "surrogateescape"), file.size, stored.to_bytes(), file.offset

    def _leave_tar_member(self, member: TarMember) -> None:
        if member.kind is MemberKind.DIRECTORY:
            self._num_directories += 1
        else:
            reason = SkipReason.SYMLINK if member.kind is MemberKind.SYMLINK else SkipReason.SPECIAL_FILE
            self._skips.add(reason, member.name.encode("utf-8", "surrogateescape"))

    def _zip_members(self, path: str, number: int) -> Iterator[tuple[bytes, int, bytes, int]]:
        for entry in list_zip(path):
            if entry.is_directory:
                self._num_directories += 1
            elif entry.is_link:
                self._skips.add(SkipReason.SYMLINK, entry.name)
            else:
                zipped = ZippedFile(number, entry.offset, entry.stored_size, entry.method, entry.crc32)
                yield entry.name, entry.size, zipped.to_bytes(), entry.offset

    def _raise_same_names(self) -> None:
        order = sorted(range(len(self._files)), key=self._files.paths.__getitem__)
        same = []
        for left, right in itertools.pairwise(order):
            if self._files.paths[left] == self._files.paths[right]:
                name = printable(display_path(self._files.paths[left]))
                first, second = (printable(self._paths[self._numbers[number]]) for number in (left, right))
                same.append(f"{name}: twice in {first}" if first == second else f"{name}: in {first} and in {second}")
        if same:
            raise DuplicateKeyError(
                f"{len(same)} name(s) occur more than once:\n{list_offenders(same)}\n"
                "pack each archive for itself, or make one of them again with other names"
            )


def _without_lead(name: bytes) -> bytes:
    while name.startswith((b"/", b"./")):
        name = name[1:] if name.startswith(b"/") else name[2:]
    return name
