"""Which split a sample belongs to; pure.

Four ways: all samples in one split, the top directories of the source are the splits, shares by a seeded hash of the
key, or lists. A share is stable: adding files never moves a sample that was there before to another split.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shards.names import check_split_name

MAX_SPLITS = 1000
"""More top directories than this are classes or users, not splits."""

_SHARE_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class OneSplit:
    """Every sample belongs to the same split."""

    name: str

    @property
    def text(self) -> str:
        """As on the command line."""
        return self.name


@dataclass(frozen=True, slots=True)
class SplitByDirectory:
    """The first directory of a source file's path is its split."""

    @property
    def text(self) -> str:
        """As on the command line."""
        return "by-dir"


@dataclass(frozen=True, slots=True)
class SplitByShare:
    """Each split gets a share of the samples, chosen by a seeded hash of the key."""

    shares: tuple[tuple[str, float], ...]
    """(split, share) with shares that sum to 1."""
    seed: int = 0

    @property
    def text(self) -> str:
        """As on the command line."""
        return ",".join(f"{name}={share:g}" for name, share in self.shares)

    def number_of(self, key: str) -> int:
        """Place of the sample's split in :attr:`shares`."""
        point = keyed_hash(key, self.seed, purpose=b"split") / 2**64
        for number, (_, share) in enumerate(self.shares):
            point -= share
            if point < 0:
                return number
        return len(self.shares) - 1


@dataclass(frozen=True, slots=True)
class SplitByList:
    """Lists say which sample belongs to which split; made by :mod:`packer.split_lists`."""

    names: tuple[str, ...]
    """Ascending."""
    splits_of: Mapping[str, tuple[int, ...]]
    """Key, or path of a file of the sample → places in :attr:`names`; more than one is a contradiction."""
    digest: str
    """Of what the lists say."""

    @property
    def text(self) -> str:
        """What is recorded: which files the lists were in does not shape the data."""
        return f"list:{self.digest}"


SplitRule: TypeAlias = OneSplit | SplitByDirectory | SplitByShare | SplitByList


def parse_split(text: str, *, seed: int = 0) -> OneSplit | SplitByDirectory | SplitByShare:
    """Make a rule from ``NAME``, ``by-dir`` or ``train=0.9,val=0.1``.

    Args:
        text: the rule.
        seed: for shares.

    Raises:
        ValueError: the text is none of these, a name cannot be part of a file name, or shares do not sum to 1.
    """
    if text == "by-dir":
        return SplitByDirectory()
    if "=" not in text:
        check_split_name(text)
        return OneSplit(text)
    shares = tuple(_parse_share(part) for part in text.split(","))
    names = [name for name, _ in shares]
    if len({name.lower() for name in names}) < len(names):
        raise ValueError(f"a split is named twice in {text!r}")
    total = math.fsum(share for _, share in shares)
    if abs(total - 1) > _SHARE_TOLERANCE:
        raise ValueError(f"the shares in {text!r} sum to {total:g}, not 1")
    return SplitByShare(shares, seed)


def keyed_hash(key: str, seed: int, *, purpose: bytes) -> int:
    """64-bit hash of a key, the same on every machine and with every release of Python.

    Args:
        key: any text; lone surrogates are taken as the bytes they stand for.
        seed: another seed gives another, independent hash.
        purpose: at most 16 bytes; hashes for different purposes are independent.
    """
    return int.from_bytes(keyed_hashes([key.encode("utf-8", "surrogateescape")], seed, purpose=purpose), "little")


def keyed_hashes(keys: Sequence[bytes | bytearray], seed: int, *, purpose: bytes) -> bytes:
    """The hashes of many keys, given in UTF-8: 8 bytes for each, little-endian; see :func:`keyed_hash`."""
    salt = (seed & (2**64 - 1)).to_bytes(8, "little")
    blake2b = hashlib.blake2b
    return b"".join([blake2b(key, digest_size=8, person=purpose, salt=salt).digest() for key in keys])


def _parse_share(part: str) -> tuple[str, float]:
    name, _, number = part.partition("=")
    check_split_name(name.strip())
    try:
        share = float(number)
    except ValueError:
        raise ValueError(f"{number!r} in {part!r} is not a share; write for instance train=0.9,val=0.1") from None
    if not 0 < share <= 1:
        raise ValueError(f"the share in {part!r} must be more than 0 and at most 1")
    return name.strip(), share
