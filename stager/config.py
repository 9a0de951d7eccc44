"""What ``stage run`` was asked to do, parsed once and checked; nothing here touches a disk."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from shards.selection import ALL, Selection
from stager.limits import Retain, SpaceLimits
from stager.order import FetchOrder
from stager.remotes.options import DEFAULT_OPTIONS, RemoteOptions
from stager.verify import Verify

DEFAULT_CONNECTIONS = 8
"""Enough to hide a network's round trips; between 4 and 16, a local disk shows no difference above the noise. With
blocks of 8 MiB, 64 MiB of memory."""

DEFAULT_LEASE_TTL_SECONDS = 15 * 60.0
"""Long enough for the trainer's image to be pulled and its framework to be imported."""

MAX_LEASE_TTL_SECONDS = 10 * 366 * 86400.0
"""No node runs for longer."""

DEFAULT_TERMINATION_LOG = "/dev/termination-log"
"""Where Kubernetes looks for the last words of a container."""

_MAX_HOLDER_LENGTH = 120
"""Leaves room for the number that tells two runs of one holder apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig:
    """One run of the stager."""

    source: str
    """Where the published dataset lies: a directory, absolute, or a URL, as :func:`parse_source` gives it."""
    cache_dir: str
    """Root of this node's cache, absolute."""
    holder: str
    """Who the lease is for, a name that is the same when the job is restarted."""
    connections: int = DEFAULT_CONNECTIONS
    """Ranges that are read at the same time, over all shards; memory is this many blocks."""
    verify: Verify = Verify.SIZE
    links: tuple[str, ...] = ()
    """Symbolic links to point at the staged dataset."""
    remote: RemoteOptions = DEFAULT_OPTIONS
    """How the source is reached."""
    lease_ttl_seconds: float = DEFAULT_LEASE_TTL_SECONDS
    """How long the dataset stays protected after the stager's end, for the trainer to take over."""
    without_manifest: bool = False
    """Whether the source is taken for shards of others, which have no manifest."""
    selection: Selection = ALL
    """Which shards this node wants."""
    allow_empty: bool = False
    """Whether a selection that matches nothing is no error."""
    order: FetchOrder | None = None
    """In which order shards are fetched; that of the manifest when None."""
    window_bytes: int | None = None
    """Most that shards and indexes may take at once, when what was read is dropped; None to keep everything."""
    deadline_seconds: float | None = None
    """Most time that staging may take."""
    space: SpaceLimits = field(default_factory=SpaceLimits)
    """What the cache may take."""
    retain: Retain = Retain.LRU
    """What becomes of the dataset when nobody protects it any more."""
    group_id: int | None = None
    """Group whose members share the cache; None for one user."""

    def __post_init__(self) -> None:
        if self.deadline_seconds is not None and self.deadline_seconds <= 0:
            raise ValueError(f"the deadline must lie in the future, {self.deadline_seconds:g} s does not")
        if self.connections < 1:
            raise ValueError(f"connections must be 1 or more, not {self.connections}")
        if not 0 <= self.lease_ttl_seconds <= MAX_LEASE_TTL_SECONDS:
            raise ValueError(
                f"the lease's time must lie between 0 s and 10 years, {self.lease_ttl_seconds:g} s does not"
            )
        if "" in self.links:
            raise ValueError("a link's path is empty")


def parse_source(text: str) -> str:
    """Turn SRC into the place of the dataset: an absolute directory, or a URL without a slash at the end.

    Args:
        text: a path, a ``file://`` URL, or the URL of an object store or server. May also name the ``manifest.json``
            in the place.

    Raises:
        ValueError: a URL that cannot be a place of files, or one with a secret in it.
    """
    scheme, is_url, _ = text.partition("://")
    path = text
    if is_url and scheme.lower() != "file":
        return _parse_remote_url(text)
    if is_url:
        url = urlsplit(text)
        if url.netloc not in {"", "localhost"}:
            raise ValueError(f"a file URL with the host {url.netloc!r}; write file:///path with three slashes")
        if url.query or url.fragment:
            raise ValueError("a file URL with ? or #; write them as %3F and %23 when they belong to the path")
        path = unquote(url.path, errors="surrogateescape")
    if not path:
        raise ValueError("the source is empty")
    if "\0" in path:
        raise ValueError("the source's path contains a NUL")
    if os.path.basename(path) == "manifest.json":
        path = os.path.dirname(path) or os.curdir
    return os.path.abspath(path)


def _parse_remote_url(text: str) -> str:
    scheme, _, rest = text.partition("://")
    if not rest.isprintable():
        raise ValueError("the source's URL contains control characters")
    host, _, place = rest.partition("/")
    place = place.rstrip("/")
    if place == "manifest.json" or place.endswith("/manifest.json"):
        place = place.removesuffix("manifest.json").rstrip("/")
    user, at, host_name = host.rpartition("@")
    if ":" in user:
        # it would stand in logs, in the report and in the status file
        raise ValueError(f"a password in the URL of {host_name}; give it to the driver in its own way")
    if not host_name:
        raise ValueError(f"a {scheme}:// URL without a {'bucket' if scheme.startswith('s3') else 'host'}")
    if scheme.lower() in {"http", "https"} and ("?" in place or "#" in place):
        raise ValueError("a URL with ? or #; names of files are appended to it, so it must be that of a directory")
    return f"{scheme.lower()}://{user}{at}{host_name}/{place}".rstrip("/")


def choose_holder(environment: Mapping[str, str], host_name: str, uid: int) -> str:
    """Name who the lease is for: the pod, the Slurm job, or this user on this host.

    Args:
        environment: of the process; ``POD_UID`` and ``SLURM_JOB_ID`` are looked at.
        host_name: of this machine or container.
        uid: numeric user id.
    """
    if environment.get("POD_UID"):
        name = f"pod-{environment['POD_UID']}"
    elif environment.get("SLURM_JOB_ID"):
        name = f"slurm-{environment['SLURM_JOB_ID']}"
    else:
        name = f"{host_name}-uid-{uid}"
    return clean_holder(name)


def clean_holder(name: str) -> str:
    """Make a name usable as the base of a file name: ASCII letters, digits, ``.``, ``_`` and ``-``."""
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name)
    return kept.lstrip("._-")[:_MAX_HOLDER_LENGTH] or "unnamed"
