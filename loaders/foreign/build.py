"""Makes the record of one foreign shard, in this process or as a worker: ``python -m loaders.foreign.build``.

A worker reads jobs from its standard input and answers each on its standard output, a line of JSON each. It is a
program of its own, and no process of :mod:`multiprocessing`, because a training script is not made to be imported
again.
"""

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from loaders.foreign.find import ForeignFile
from loaders.foreign.records import Record, RecordPlace, Stamp, place_of, read_record, stamp_of, write_record
from shards.compression import HEAD_BYTES, find_compression, open_decoded
from shards.errors import FormatError, ShardferryError, printable
from shards.files import create_partial
from shards.foreign.scan import scan_shard, walk_shard
from shards.formats import FORMATS
from shards.ranges import FileRanges

_PIECE_BYTES = 4 * 1024 * 1024
_LOCK_MODE = 0o644


class ShardFaultError(ShardferryError):
    """A foreign shard cannot be read; the message says why and where."""


def ensure_record(directory: str, file: ForeignFile, *, is_hashed: bool) -> Record:
    """Give the record of a shard, making it when there is none.

    Of several processes that want the same record at the same time, one makes it and the others wait for it.

    Args:
        directory: of all records; it exists.
        file: the shard.
        is_hashed: whether the record must have digests and CRCs, for which all data are read.

    Raises:
        ShardFaultError: the shard is damaged, or what it is cannot be told.
        OSError: the shard cannot be read or the record not be written.
    """
    place = place_of(directory, file.path)
    stamp = stamp_of(file.path)
    record = read_record(place, stamp, is_hashed=is_hashed)
    if record is not None:
        return record
    with _alone(place):
        return read_record(place, stamp, is_hashed=is_hashed) or _make_record(place, file, stamp, is_hashed=is_hashed)


def _make_record(place: RecordPlace, file: ForeignFile, stamp: Stamp, *, is_hashed: bool) -> Record:
    with open(file.path, "rb", buffering=0) as stream:
        head = stream.read(HEAD_BYTES)
        is_plain = any(known.is_plain(head) for known in FORMATS.values())
        is_compressed = not is_plain and find_compression(head, allow_zlib=True) != "none"
        if is_compressed:
            stream.seek(0)
            _decompress(stream, file.path, place.shard_path)
    with FileRanges(os.open(place.shard_path if is_compressed else file.path, os.O_RDONLY | os.O_CLOEXEC)) as shard:
        format_name = file.format_name or _tell_format(shard.read_at(HEAD_BYTES, 0), file.path)
        found = (scan_shard if is_hashed else walk_shard)(shard, os.path.basename(file.path), format_name)
    if found.fault:
        raise ShardFaultError(found.fault)
    if stamp_of(file.path) != stamp:
        raise ShardFaultError(
            f"{printable(file.path)} changed while it was read; let its writer finish, then open the dataset again"
        )
    record = Record(
        stamp=stamp,
        format_name=format_name,
        is_compressed=is_compressed,
        size_bytes=found.size_bytes,
        digest=found.digest,
        num_samples=found.num_samples,
        index_size_bytes=found.index_size_bytes,
        index_digest=found.index_digest,
        extensions=found.extensions,
        num_keyless=found.num_keyless,
    )
    write_record(place, record, found.index_bytes)
    return record


def _decompress(stream: BinaryIO, name: str, final_path: str) -> None:
    try:
        decoded = open_decoded(stream, name, FormatError, allow_zlib=True)
        with create_partial(final_path) as partial:
            size_bytes = 0
            while piece := decoded.read(_PIECE_BYTES):
                partial.write(piece)
                size_bytes += len(piece)
            partial.commit(size_bytes)
    except FormatError as error:
        raise ShardFaultError(str(error)) from error


def _tell_format(head: bytes, path: str) -> str:
    for known in FORMATS.values():
        if known.is_plain(head):
            return known.name
    raise ShardFaultError(
        f"{printable(path)} is neither a tar nor a TFRecord file, by its name or by its first bytes; name it *.tar or "
        "*.tfrecord if it is one"
    )


@contextmanager
def _alone(place: RecordPlace) -> Iterator[None]:
    """Keep other makers of the same record out. Where files cannot be locked, several do the same work."""
    fd = os.open(place.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _LOCK_MODE)
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(place.lock_path)
        os.close(fd)


def main() -> None:
    """Work off jobs until standard input ends."""
    for line in sys.stdin:
        job = json.loads(line)
        file = ForeignFile(path=os.fsdecode(bytes.fromhex(job["path"])), format_name=job["format"])
        fault = ""
        try:
            ensure_record(job["directory"], file, is_hashed=job["is_hashed"])
        except ShardFaultError as error:
            fault = str(error)
        except OSError as error:
            fault = f"{printable(error.filename or file.path)}: {error.strerror}"
        sys.stdout.write(json.dumps({"fault": fault}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
