"""A shard's files, opened only when they are what the manifest promises.

Rules:
    * Sizes are checked at every opening.
    * An index is trusted only after its digest, its header and the place of every member in it were checked, once per
      process. The digest says that the index is the packer's; whether the packer kept every other promise of the
      format is what ``check="index"`` looks at.
"""

import mmap
import os
from dataclasses import dataclass

from shards.digests import hash_bytes
from shards.errors import DigestMismatchError, IndexFormatError, NotStagedError, SizeMismatchError, printable
from shards.index import ShardIndex

STAGE_AGAIN = "pack, stage or copy the dataset again"
"""What helps against files that are not what the manifest promises."""

_PIECE_MEMBERS = 64 * 1024
"""Members checked at a time, so that the memory for it stays constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFile:
    """One shard, its index, and what the manifest promises of them."""

    name: str
    """As in the manifest."""
    path: str
    size_bytes: int
    digest: str
    """Empty for a foreign shard that was not hashed."""
    num_samples: int
    index_path: str
    index_size_bytes: int
    index_digest: str


def open_file(path: str, size_bytes: int) -> int:
    """Open a file for reading; gives its descriptor.

    Raises:
        NotStagedError: it is not there.
        SizeMismatchError: it has another size.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotStagedError(f"{printable(path)} is missing; {STAGE_AGAIN}") from None
    actual_bytes = os.fstat(fd).st_size
    if actual_bytes != size_bytes:
        os.close(fd)
        raise SizeMismatchError(path, size_bytes, actual_bytes, STAGE_AGAIN)
    return fd


def map_file(path: str, size_bytes: int) -> "mmap.mmap | bytes":
    """Map a whole file for reading; an empty one, which cannot be mapped, is ``b""``.

    Raises:
        NotStagedError: it is not there.
        SizeMismatchError: it has another size.
    """
    fd = open_file(path, size_bytes)
    try:
        return mmap.mmap(fd, size_bytes, access=mmap.ACCESS_READ) if size_bytes else b""
    finally:
        os.close(fd)


def open_index(file: ShardFile) -> ShardIndex:
    """Open a shard's index and check all of it against the manifest's promises and the shard's size.

    Raises:
        NotStagedError: it is not there.
        SizeMismatchError: it has another size than promised.
        DigestMismatchError: it has another digest than promised.
        IndexFormatError: it does not follow the format or belongs to another shard.
    """
    content = map_file(file.index_path, file.index_size_bytes)
    actual = hash_bytes(content)
    if actual != file.index_digest:
        raise DigestMismatchError(file.index_path, None, 0, file.index_digest, actual, STAGE_AGAIN)
    index = ShardIndex.open(file.index_path)
    header = index.header
    promises = (
        ("shard name", file.name, header.shard_name),
        ("shard size", file.size_bytes, header.shard_bytes),
        ("number of samples", file.num_samples, index.num_samples),
        ("shard digest", file.digest, header.blocks.shard_digest if header.block_bytes else ""),
    )
    for what, expected, actual_value in promises:
        if expected != actual_value:
            raise IndexFormatError(
                file.index_path, None, f"{what} is {actual_value} here and {expected} in the manifest; {STAGE_AGAIN}"
            )
    _check_places(index, file)
    return index


def _check_places(index: ShardIndex, file: ShardFile) -> None:
    """Check that every sample's members are in the index and every member lies inside the shard."""
    first, codes = index.first_member, index.extension_codes
    if int(first[0]) != 0 or int(first[-1]) != len(codes) or bool((first[1:] < first[:-1]).any()):
        raise IndexFormatError(file.index_path, None, f"the members of a sample lie outside the index; {STAGE_AGAIN}")
    if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(index.extensions):
        raise IndexFormatError(file.index_path, None, f"a member has an unknown extension; {STAGE_AGAIN}")
    offsets, sizes = index.member_offsets, index.member_sizes
    for start in range(0, len(offsets), _PIECE_MEMBERS):
        some_offsets = offsets[start : start + _PIECE_MEMBERS]
        ends = some_offsets + sizes[start : start + _PIECE_MEMBERS]
        # a sum that wraps around is smaller than its offset
        if int(ends.max()) > file.size_bytes or bool((ends < some_offsets).any()):
            raise IndexFormatError(file.index_path, None, f"a member lies outside the shard; {STAGE_AGAIN}")
