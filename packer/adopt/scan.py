"""Reads one shard of a source once; whatever is wrong with it is part of the result."""

from packer.stores.open import open_store
from shards.errors import RemoteError, printable
from shards.foreign.scan import ScannedShard, scan_shard


def scan_source(location: str, name: str, format_name: str) -> ScannedShard:
    """Read one shard; damage is a result, not an error.

    Args:
        location: of the source.
        name: of the shard in it.
        format_name: ``tar`` or ``tfrecord``.
    """
    try:
        with open_store(location).open_reader(name) as reader:
            return scan_shard(reader, name, format_name)
    except RemoteError as error:
        return ScannedShard(name=name, fault=str(error))
    except OSError as error:
        return ScannedShard(name=name, fault=f"{printable(name)}: {error.strerror}")
