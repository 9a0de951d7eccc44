"""Checks a dataset's files against its manifest, as deep as the user wants.

==========  ================================================================  =========================
level       checks                                                            cost
==========  ================================================================  =========================
``size``    each shard and index is there with the promised size              one ``stat`` a file
``index``   also each index: digest, belongs to its shard, every promise      reads the indexes
``full``    also every block of every shard against its digest                reads everything
==========  ================================================================  =========================

``size`` is the default, for a staged file was verified before it got its name and is read-only since. Whatever the
level, an index must have its digest and belong to its shard when it is first used (:func:`loaders.files.open_index`).
"""

import os
from collections.abc import Callable, Sequence
from typing import Literal

from loaders.files import STAGE_AGAIN, ShardFile, map_file, open_index
from shards.digests import block_digest, block_ranges, digest_text
from shards.errors import DigestMismatchError, NotStagedError, SizeMismatchError, list_offenders, printable
from shards.index import ShardIndex

CheckLevel = Literal["size", "index", "full"]


def check_files(shards: Sequence[ShardFile], level: CheckLevel, *, allow_missing: bool = False) -> None:
    """Check the files of a split.

    Args:
        shards: of the split.
        level: how deep.
        allow_missing: check those that are there, and let others be missing.

    Raises:
        NotStagedError: files are missing; lists them.
        SizeMismatchError: a file has another size than promised.
        DigestMismatchError: an index or a block has another digest than promised; names the block.
        IndexFormatError: an index does not follow the format or belongs to another shard.
    """
    deeper: dict[CheckLevel, Callable[[ShardFile], object]] = {"index": _check_index, "full": _check_blocks}
    if level != "size" and level not in deeper:
        raise ValueError(f"check must be one of size, index, full, not {level!r}")
    if allow_missing:
        # the index is there before its shard and goes after it
        shards = [shard for shard in shards if os.path.exists(shard.path)]
    _check_sizes(shards)
    if level != "size":
        for shard in shards:
            deeper[level](shard)


def _check_sizes(shards: Sequence[ShardFile]) -> None:
    missing = []
    for shard in shards:
        for path, size_bytes in ((shard.path, shard.size_bytes), (shard.index_path, shard.index_size_bytes)):
            try:
                actual_bytes = os.stat(path).st_size
            except (FileNotFoundError, NotADirectoryError):
                missing.append(printable(path))
                continue
            if actual_bytes != size_bytes:
                raise SizeMismatchError(path, size_bytes, actual_bytes, STAGE_AGAIN)
    if missing:
        raise NotStagedError(
            f"{len(missing)} of {2 * len(shards)} files that the manifest names are missing; {STAGE_AGAIN}:\n"
            f"{list_offenders(missing)}"
        )


def _check_index(shard: ShardFile) -> None:
    with open_index(shard) as index:
        index.validate()


def _check_blocks(shard: ShardFile) -> None:
    with open_index(shard) as index:
        index.validate()
        _compare_blocks(shard, index)


def _compare_blocks(shard: ShardFile, index: ShardIndex) -> None:
    # open_index has checked that these block digests give the shard's digest in the manifest
    header = index.header
    with memoryview(map_file(shard.path, shard.size_bytes)) as content:
        ranges = block_ranges(shard.size_bytes, header.block_bytes)
        for block, ((start, end), expected) in enumerate(zip(ranges, header.block_digests, strict=True)):
            actual = block_digest(content[start:end])
            if actual != expected:
                raise DigestMismatchError(
                    shard.path, block, start, digest_text(expected), digest_text(actual), STAGE_AGAIN
                )
