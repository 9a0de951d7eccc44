"""A destination in an object store: the same promises as a directory, with what object stores have.

Rules:
    * Shards are multipart uploads, seen only when they are complete; index before shard, manifest last.
    * Uploads that a killed run left are aborted at the next start, where the driver can list them (S3). A lifecycle
      rule on the bucket is the net below, for runs that are never repeated.
    * There are no locks: two ``pack build`` on one URL abort each other's uploads, and at least one fails. Neither can
      publish wrong bytes, since a plan is checked before anything and shards are what their indexes say.
    * Only objects that the saved plan or a manifest names are ever removed.
"""

import io
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from packer.begun import (
    BASE_NAME,
    PLAN_NAME,
    SOURCES_NAME,
    check_same_plan,
    own_names,
    refuse_foreign,
    refuse_unplanned,
)
from packer.plan import PackPlan
from packer.receipts import receipt_name
from packer.saved import SavedPlan, list_source_differences, read_sources, write_sources
from packer.stores.objects import PARTIAL_PREFIX, ObjectStore
from packer.stores.uploads import abort_upload, list_uploads
from shards.errors import RemoteError
from shards.manifest import MANIFEST_NAME, Manifest
from shards.names import STATE_NAME

logger = logging.getLogger(__name__)

_PLAN = f"{STATE_NAME}/{PLAN_NAME}"
_SOURCES = f"{STATE_NAME}/{SOURCES_NAME}"
_BASE = f"{STATE_NAME}/{BASE_NAME}"
_OURS = re.compile(r"[^/]+-\d{6}\.[a-z]+(?:\.index\.arrow)?|manifest\.json|\.pack/.+")
"""Names of uploads that only a packer begins in a dataset."""


class ObjectDestination:
    """A destination below a URL; has the methods of :class:`packer.destination.Destination`."""

    def __init__(self, store: ObjectStore) -> None:
        self.path = store.location
        self._store = store

    def read_manifest(self) -> Manifest | None:
        """The manifest, or None when there is none."""
        data = self._read_or_none(MANIFEST_NAME)
        return None if data is None else Manifest.from_json(data, name=self._store.url_of(MANIFEST_NAME))

    def is_complete(self, manifest: Manifest) -> bool:
        """Whether all objects of a manifest are there with the right sizes."""
        return all(
            self._store.size_of(shard.name) == shard.size_bytes
            and self._store.size_of(shard.index_name) == shard.index_size_bytes
            for _, shard in manifest.shards()
        )

    def size_of(self, name: str) -> int | None:
        """Size of an object of the dataset, or None when it is not there."""
        return self._store.size_of(name)

    def check_plan(self, plan: PackPlan, saved: SavedPlan) -> bool:
        """Compare what lies here with a plan."""
        data = self._read_or_none(_PLAN)
        if data is None:
            if self.size_of(MANIFEST_NAME) is not None:
                raise refuse_unplanned(self.path)
            refuse_foreign(self.path, self._store.list_names())
            return False
        check_same_plan(data, saved, self.path, lambda: self._source_differences(plan))
        return True

    def save_plan(self, plan: PackPlan, saved: SavedPlan) -> None:
        """Save a plan; from then on the shards here belong to it."""
        with io.BytesIO() as buffer:
            write_sources(plan.content.files, buffer)
            self._store.put(_SOURCES, buffer.getvalue())
        self._store.put(_PLAN, saved.to_json())

    def clear(self) -> None:
        """Remove the dataset or unfinished work that lies here, the manifest first."""
        manifests = [self._read_or_none(MANIFEST_NAME), self._read_or_none(_BASE)]
        names = own_names(manifests, self._read_or_none(_PLAN))
        refuse_foreign(self.path, (name for name in self._store.list_names() if name not in names))
        if MANIFEST_NAME in names:
            self._store.remove(MANIFEST_NAME)
        self._remove(names)
        self._remove([receipt_name(name) for name in names])
        self._store.remove(_PLAN)
        self.remove_partials()

    def withdraw_manifest(self) -> None:
        """Remove the manifest: objects it names are missing or have another size."""
        self._store.remove(MANIFEST_NAME)

    def remove_partials(self) -> int:
        """Abort the uploads that killed runs left; returns how many.

        A user who may not list uploads can pack all the same.
        """
        staged = [name for name in self._store.list_all_names() if name.startswith(PARTIAL_PREFIX)]
        self._remove(staged)
        aborted = len(staged)
        try:
            for upload in list_uploads(self._store.filesystem, self._store.root, self.path):
                if _OURS.fullmatch(upload.name):
                    abort_upload(self._store.filesystem, upload, self.path)
                    aborted += 1
        except (RemoteError, FileNotFoundError) as error:
            logger.warning(
                "unfinished uploads of killed runs cannot be looked for; a lifecycle rule on the bucket removes them",
                extra={"destination": self.path, "reason": str(error)},
            )
        return aborted

    def check_space(self, needed_bytes: int) -> None:
        """Nothing: object stores do not say how much room there is."""

    def _read_or_none(self, name: str) -> bytes | None:
        try:
            return self._store.read_file(name)
        except FileNotFoundError:
            return None

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._store.remove(name)

    def _source_differences(self, plan: PackPlan) -> list[str]:
        try:
            with io.BytesIO(self._store.read_file(_SOURCES)) as file:
                return list_source_differences(read_sources(file), plan.content.files)
        except (OSError, ValueError, EOFError):
            return ["the list of the earlier source files cannot be read"]


@contextmanager
def hold_objects(url: str) -> Iterator[ObjectDestination]:
    """Open a destination in an object store.

    Raises:
        RemoteError: there is no driver for the URL.
    """
    yield ObjectDestination(ObjectStore(url))
