"""Names in a node's cache of staged datasets, as pure functions; nothing here touches a disk.

::

    <root>/VERSION                                  layout version, one line
    <root>/gc.lock                                  held while room is reserved or datasets are evicted
    <root>/bandwidth.json                           when the line to the sources is free again
    <root>/datasets/<64 hex of the dataset id>/     mirrors the dataset directory; THE DIRECTORY IS THE LOCK OBJECT
    <root>/datasets/<id>/.stage/                    partial shards, status, and the manifest from the beginning on
    <root>/leases/<id>/<holder>.json                one record a holder, see shards.leases
    <root>/progress/<holder>.json                   how far each stager is, see shards.progress
    <root>/positions/<id>/<reader>.json             how far each reader is, see shards.positions
    <root>/metrics/<holder>.prom
    <root>/trash/<token>/                           evicted, waiting to be deleted
    <root>/quarantine/<token>/                      damaged files, set aside
    <root>/scrub.json                               how far the janitor has hashed again what is staged

Ids, holders and tokens come from outside and are checked, so that no path leaves the root.
"""

import hashlib
import re
from dataclasses import dataclass

from shards.digests import DIGEST_PREFIX, is_digest
from shards.errors import UnsupportedEnvironmentError, printable
from shards.names import check_relative_name

CACHE_VERSION = 1
"""Version of this layout. Another one is refused, so that an old stager never evicts what it cannot read."""

MAX_VERSION_BYTES = 4096
"""More than a VERSION file ever holds."""

STAGE_DIRECTORY = ".stage"
"""The one reserved name in a staged dataset directory; names of shards never begin with a dot."""

_HOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HEX = re.compile(r"[0-9a-f]{64}")
_MAX_PARTIAL_STEM_BYTES = 200


def check_holder(text: str) -> str:
    """Check the name of a lease holder, or a token: 1 to 128 of ``A-Z a-z 0-9 . _ -``, not beginning with a dot.

    Returns:
        The text itself.

    Raises:
        ValueError: it is something else.
    """
    if _HOLDER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no holder: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit")
    return text


def directory_name(dataset_id: str) -> str:
    """Name of a dataset's directory: the 64 hex digits of its id.

    Raises:
        ValueError: no dataset id.
    """
    if not is_digest(dataset_id):
        raise ValueError(f"{dataset_id!r} is no dataset id: expected {DIGEST_PREFIX} and 64 lower-case hex digits")
    return dataset_id.removeprefix(DIGEST_PREFIX)


def dataset_id_of(name: str) -> str | None:
    """The dataset id that a directory's name stands for, or None when it is no dataset's directory."""
    return DIGEST_PREFIX + name if _HEX.fullmatch(name) else None


def partial_name(shard_name: str) -> str:
    """Name of the partial of a shard or index, in ``.stage``: one component, whatever directories the name has.

    ``%`` and ``/`` are escaped as in URLs; a name that gets too long for a filesystem is cut and ends in a hash of
    the whole. So different names have different partials.

    Raises:
        ValueError: no name that a manifest may hold.
    """
    check_relative_name(shard_name, "name")
    stem = shard_name.replace("%", "%25").replace("/", "%2F")
    raw = stem.encode()
    if len(raw) > _MAX_PARTIAL_STEM_BYTES:
        stem = f"{raw[:_MAX_PARTIAL_STEM_BYTES].decode(errors='ignore')}%{hashlib.sha256(raw).hexdigest()[:32]}"
    return f"{stem}.partial"


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """All paths of one cache. ``ValueError`` on an id, holder or name that is none."""

    root: str
    """Directory of the cache, as given."""

    def __post_init__(self) -> None:
        if not self.root or "\0" in self.root:
            raise ValueError(f"{self.root!r} is no directory for a cache")

    def below(self, *parts: str) -> str:
        """A path below the root."""
        return "/".join((self.root.rstrip("/"), *parts))

    @property
    def version_path(self) -> str:
        """File that holds the layout version."""
        return self.below("VERSION")

    @property
    def gc_lock_path(self) -> str:
        """File locked exclusively while room is reserved or datasets are evicted."""
        return self.below("gc.lock")

    @property
    def bandwidth_path(self) -> str:
        """File by which stagers share a bandwidth limit."""
        return self.below("bandwidth.json")

    @property
    def datasets_dir(self) -> str:
        """Directory of the dataset directories."""
        return self.below("datasets")

    @property
    def all_leases_dir(self) -> str:
        """Directory of the lease directories."""
        return self.below("leases")

    @property
    def trash_dir(self) -> str:
        """Directory of what was evicted and is not deleted yet."""
        return self.below("trash")

    @property
    def metrics_dir(self) -> str:
        """Directory of the metrics snapshots."""
        return self.below("metrics")

    def dataset_dir(self, dataset_id: str) -> str:
        """Directory of a staged dataset, also the object that its users lock."""
        return self.below("datasets", directory_name(dataset_id))

    def stage_dir(self, dataset_id: str) -> str:
        """Directory of what is unfinished in a dataset."""
        return self.below("datasets", directory_name(dataset_id), STAGE_DIRECTORY)

    def partial_path(self, dataset_id: str, shard_name: str) -> str:
        """Where a shard or index grows until it is committed."""
        return self.below("datasets", directory_name(dataset_id), STAGE_DIRECTORY, partial_name(shard_name))

    def status_path(self, dataset_id: str) -> str:
        """What the stager last said about a dataset, for people and monitoring."""
        return self.below("datasets", directory_name(dataset_id), STAGE_DIRECTORY, "status.json")

    def wanted_path(self, dataset_id: str) -> str:
        """The manifest of a dataset as it was published, there as long as any of its shards; see docs/format.md."""
        return self.below("datasets", directory_name(dataset_id), STAGE_DIRECTORY, "manifest.json")

    def leases_dir(self, dataset_id: str) -> str:
        """Directory of the lease records of a dataset."""
        return self.below("leases", directory_name(dataset_id))

    def lease_path(self, dataset_id: str, holder: str) -> str:
        """Lease record of one holder on a dataset."""
        return self.below("leases", directory_name(dataset_id), f"{check_holder(holder)}.json")

    def trash_path(self, token: str) -> str:
        """Where a dataset directory goes when it is evicted; ``token`` is new each time."""
        return self.below("trash", check_holder(token))

    @property
    def progress_dir(self) -> str:
        """Directory of what stagers say of themselves."""
        return self.below("progress")

    def progress_path(self, holder: str) -> str:
        """What one stager says of itself."""
        return self.below("progress", f"{check_holder(holder)}.json")

    @property
    def all_positions_dir(self) -> str:
        """Directory of the directories of how far readers are."""
        return self.below("positions")

    def positions_dir(self, dataset_id: str) -> str:
        """Directory of how far the readers of a dataset are."""
        return self.below("positions", directory_name(dataset_id))

    def position_path(self, dataset_id: str, reader: str) -> str:
        """How far one reader of a dataset is."""
        return self.below("positions", directory_name(dataset_id), f"{check_holder(reader)}.json")

    def mark_path(self, dataset_id: str) -> str:
        """When a dataset was last used, and what its last user wants to become of it."""
        return self.below("datasets", directory_name(dataset_id), STAGE_DIRECTORY, "used.json")

    @property
    def quarantine_dir(self) -> str:
        """Directory of the files that were set aside as damaged."""
        return self.below("quarantine")

    def quarantine_path(self, token: str) -> str:
        """Directory of one file that was set aside; ``token`` is new each time."""
        return self.below("quarantine", check_holder(token))

    @property
    def scrub_path(self) -> str:
        """How far the janitor has come in hashing again what is staged."""
        return self.below("scrub.json")

    def metrics_path(self, holder: str) -> str:
        """Metrics snapshot of one holder."""
        return self.below("metrics", f"{check_holder(holder)}.prom")


def encode_version() -> bytes:
    """Content of the VERSION file."""
    return f"{CACHE_VERSION}\n".encode("ascii")


def check_version(data: bytes, *, path: str) -> None:
    """Check the content of a VERSION file.

    Args:
        data: the whole file.
        path: what the error calls it.

    Raises:
        UnsupportedEnvironmentError: a newer release made this cache, or this is no cache.
    """
    text = data.strip()
    if not text.isdigit() or len(text) > 9:
        raise UnsupportedEnvironmentError(
            f"{printable(path)} holds {data[:40]!r} instead of a version: not a Shardferry cache; "
            "choose another cache directory or remove that file"
        )
    if int(text) != CACHE_VERSION:
        raise UnsupportedEnvironmentError(
            f"{printable(path)} says that the cache has layout version {int(text)}, this release knows "
            f"{CACHE_VERSION}; upgrade shardferry on this node or choose another cache directory"
        )
