"""Brings the shards of a dataset into another one: as the same files where possible, else as checked copies."""

import errno
import logging
import os
from collections.abc import Callable

from packer.locations import directory_of, is_url
from packer.stores.base import DatasetStore
from packer.stores.open import open_store
from shards.digests import BlockHasher, hash_bytes
from shards.errors import DigestMismatchError, SizeMismatchError
from shards.files import fsync_directory, make_directory
from shards.manifest import Manifest, ShardEntry
from shards.ranges import read_pieces

logger = logging.getLogger(__name__)

_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def share_shards(source: str, destination: str, manifest: Manifest, check: Callable[[], None]) -> int:
    """Bring all shards and indexes of a dataset into another place, without the manifest.

    Directories on one filesystem get hard links: no bytes, no time. Otherwise bytes are copied and checked on the way.
    What is there already with the right size stays.

    Args:
        source: location of the dataset.
        destination: where its shards shall be too.
        manifest: of the dataset.
        check: called often; raises to stop.

    Returns:
        Number of bytes that had to be copied.

    Raises:
        SizeMismatchError, DigestMismatchError: the source is not what its manifest says.
    """
    there, here = open_store(source), open_store(destination)
    can_link = not is_url(source) and not is_url(destination)
    copied_bytes = 0
    for _, shard in manifest.shards():
        for name, size_bytes in ((shard.index_name, shard.index_size_bytes), (shard.name, shard.size_bytes)):
            check()
            if here.size_of(name) == size_bytes:
                continue
            found = there.size_of(name)
            if found != size_bytes:
                raise SizeMismatchError(f"{source}/{name}", size_bytes, found or 0, "run pack verify on it")
            if can_link:
                can_link = _link(directory_of(source), directory_of(destination), name)
            if not can_link:
                copied_bytes += size_bytes
                _copy(there, here, shard, is_index=name == shard.index_name, check=check)
    if copied_bytes:
        logger.info("shards were copied, since there can be no hard links", extra={"num_bytes": copied_bytes})
    return copied_bytes


def _link(source: str, destination: str, name: str) -> bool:
    path = os.path.join(destination, name)
    make_directory(os.path.dirname(path))
    try:
        os.link(os.path.join(source, name), path)
    except FileExistsError:
        os.unlink(path)  # of this dataset, and of the wrong size
        os.link(os.path.join(source, name), path)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        return False
    fsync_directory(os.path.dirname(path))
    return True


def _copy(
    there: DatasetStore, here: DatasetStore, shard: ShardEntry, *, is_index: bool, check: Callable[[], None]
) -> None:
    if is_index:
        data = there.read_file(shard.index_name)
        if hash_bytes(data) != shard.index_digest:
            raise DigestMismatchError(shard.index_name, None, 0, shard.index_digest, hash_bytes(data))
        here.put(shard.index_name, data)
        return
    hasher = BlockHasher()
    with there.open_reader(shard.name) as reader, here.create(shard.name, shard.size_bytes) as file:
        for piece in read_pieces(reader):
            check()
            hasher.update(piece)
            file.write(piece)
        digest = hasher.finish().shard_digest
        if digest != shard.digest:
            raise DigestMismatchError(shard.name, None, 0, shard.digest, digest, "run pack verify on the dataset")
        file.commit(shard.size_bytes)
