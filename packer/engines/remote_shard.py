"""The work of one shard on another node: a request comes in as bytes, a result or an error goes back as bytes.

Knows no cluster: whoever carries the bytes may be Ray or something else.

Rules:
    * Before the first shard, a process checks that it sees the destination and the source that the driver sees. A node
      without the shared file system says so at once and writes nothing.
    * An error goes back as a value, with the node's name in it where the node may be the reason. One that would not
      survive the way is replaced by its text.
    * An interruption is not caught: it ends the work, and the partial is removed on the way out.
"""

import os
import pickle
import traceback
from dataclasses import dataclass
from functools import lru_cache

from packer.begun import PLAN_NAME
from packer.engines.work import Setting
from packer.plan import ShardPlan
from packer.sources.tree_read import NO_FILE
from packer.stores.base import DatasetStore
from packer.stores.open import open_store
from packer.task import finish_shard
from packer.write import ShardResult, ShardWriter
from shards.digests import hash_bytes
from shards.errors import (
    DestinationError,
    FormatError,
    PackError,
    RemoteError,
    SourceChangedError,
    SourceError,
    TransformError,
    printable,
)
from shards.names import STATE_NAME

_ADVICE = (
    "every node needs it under the same path: use a file system that all nodes share (NFS, CephFS) or an object store"
)


@dataclass(frozen=True, slots=True)
class ShardRequest:
    """What a node needs to finish one shard."""

    setting: Setting
    plan: ShardPlan
    saved_plan: str
    """Digest of the saved plan at the destination, as the driver reads it."""

    def to_bytes(self) -> bytes:
        """Pack for the way."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)


def saved_plan_digest(store: DatasetStore) -> str:
    """Digest of the saved plan at a destination.

    Raises:
        OSError, RemoteError, FormatError: it cannot be read.
    """
    return hash_bytes(store.read_file(f"{STATE_NAME}/{PLAN_NAME}"))


def finish_requested(request: bytes, node: str) -> bytes:
    """Finish a shard.

    Args:
        request: :meth:`ShardRequest.to_bytes` of a driver with the same code.
        node: name of this node, for messages.

    Returns:
        For :func:`read_outcome`.
    """
    try:
        wanted = pickle.loads(request)  # noqa: S301 (made by a driver with the same code)
        return pickle.dumps(_finish(wanted, node), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 (it is raised again in the driver)
        named = _with_node(error, node)
        named.add_note(f"on node {node}, process {os.getpid()}:\n{traceback.format_exc()}")
        return _pickle_error(named)


def read_outcome(outcome: bytes) -> ShardResult:
    """Give the result of a shard, or raise what failed."""
    found = pickle.loads(outcome)  # noqa: S301 (made by a node with the same code)
    if isinstance(found, BaseException):
        raise found
    result: ShardResult = found
    return result


def _finish(request: ShardRequest, node: str) -> ShardResult:
    setting = request.setting
    _check_destination(setting.directory, request.saved_plan, node)
    _check_source(tuple(setting.origin.local_paths()), node)
    with ShardWriter(setting.origin, setting.read_threads, _report_nothing) as writer:
        return finish_shard(writer, request.plan, setting.directory, _report_nothing)


def _report_nothing(_num_samples: int, _num_bytes: int) -> None:
    """The driver counts a shard when it is finished."""


@lru_cache(maxsize=1)  # what raises is not kept
def _check_destination(directory: str, expected: str, node: str) -> None:
    shown = printable(directory)
    try:
        found = saved_plan_digest(open_store(directory))
    except (OSError, FormatError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DestinationError(
            f"node {node} does not see the destination {shown} ({STATE_NAME}/{PLAN_NAME}: {reason}); {_ADVICE}"
        ) from error
    if found != expected:
        raise DestinationError(
            f"node {node} sees something else at the destination {shown}: its saved plan is {found}, "
            f"that of this run is {expected}; {_ADVICE}. Or another pack build has begun there"
        )


@lru_cache(maxsize=1)
def _check_source(paths: tuple[bytes, ...], node: str) -> None:
    for path in paths:
        try:
            os.stat(path)
        except OSError as error:
            raise SourceError(
                f"node {node} does not see the source {printable(os.fsdecode(path))}: {error.strerror}; {_ADVICE}"
            ) from error


def _with_node(error: Exception, node: str) -> Exception:
    """Name the node where it may be the reason: it sees other files, has no credentials, lacks the user's module."""
    named: Exception = error
    if isinstance(error, SourceChangedError):
        doubt = f" (if other nodes see it as planned: {_ADVICE})" if error.actual == NO_FILE else ""
        named = SourceChangedError(error.path, error.expected, f"{error.actual} on node {node}{doubt}")
    elif isinstance(error, TransformError):
        named = TransformError(error.name, error.key, f"{error.reason} (on node {node})")
    elif type(error) in {SourceError, DestinationError} and node not in str(error):
        named = type(error)(f"on node {node}: {error}")
    elif isinstance(error, RemoteError):
        named = type(error)(f"on node {node}: {error}")
        named.is_transient = error.is_transient
    return named


def _pickle_error(error: Exception) -> bytes:
    """Pickle an error so that it can be read; drivers of object stores raise some that cannot."""
    try:
        data = pickle.dumps(error, protocol=pickle.HIGHEST_PROTOCOL)
        pickle.loads(data)  # noqa: S301 (made above)
    except Exception:  # noqa: BLE001 (whatever the class of an error does)
        substitute = PackError(f"{type(error).__name__}: {printable(str(error))}")
        for note in error.__notes__:
            substitute.add_note(note)
        return pickle.dumps(substitute, protocol=pickle.HIGHEST_PROTOCOL)
    return data
