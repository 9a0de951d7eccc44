"""Options that say when training may start: of ``stage serve`` and ``stage wait``."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shardferry.console import ByteSize

Function = TypeVar("Function", bound=Callable[..., Any])


def ready_options(function: Function) -> Function:
    """``--min-shards`` and ``--min-bytes``."""
    num_bytes = click.option(
        "--min-bytes",
        type=ByteSize(),
        show_envvar=True,
        help="Training may start when this much is there, without a gap from the first shard that it reads.",
    )
    num_shards = click.option(
        "--min-shards",
        type=click.IntRange(1),
        show_envvar=True,
        help="Training may start when so many shards are there, counted in the same way. With both, both must be; with "
        "none, everything.",
    )
    return num_shards(num_bytes(function))
