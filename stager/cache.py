"""The cache on this node's disk: its layout, and one staged dataset in it; everything here blocks.

Rules:
    * Only names that the layout or the manifest gives are created, replaced or removed. What else lies in the cache
      directory is not ours and stays untouched.
    * Correctness never rests on a lock: a final name is given by rename after digests were checked, and blocks are
      written only when they are right. Locks let stagers share the work.
    * Modes do not depend on the umask: directories 0755, files 0444, partials 0600.
"""

import fcntl
import logging
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Self

from shards.cache import CacheLayout
from shards.errors import FormatError
from shards.files import (
    commit_open_file,
    fsync_directory,
    is_partial_name,
    make_directory,
    read_regular_file,
    write_file,
)
from shards.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES
from stager.holders import read_leases
from stager.local import is_at, observe_file, open_partial, read_status
from stager.plan import FileRecord, ObservedFile, ShardStep, WantedFile
from stager.status import DatasetStatus

logger = logging.getLogger(__name__)


class ClaimState(Enum):
    """Why a shard could not be claimed."""

    BUSY = "busy"
    """Another process works on it."""
    DONE = "done"
    """Another process has committed it."""


class Claim:
    """A shard's partial, open and locked by this process; a context manager that lets go of it.

    Args:
        fd: the partial, open for reading and writing, with the lock on it.
        file: the shard.
        partial_path: where it lies.
        final_path: where it will lie.
        dataset: which is told about the commit.
    """

    def __init__(self, fd: int, file: WantedFile, partial_path: str, dataset: "DatasetDirectory") -> None:
        self.fd = fd
        self.name = file.name
        self.size_bytes = file.size_bytes
        self.final_path = dataset.final_path(file.name)
        self._file = file
        self._partial_path = partial_path
        self._dataset = dataset

    def commit(self) -> None:
        """Make the shard durable under its final name. Every block of it must be right."""
        try:
            commit_open_file(self.fd, self._partial_path, self.final_path, self.size_bytes)
        except FileNotFoundError:
            # where locks do not exclude, another stager may have renamed this very file already
            committed = observe_file(self.final_path)
            if committed is None or committed.inode != os.fstat(self.fd).st_ino:
                raise
        self._dataset.record(self._file)

    def remove(self) -> None:
        """Remove the partial, to give its space back."""
        with suppress(FileNotFoundError):  # renamed already, when only the last step of the commit failed
            os.unlink(self._partial_path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if os.fstat(self.fd).st_blocks == 0 and is_at(self.fd, self._partial_path):
                self.remove()  # nothing in it that a later run could use
        finally:
            os.close(self.fd)


class DatasetDirectory:
    """One staged dataset: names, claims, records and the manifest.

    Args:
        layout: of the cache.
        dataset_id: ``blake3:hex``.
        names: of all its shards and indexes.
        status: what the status file says before anything is committed.
    """

    def __init__(self, layout: CacheLayout, dataset_id: str, names: Sequence[str], status: DatasetStatus) -> None:
        self.path = layout.dataset_dir(dataset_id)
        self.dataset_id = dataset_id
        self._layout = layout
        self._directories = sorted({self.path, *(os.path.dirname(self.final_path(name)) for name in names)})
        self._fresh_status = status
        self._new_records: dict[str, FileRecord] = {}

    def final_path(self, name: str) -> str:
        """Where a shard or index lies when it is staged."""
        return os.path.join(self.path, name)

    def partial_path(self, name: str) -> str:
        """Where a shard lies while it is not."""
        return self._layout.partial_path(self.dataset_id, name)

    def observe(self, name: str) -> ObservedFile | None:
        """Observe a shard or index under its final name."""
        return observe_file(self.final_path(name))

    def prepare(self) -> None:
        """Make the directories that partials and final names need."""
        for directory in [*self._directories, self._layout.stage_dir(self.dataset_id)]:
            make_directory(directory)

    def tidy(self) -> None:
        """Remove what writers that were killed left under names of unfinished files.

        Call it only while this process has the dataset for itself: such a name does not tell whether its writer lives.
        Partials of shards are not meant: they are resumed.
        """
        for directory in [*self._directories, self._layout.stage_dir(self.dataset_id)]:
            with os.scandir(directory) as entries:
                leftovers = [
                    entry.path
                    for entry in entries
                    if is_partial_name(entry.name) and not entry.is_dir(follow_symlinks=False)
                ]
            for path in leftovers:
                os.unlink(path)

    def claim(self, step: ShardStep) -> Claim | ClaimState:
        """Take a shard for this process: lock its partial, which is made if there is none.

        A file under the final name that is still the one which was found bad is removed; any other one was committed
        meanwhile.
        """
        file = step.data.file
        partial_path = self.partial_path(file.name)
        while True:
            if self._is_committed(step):
                return ClaimState.DONE
            partial = observe_file(partial_path)
            if partial is not None and partial.size_bytes < 0:
                self._take_away(partial_path)  # a directory or a link: nobody's work, and in everybody's way
            fd = open_partial(partial_path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return ClaimState.BUSY
            except OSError:
                os.close(fd)
                raise
            # between open and lock, another process may have committed or removed what was opened
            if is_at(fd, partial_path):
                break
            os.close(fd)
        claim = Claim(fd, file, partial_path, self)
        try:
            if self._is_committed(step):
                claim.remove()
                os.close(fd)
                return ClaimState.DONE
            if self.observe(file.name) is not None:
                self.discard(file.name)
            if os.fstat(fd).st_size != file.size_bytes:
                # not posix_fallocate: it halves the speed on ext4, and holes tell which blocks were never written
                os.ftruncate(fd, file.size_bytes)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = partial_path
            raise
        return claim

    def discard(self, name: str) -> None:
        """Take a bad file away from its final name, at once and for good."""
        self._take_away(self.final_path(name))

    def clear_way(self, name: str) -> None:
        """Take away what a rename could not replace: a directory under a file's name."""
        if os.path.isdir(self.final_path(name)) and not os.path.islink(self.final_path(name)):
            self.discard(name)

    def record(self, file: WantedFile) -> None:
        """Remember that a file was just committed, as it is now; :meth:`save_records` writes it down."""
        observed = self.observe(file.name)
        if observed is not None:
            self._new_records[file.name] = FileRecord(file.digest, observed)

    def read_status(self) -> DatasetStatus | None:
        """Read the status file; None when there is none that can be understood."""
        return read_status(self._layout.status_path(self.dataset_id))

    def announce(self) -> None:
        """Write down what is going to be staged, for those who look at the cache meanwhile. Best effort."""
        self._merge_status({})

    def save_records(self) -> None:
        """Add the new records to the status file. Best effort: a record that is lost costs hashing a file again."""
        records = dict(self._new_records)
        if records and self._merge_status(records):
            for name, record in records.items():
                if self._new_records.get(name) == record:
                    del self._new_records[name]

    def _merge_status(self, records: Mapping[str, FileRecord]) -> bool:
        """Write the status file with what it has, and these records; tell whether that went well."""
        try:
            lock = os.open(self._layout.stage_dir(self.dataset_id), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)  # others add theirs as well; held for one small write
                status = self.read_status()
                known = {} if status is None else status.records
                merged = self._fresh_status.with_records({**known, **records})
                write_file(self._layout.status_path(self.dataset_id), merged.to_json())
            finally:
                os.close(lock)
        except OSError as error:
            logger.warning("status not written", extra={"reason": str(error)})
            return False
        return True

    def write_wanted(self, manifest: bytes) -> None:
        """Write down the manifest before the dataset is complete: what will be there, and by which names."""
        path = self._layout.wanted_path(self.dataset_id)
        with suppress(FileNotFoundError, FormatError):
            if read_regular_file(path, max_bytes=MAX_MANIFEST_BYTES) == manifest:
                return
        write_file(path, manifest)

    def drop(self, names: Iterable[str]) -> None:
        """Remove shards and indexes that their readers have done with; the dataset must not pass for complete."""
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(self.final_path(name))
            self._new_records.pop(name, None)

    def read_manifest(self) -> bytes | None:
        """Read the staged manifest; None when there is none, or something else under its name."""
        try:
            return read_regular_file(self.final_path(MANIFEST_NAME), max_bytes=MAX_MANIFEST_BYTES)
        except (FileNotFoundError, FormatError):
            return None

    def commit_manifest(self, data: bytes) -> None:
        """Say that the dataset is complete."""
        self.clear_way(MANIFEST_NAME)
        write_file(self.final_path(MANIFEST_NAME), data)

    def live_holders(self) -> list[str]:
        """Give who stages this dataset now, this process included."""
        return [lease.holder for lease in read_leases(self._layout, self.dataset_id) if lease.is_locked]

    def withdraw_manifest(self) -> None:
        """Say that the dataset is not complete, before anything is taken out of it."""
        self.clear_way(MANIFEST_NAME)
        try:
            os.unlink(self.final_path(MANIFEST_NAME))
        except FileNotFoundError:
            return
        fsync_directory(self.path)

    def _take_away(self, path: str) -> None:
        trash_path = self._layout.trash_path(secrets.token_hex(16))
        make_directory(os.path.dirname(trash_path))
        os.rename(path, trash_path)
        fsync_directory(os.path.dirname(path))
        logger.warning("bad file discarded", extra={"file": os.path.relpath(path, self.path)})
        if os.path.isdir(trash_path) and not os.path.islink(trash_path):
            shutil.rmtree(trash_path)
        else:
            os.unlink(trash_path)

    def _is_committed(self, step: ShardStep) -> bool:
        """Whether another process has committed the shard since it was planned here."""
        found = self.observe(step.data.file.name)
        return found is not None and found != step.data.bad
