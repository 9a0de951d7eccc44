"""The cache on this node's disk: its layout, and one staged dataset in it; everything here blocks.

Rules:
    * Only names that the layout or the manifest gives are created, replaced or removed. What else lies in the cache
      directory is not ours and stays untouched.
    * Correctness never rests on a lock: a final name is given by rename after digests were checked, and blocks are
      written only when they are right. Locks let stagers share the work.
    * Modes do not depend on the umask: directories 0755, files 0444, partials 0600; where a group shares the cache,
      directories 2775 and partials 0660.
    * A partial has the size that the file will have, from before its first byte: what it lacks is promised to it.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from shards.cache import CacheLayout
from shards.errors import FormatError
from shards.files import fsync_directory, is_partial_name, read_regular_file, write_file
from shards.leases import try_lock
from shards.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES
from stager.claims import Claim, ClaimState, IndexClaim
from stager.holders import read_leases
from stager.local import (
    is_at,
    make_cache_directory,
    may_commit,
    observe_file,
    open_partial,
    read_status,
    staged_ids,
    take_over,
)
from stager.plan import FileRecord, ObservedFile, ShardStep, WantedFile
from stager.quarantine import set_aside
from stager.records import forget_inode, update_status
from stager.status import DatasetStatus

logger = logging.getLogger(__name__)


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
            make_cache_directory(directory)

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

        A file under the final name that is still the one which was found bad is set aside; any other one was committed
        meanwhile.
        """
        file = step.data.file
        if self._is_committed(step):
            return ClaimState.DONE
        fd = self._lock_partial(file.name)
        if fd is None:
            return ClaimState.BUSY
        partial_path = self.partial_path(file.name)
        claim = Claim(
            fd,
            name=file.name,
            size_bytes=file.size_bytes,
            partial_path=partial_path,
            final_path=self.final_path(file.name),
            on_commit=lambda: self.record(file),
        )
        try:
            if self._is_committed(step):
                claim.remove()
                os.close(fd)
                return ClaimState.DONE
            if self.observe(file.name) is not None:
                self.discard(file.name, "it differs from the manifest")
            if os.fstat(fd).st_size != file.size_bytes:
                # not posix_fallocate: it halves the speed on ext4, and holes tell which blocks were never written
                os.ftruncate(fd, file.size_bytes)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = partial_path
            raise
        return claim

    def claim_index(self, file: WantedFile) -> IndexClaim | None:
        """Take an index for this process; None when another process works on it."""
        fd = self._lock_partial(file.name)
        if fd is None:
            return None
        try:
            return IndexClaim(fd, self.partial_path(file.name), self.final_path(file.name), file.size_bytes)
        except BaseException:
            os.close(fd)
            raise

    def reserve(self, file: WantedFile) -> None:
        """Give a file its partial, whose size says what it will take; see :mod:`stager.reserve`."""
        path = self.partial_path(file.name)
        self._clear_partial(path)
        fd = open_partial(path)
        try:
            if os.fstat(fd).st_size < file.size_bytes:
                os.ftruncate(fd, file.size_bytes)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(fd)

    def discard(self, name: str, reason: str) -> None:
        """Take a bad file away from its final name, at once."""
        found = self.observe(name)
        set_aside(self._layout, self.final_path(name), reason=reason)
        if found is not None:
            for dataset_id in staged_ids(self._layout):
                forget_inode(self._layout, dataset_id, found.inode)

    def drop(self, names: Iterable[str]) -> None:
        """Remove shards and indexes that their reader has done with, to make room for others of this dataset.

        The dataset must not pass for complete: see :meth:`withdraw_manifest`.
        """
        gone = set()
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(self.final_path(name))
            self._new_records.pop(name, None)
            gone.add(name)
        update_status(self._layout, self.dataset_id, lambda status: None if status is None else status.without(gone))

    def clear_way(self, name: str) -> None:
        """Take away what a rename could not replace: a directory under a file's name."""
        if os.path.isdir(self.final_path(name)) and not os.path.islink(self.final_path(name)):
            self.discard(name, "it is a directory")

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

        def change(status: DatasetStatus | None) -> DatasetStatus:
            known = {} if status is None else status.records
            return self._fresh_status.with_records({**known, **records})

        return update_status(self._layout, self.dataset_id, change)

    def write_wanted(self, manifest: bytes) -> None:
        """Write down the manifest before the dataset is complete: which names in the directory are the stager's."""
        path = self._layout.wanted_path(self.dataset_id)
        try:
            if read_regular_file(path, max_bytes=MAX_MANIFEST_BYTES) == manifest:
                return
        except (FileNotFoundError, FormatError):
            self._clear_partial(path)
        write_file(path, manifest)

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

    def _lock_partial(self, name: str) -> int | None:
        """Open and lock a partial; None when another process has the lock."""
        path = self.partial_path(name)
        while True:
            self._clear_partial(path)
            fd = open_partial(path)
            try:
                if not try_lock(fd):
                    os.close(fd)
                    return None
                # between open and lock, another process may have committed or removed what was opened
                if is_at(fd, path):
                    if may_commit(fd):
                        return fd
                    taken = take_over(fd, path)
                    os.close(fd)
                    return taken
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def _clear_partial(self, path: str) -> None:
        """Take away what is no file from where one will lie: nobody's work, and in everybody's way."""
        found = observe_file(path)
        if found is not None and found.size_bytes < 0:
            set_aside(self._layout, path, reason="it is no regular file")

    def _is_committed(self, step: ShardStep) -> bool:
        """Whether another process has committed the shard since it was planned here."""
        found = self.observe(step.data.file.name)
        return found is not None and found != step.data.bad
