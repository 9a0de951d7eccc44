"""Options of the commands that bring a dataset, ``stage run`` and ``stage serve``; they come as one value."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from shardferry.console import Duration
from stager.commands.options import absolute_cache_dir, cache_dir_option, holder_option
from stager.commands.source import source_options
from stager.commands.space import SpaceOptions, space_options
from stager.config import DEFAULT_CONNECTIONS, DEFAULT_LEASE_TTL_SECONDS
from stager.remotes.options import RemoteOptions

if TYPE_CHECKING:
    from stager.config import StageConfig
    from stager.order import FetchOrder


def _find_group(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    import grp

    if value is None or value.isdecimal():
        return None if value is None else int(value)
    try:
        return grp.getgrnam(value).gr_gid
    except KeyError:
        raise click.BadParameter(f"there is no group {value!r} here; give its number", param=parameter) from None


_OPTIONS = (
    cache_dir_option("Root of this node's cache, on a local disk; made when it is not there."),
    click.option(
        "--select",
        "selections",
        multiple=True,
        metavar="WHAT",
        show_envvar=True,
        help="Shards that this node wants: split=NAME, a pattern of names such as 'train-0000*.tar', or its part among "
        "several nodes: rank=0/4, rank=auto/4 (number from JOB_COMPLETION_INDEX or SLURM_NODEID), rank=auto (Slurm: "
        "both). May be repeated, each narrows the others; splits and patterns among themselves add up. In the "
        "variable, they are separated by blanks.  [default: all]",
    ),
    click.option("--allow-empty", is_flag=True, help="A selection that matches no shard is no error."),
    click.option(
        "--connections",
        type=click.IntRange(1, 256),
        default=DEFAULT_CONNECTIONS,
        show_default=True,
        show_envvar=True,
        help="Ranges read at the same time, over all shards. Memory is this many blocks of 8 MiB.",
    ),
    click.option(
        "--verify",
        type=click.Choice(["size", "full"]),
        default="size",
        show_default=True,
        show_envvar=True,
        help="What is checked of files that are staged already: that they look as they did when they were committed, "
        "or every byte. What is fetched is always verified.",
    ),
    click.option(
        "--link",
        "links",
        type=click.Path(),
        multiple=True,
        show_envvar=True,
        help="Symbolic link to point at the staged dataset: a stable path for training code. May be repeated; in the "
        "variable, paths are separated by colons.",
    ),
    click.option(
        "--lease-ttl",
        type=Duration(),
        default=DEFAULT_LEASE_TTL_SECONDS,
        show_default="15m",
        show_envvar=True,
        help="How long the dataset stays protected after this program ends, for the trainer to start.",
    ),
    holder_option,
    click.option(
        "--retain",
        type=click.Choice(["lru", "delete"]),
        default="lru",
        show_default=True,
        show_envvar=True,
        help="What becomes of the dataset when nobody protects it any more: lru keeps it until its room is needed, "
        "delete lets the next cleaning remove it. The last run decides.",
    ),
    click.option(
        "--group",
        show_envvar=True,
        callback=_find_group,
        help="Name or number of a group whose members share the cache; its directories then have mode 2775. Give it "
        "from the first run on.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingOptions:
    """The values of the options, as they were given."""

    source: str
    remote: RemoteOptions
    cache_dir: str
    selections: tuple[str, ...]
    allow_empty: bool
    connections: int
    verify: str
    links: tuple[str, ...]
    lease_ttl: float
    holder: str
    retain: str
    group: int | None
    space: SpaceOptions

    def to_config(
        self,
        *,
        order: "FetchOrder | None" = None,
        window_bytes: int | None = None,
        without_manifest: bool = False,
        deadline_seconds: float | None = None,
    ) -> "StageConfig":
        """Check the values together.

        Args:
            order: in which shards are fetched.
            window_bytes: most that may be there at once.
            without_manifest: whether the source is taken for shards of others.
            deadline_seconds: most time that staging may take.

        Raises:
            click.UsageError: one of them cannot be.
        """
        from stager.config import StageConfig, parse_source
        from stager.limits import Retain
        from stager.select import parse_selection
        from stager.verify import Verify

        try:
            place = parse_source(self.source)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="SRC") from error
        try:
            selection = parse_selection(self.selections, os.environ)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--select") from error
        cache_dir = absolute_cache_dir(self.cache_dir)
        try:
            return StageConfig(
                source=place,
                remote=self.remote,
                cache_dir=cache_dir,
                holder=self.holder,
                connections=self.connections,
                verify=Verify(self.verify),
                links=self.links,
                lease_ttl_seconds=self.lease_ttl,
                selection=selection,
                allow_empty=self.allow_empty,
                order=order,
                window_bytes=window_bytes,
                without_manifest=without_manifest,
                deadline_seconds=deadline_seconds,
                space=self.space.to_limits(cache_dir),
                retain=Retain(self.retain),
                group_id=self.group,
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error


def staging_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add SRC and the options to a command, which gets a ``staging`` argument."""

    @functools.wraps(command)
    def with_staging(**values: Any) -> Any:
        names = StagingOptions.__dataclass_fields__
        staging = StagingOptions(**{name: values.pop(name) for name in names})
        return command(**values, staging=staging)

    decorated: Callable[..., Any] = source_options(space_options(with_staging))
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return click.argument("source", metavar="SRC", envvar="STORAGE_URI")(decorated)
