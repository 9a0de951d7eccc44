"""The tar shard format: layout of samples to write, scan of shards to read. Used through ``shards.formats``."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import BinaryIO

import numpy as np

from shards.digests import crc32c
from shards.layout import SampleLayout, ScannedMember, ScannedSample
from shards.sample_columns import Int64s, SampleColumns
from shards.samples import GroupedSample, SampleGrouper
from shards.tar.encoder import PLAIN_NAME_BYTES, PLAIN_SIZE_LIMIT, encode_header
from shards.tar.header import BLOCK_BYTES
from shards.tar.member import DEFAULT_LIMITS
from shards.tar.reader import FileReader
from shards.tar.source import open_source
from shards.tar.walk import TarWalk

logger = logging.getLogger(__name__)

END_MARKER = bytes(2 * BLOCK_BYTES)
"""Closes a shard."""

_Found = tuple[int | None, int, int]
"""(data offset, size, CRC-32C) of a member."""

_REFUSED_COMPONENTS = frozenset({"", ".", ".."})


def layout_sample(key: str, members: Sequence[tuple[str, int]]) -> SampleLayout:
    """Compute where each byte of one sample goes in a tar shard.

    Args:
        key: of the sample; its ``/`` separate directories. Bytes that are not UTF-8 are lone surrogates.
        members: (extension without its leading dot, size in bytes), in the order to write.

    Returns:
        The layout: for each member the header and the data, and zeros up to the next multiple of 512.

    Raises:
        ValueError: no members; a name that is empty, absolute, too long, or has a zero byte, a ``.`` or ``..``
            component or a slash at its end; two extensions that are equal in lower case; an impossible size.
    """
    if not members or len({extension.lower() for extension, _ in members}) != len(members):
        raise ValueError(f"sample {key!r} needs members with different extensions, not {[name for name, _ in members]}")
    if not _REFUSED_COMPONENTS.isdisjoint(key.split("/")):
        raise ValueError(f"key {key!r} has an empty, '.' or '..' component")
    if "\0" in key:
        raise ValueError(f"key {key!r} has a zero byte")
    stem = key.encode("utf-8", "surrogateescape") + b"."
    literals = []
    holes = []
    cursor = 0
    padding = b""
    for extension, size in members:
        if not extension or "/" in extension or "\0" in extension:
            raise ValueError(f"extension {extension!r} of sample {key!r} is empty or has a '/' or zero byte")
        header = padding + encode_header(stem + extension.encode("utf-8", "surrogateescape"), size)
        literals.append((cursor, header))
        cursor += len(header)
        holes.append((cursor, size))
        cursor += size
        padding = bytes(-size % BLOCK_BYTES)
    if padding:
        literals.append((cursor, padding))
        cursor += len(padding)
    return SampleLayout(cursor, tuple(literals), tuple(holes))


def sample_size(key: str, members: Sequence[tuple[str, int]]) -> int:
    """Length of a sample's encoding; arguments and errors are those of :func:`layout_sample`.

    Computed without the layout where each member has one plain header, which is nearly always so.
    """
    longest = _longest_extension(tuple([extension for extension, _ in members]))
    # a superset of the keys that layout_sample refuses or that need more than one header
    is_usual = longest > 0 and key.isascii() and 0 < len(key) < PLAIN_NAME_BYTES - longest and key[0] not in "./"
    if not is_usual or key[-1] == "/" or "//" in key or "/." in key or "\0" in key:
        return layout_sample(key, members).size
    total = 0
    for _, size in members:
        if not 0 <= size < PLAIN_SIZE_LIMIT:
            return layout_sample(key, members).size
        total += BLOCK_BYTES + size + -size % BLOCK_BYTES
    return total


def sample_sizes(samples: SampleColumns) -> Int64s:
    """Length of each sample's encoding, or 0 where :func:`sample_size` has to be asked, which is seldom."""
    data, bounds = samples.key_data, samples.key_bounds
    # what layout_sample may refuse, and what comes from two neighbours that it does not: no matter, it is asked then
    if not data or b"//" in data or b"/." in data or b"\0" in data:
        return np.zeros(len(bounds) - 1, np.int64)
    key_bytes, counts = samples.key_bytes, samples.member_counts
    letters = np.frombuffer(data, np.uint8)
    is_usual = (key_bytes > 0) & (counts > 0)
    first = letters[np.minimum(bounds[:-1], len(data) - 1).astype(np.int64)]
    last = letters[np.maximum(bounds[1:].astype(np.int64) - 1, 0)]
    is_usual &= (first != ord(".")) & (first != ord("/")) & (last != ord("/"))
    longest = np.array([_plain_extension_bytes(name) for name in samples.extensions], np.int64)
    if len({name.lower() for name in samples.extensions}) < len(samples.extensions):
        longest[:] = PLAIN_NAME_BYTES
    name_bytes = np.repeat(key_bytes, counts) + 1 + longest[samples.codes]
    sizes = samples.sizes.astype(np.int64)
    is_odd = (name_bytes > PLAIN_NAME_BYTES) | (sizes < 0) | (sizes >= PLAIN_SIZE_LIMIT)
    is_usual &= samples.sum_members(is_odd) == 0
    totals = samples.sum_members(BLOCK_BYTES + sizes + -sizes % BLOCK_BYTES)
    return np.where(is_usual, totals, 0)


def _plain_extension_bytes(extension: str) -> int:
    """Bytes of an extension; too many for a plain name if :func:`layout_sample` must look at it."""
    if not extension or not extension.isascii() or not {"/", "\0"}.isdisjoint(extension):
        return PLAIN_NAME_BYTES
    return len(extension)


@lru_cache(maxsize=4096)
def _longest_extension(extensions: tuple[str, ...]) -> int:
    """Bytes of the longest of some extensions; 0 when there are none or :func:`layout_sample` must look at them."""
    if not extensions or len({extension.lower() for extension in extensions}) != len(extensions):
        return 0
    if not all(extension.isascii() and extension and not {"/", "\0"} & set(extension) for extension in extensions):
        return 0
    return max(map(len, extensions))


def scan_samples(
    stream: BinaryIO,
    name: str,
    grouper: SampleGrouper[_Found] | None = None,
    *,
    report_keyless: Callable[[int, Sequence[str]], None] | None = None,
    reads_data: bool = True,
) -> Iterator[ScannedSample]:
    """Read a whole shard strictly and yield its samples.

    Members without a key (no extension, hidden, AppleDouble) belong to no sample; they are counted in the
    grouper, and one warning is logged at the end.

    Args:
        stream: the shard, at its start; see :func:`shards.tar.reader.read_members`.
        name: the shard, for messages.
        grouper: collects the members; give one to use another key rule.
        report_keyless: told of members without a key, how many and the first names; None logs a warning.
        reads_data: False passes over the data, and gives 0 as their CRCs.

    Yields:
        Samples in shard order. A hard link has the offset of the earlier file that it names.

    Raises:
        TarFormatError: damage. Only samples that were complete before it have been given.
        SampleGroupError: whole members that do not form samples.
    """
    grouper = SampleGrouper(name) if grouper is None else grouper
    reader = FileReader(TarWalk(open_source(stream, name), name, DEFAULT_LIMITS, require_end_marker=True))
    for member, file in reader.files():
        crc = 0
        if reads_data:
            for piece in reader.pieces(member, file):
                crc = crc32c(piece, crc)
        offset = None if file.extents else file.offset
        finished = grouper.add(member.name, member.header_offset, (offset, file.size, crc))
        if finished is not None:
            yield _describe(finished)
    grouper.num_others += reader.num_others
    last = grouper.finish()
    if grouper.num_keyless and report_keyless is not None:
        report_keyless(grouper.num_keyless, grouper.keyless_names)
    elif grouper.num_keyless:
        logger.warning(
            "members without a key belong to no sample",
            extra={"shard": name, "num_keyless": grouper.num_keyless, "examples": grouper.keyless_names},
        )
    if last is not None:
        yield _describe(last)


def _describe(sample: GroupedSample[_Found]) -> ScannedSample:
    members = tuple(ScannedMember(extension, *found) for extension, found in sample.members)
    return ScannedSample(sample.key, sample.offset, members)
