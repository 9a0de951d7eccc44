"""Options that several commands of ``stage`` have, and what they mean."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shardferry.console import setup_logging
from stager.config import DEFAULT_TERMINATION_LOG, choose_holder, clean_holder

if TYPE_CHECKING:
    from shards.cache import CacheLayout

Function = TypeVar("Function", bound=Callable[..., Any])


def cache_dir_option(text: str = "Root of this node's cache.") -> Callable[[Function], Function]:
    """``--cache-dir``; hand its value to :func:`absolute_cache_dir`.

    Args:
        text: help.
    """
    return click.option("--cache-dir", required=True, type=click.Path(file_okay=False), show_envvar=True, help=text)


def json_option(text: str = "Print one JSON object.") -> Callable[[Function], Function]:
    """``--json``, as ``is_json``.

    Args:
        text: help.
    """
    return click.option("--json", "is_json", is_flag=True, help=text)


def log_options(function: Function) -> Function:
    """``--verbose`` and ``--quiet``; hand their values to :func:`start_log`."""
    quiet = click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors only, show no progress.")
    verbose = click.option("-v", "--verbose", is_flag=True, help="Log more.")
    return verbose(quiet(function))


termination_log_option = click.option(
    "--termination-log",
    type=click.Path(),
    default=DEFAULT_TERMINATION_LOG,
    show_default=True,
    show_envvar=True,
    help="File for the last words, one line of JSON; only written when it exists.",
)
"""``--termination-log``; hand its value to :func:`stager.last_words.last_words`."""


def _choose_holder(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    return clean_holder(value) if value else choose_holder(os.environ, os.uname().nodename, os.geteuid())


holder_option = click.option(
    "--holder",
    show_envvar=True,
    callback=_choose_holder,
    help="Whom the dataset is protected for. Default: the pod (POD_UID), the Slurm job, or this user.",
)
"""``--holder``, a name that can be that of a file."""


def absolute_cache_dir(path: str) -> str:
    """Give the cache's root as an absolute path.

    Raises:
        click.BadParameter: it is empty.
    """
    if not path:  # an unset variable in a script; the current directory is not what was meant
        raise click.BadParameter("the path is empty", param_hint="--cache-dir")
    return os.path.abspath(path)


def open_existing_cache(cache_dir: str) -> "CacheLayout":
    """Give the layout of a cache that is there.

    Raises:
        click.BadParameter: the path is empty.
        NotStagedError: nothing is there.
        UnsupportedEnvironmentError: a newer release made it, or it is something else.
    """
    from shards.cache import CacheLayout
    from shards.errors import NotStagedError, printable
    from stager.prepare import check_cache_version

    layout = CacheLayout(absolute_cache_dir(cache_dir))
    try:
        check_cache_version(layout)
    except FileNotFoundError as error:
        raise NotStagedError(f"{printable(layout.root)} is no Shardferry cache: nothing was staged there") from error
    return layout


def start_log(*, verbose: bool, quiet: bool) -> None:
    """Log as the flags say.

    Raises:
        click.UsageError: both flags are given.
    """
    if verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude each other")
    setup_logging(verbose=verbose, quiet=quiet)
