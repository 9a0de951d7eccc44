"""The Arrow schema of a shard index and the facts about the shard that its metadata hold.

One row a sample, no nulls anywhere: 16 bytes a sample, 20 a member, and the key. Three types have two forms, so that
common indexes are small and open in every tool while no name or size is impossible: ``key`` and ``extension`` are
``utf8``, or ``binary`` as soon as one of them is not UTF-8; ``size`` is ``uint32``, or ``uint64`` as soon as one member
has 4 GiB or more. ``docs/format.md`` is the normative text.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from shards.digests import DIGEST_BYTES, BlockDigests
from shards.errors import IndexFormatError, UnsupportedVersionError

INDEX_VERSION = 1
"""A higher number is refused; anything that older readers may ignore needs no new one."""

INDEX_SUFFIX = ".index.arrow"
"""The index of the shard ``NAME`` is the file ``NAME.index.arrow`` beside it."""

MAX_ROWS = 2**31 - 1
"""Most samples, members and key bytes of one shard: list and string offsets are signed 32-bit numbers."""

_VERSION_KEY = "shardferry.index"


def index_name(shard_name: str) -> str:
    """File name of the index of a shard."""
    return shard_name + INDEX_SUFFIX


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """What an index says about its shard as a whole."""

    shard_name: str
    format_name: str
    """Name in :data:`shards.formats.FORMATS`."""
    shard_bytes: int
    block_bytes: int
    block_digests: tuple[bytes, ...]
    """Raw digest of each block, in order."""

    @property
    def blocks(self) -> BlockDigests:
        """The same digests, with the shard digest over them."""
        return BlockDigests(self.shard_bytes, self.block_bytes, self.block_digests)

    def to_metadata(self) -> dict[str | bytes, str | bytes]:
        """The schema metadata, in the order in which they are written."""
        return {
            _VERSION_KEY: str(INDEX_VERSION),
            "format": self.format_name,
            "shard_name": self.shard_name.encode("utf-8", "surrogateescape"),
            "shard_bytes": str(self.shard_bytes),
            "block_bytes": str(self.block_bytes),
            "block_digests": b"".join(self.block_digests).hex(),
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None, *, name: str) -> "IndexHeader":
        """Read the schema metadata.

        Raises:
            IndexFormatError: something is missing or damaged.
            UnsupportedVersionError: a newer version wrote them.
        """
        values = {key.decode("utf-8", "replace"): value for key, value in (metadata or {}).items()}
        if _VERSION_KEY not in values:
            raise IndexFormatError(name, None, "an Arrow file, but no shard index")
        version = _read_count(values, _VERSION_KEY, name)
        if version > INDEX_VERSION:
            raise UnsupportedVersionError(name, str(version), str(INDEX_VERSION))
        shard_bytes = _read_count(values, "shard_bytes", name)
        block_bytes = _read_count(values, "block_bytes", name)
        try:
            joined = bytes.fromhex(values["block_digests"].decode("ascii"))
            header = cls(
                shard_name=values["shard_name"].decode("utf-8", "surrogateescape"),
                format_name=values["format"].decode("utf-8"),
                shard_bytes=shard_bytes,
                block_bytes=block_bytes,
                block_digests=tuple(
                    joined[start : start + DIGEST_BYTES] for start in range(0, len(joined), DIGEST_BYTES)
                ),
            )
            _ = header.blocks  # checks the number of digests
        except KeyError as error:
            raise IndexFormatError(name, None, f"the metadata lack {error.args[0]}") from error
        except ValueError as error:
            raise IndexFormatError(name, None, f"the metadata are damaged: {error}") from error
        return header


def index_schema(
    *, is_key_text: bool = True, is_extension_text: bool = True, is_size_small: bool = True
) -> "pa.Schema":
    """The schema in one of its forms, without metadata."""
    member = pa.struct(
        [
            pa.field("extension", pa.dictionary(pa.int32(), pa.utf8() if is_extension_text else pa.binary()), False),
            pa.field("offset", pa.uint64(), False),
            pa.field("size", pa.uint32() if is_size_small else pa.uint64(), False),
            pa.field("crc32c", pa.uint32(), False),
        ]
    )
    return pa.schema(
        [
            pa.field("key", pa.utf8() if is_key_text else pa.binary(), False),
            pa.field("offset", pa.uint64(), False),
            pa.field("members", pa.list_(pa.field("item", member, False)), False),
        ]
    )


def _read_count(values: Mapping[str, bytes], key: str, name: str) -> int:
    text = values.get(key, b"")
    if not text.isdigit() or len(text) > 18:  # of ASCII digits only: fits 63 bits
        raise IndexFormatError(name, None, f"the metadata {key} is {text[:40]!r}, not a count")
    return int(text)
