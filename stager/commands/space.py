"""Options that say what the cache may take; they come to the command as one ``space`` value."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from shardferry.console import ByteSize, Duration
from shardferry.console.units import parse_bytes
from stager.limits import (
    DEFAULT_HIGH_WATERMARK,
    DEFAULT_LOW_WATERMARK,
    DEFAULT_MIN_IDLE_SECONDS,
    Floor,
    SpaceLimits,
)

if TYPE_CHECKING:
    _ShareType = click.ParamType[float]
    _FloorType = click.ParamType[Floor]
else:
    # click before 8.4 has no generic ParamType
    _ShareType = _FloorType = click.ParamType


class Percent(_ShareType):
    """Command line value in percent, as a share: ``80%``."""

    name = "percent"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn text, or a default that is a share already, into a share."""
        if isinstance(value, float):
            return value
        share = _parse_share(str(value))
        if share is None:
            self.fail(f"{value!r} is no percentage; write for instance 80%", param, ctx)
        return share


class FloorType(_FloorType):
    """Command line value of what stays free: a size or count, or a percentage of the disk's."""

    def __init__(self, name: str, parse: Callable[[str], int]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Floor:
        """Turn text, or a default that is one already, into a floor."""
        if isinstance(value, Floor):
            return value
        share = _parse_share(str(value))
        if share is not None:
            return Floor(share=share)
        try:
            return Floor(self._parse(str(value)))
        except ValueError as error:
            self.fail(f"{error}, or a percentage of the disk such as 10%", param, ctx)


def _parse_share(text: str) -> float | None:
    number = text.strip().removesuffix("%").strip()
    if not text.strip().endswith("%") or not number.replace(".", "", 1).isdecimal():
        return None
    return float(number) / 100


def _parse_count(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is no count; write for instance 100000")
    return int(text)


_OPTIONS = (
    click.option(
        "--quota",
        type=ByteSize(),
        show_envvar=True,
        help="Most that the cache may take on disk, as du counts it. Never exceeded: room is reserved before the first "
        "byte.  [default: as much as the disk has]",
    ),
    click.option(
        "--high-watermark",
        type=Percent(),
        default=DEFAULT_HIGH_WATERMARK,
        show_default="90%",
        show_envvar=True,
        help="Part of what the cache may take above which cleaning evicts unused datasets.",
    ),
    click.option(
        "--low-watermark",
        type=Percent(),
        default=DEFAULT_LOW_WATERMARK,
        show_default="80%",
        show_envvar=True,
        help="Part at which it stops.",
    ),
    click.option(
        "--min-free-bytes",
        type=FloorType("size or percent", parse_bytes),
        default=Floor(),
        show_default="0",
        show_envvar=True,
        help="What stays free on the disk, whoever fills it.",
    ),
    click.option(
        "--min-free-inodes",
        type=FloorType("count or percent", _parse_count),
        default=Floor(),
        show_default="0",
        show_envvar=True,
        help="The same for inodes.",
    ),
    click.option(
        "--kubelet-disk",
        type=click.Choice(["auto", "nodefs", "imagefs", "none"]),
        default="auto",
        show_default=True,
        show_envvar=True,
        help="What the kubelet keeps on the cache's disk. So much then stays free that it never evicts pods for it: "
        "15% (nodefs) or 20% (imagefs) of the bytes and 10% of the inodes.",
    ),
    click.option(
        "--min-idle",
        type=Duration(),
        default=DEFAULT_MIN_IDLE_SECONDS,
        show_default="10m",
        show_envvar=True,
        help="A dataset is not evicted for this long after its last use.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceOptions:
    """The values of the options, as they were given."""

    quota: int | None
    high_watermark: float
    low_watermark: float
    min_free_bytes: Floor
    min_free_inodes: Floor
    kubelet_disk: str
    min_idle: float

    def to_limits(self, cache_dir: str) -> SpaceLimits:
        """Check the values together, and find out whether the kubelet uses the disk.

        Args:
            cache_dir: root of the cache.

        Raises:
            ValueError: they cannot be.
        """
        from stager.kubelet import KubeletDisk, find_kubelet_disk, floors_of

        disk = KubeletDisk(self.kubelet_disk)
        if disk is KubeletDisk.AUTO:
            disk = find_kubelet_disk(cache_dir, os.environ)
        min_bytes, min_inodes = floors_of(disk)
        return SpaceLimits(
            quota_bytes=self.quota,
            high_watermark=self.high_watermark,
            low_watermark=self.low_watermark,
            min_free_bytes=self.min_free_bytes.at_least(min_bytes),
            min_free_inodes=self.min_free_inodes.at_least(min_inodes),
            min_idle_seconds=self.min_idle,
        )


def space_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets a ``space`` argument."""

    @functools.wraps(command)
    def with_space(**values: Any) -> Any:
        names = SpaceOptions.__dataclass_fields__
        space = SpaceOptions(**{name: values.pop(name) for name in names})
        return command(**values, space=space)

    decorated: Callable[..., Any] = with_space
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
