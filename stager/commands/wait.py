"""``stage wait``."""

from functools import partial

import click

from shardferry.console import Duration
from stager.commands.options import (
    absolute_cache_dir,
    cache_dir_option,
    holder_option,
    json_option,
    log_options,
    start_log,
    termination_log_option,
)
from stager.commands.ready import ready_options

DEFAULT_DEADLINE_SECONDS = 3600.0


@click.command("wait")
@cache_dir_option()
@ready_options
@click.option(
    "--deadline",
    type=Duration(),
    default=DEFAULT_DEADLINE_SECONDS,
    show_default="1h",
    show_envvar=True,
    help="How long to wait at most; then it ends with 75.",
)
@holder_option
@termination_log_option
@json_option()
@log_options
def command(
    cache_dir: str,
    min_shards: int | None,
    min_bytes: int | None,
    deadline: float,
    holder: str,
    termination_log: str,
    is_json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Wait until a `stage serve` with the same holder has brought enough for training to start.

    Without --min-shards and --min-bytes, what `stage serve` was told counts. When it has given up, this ends with the
    exit code of its error.

    \b
    Examples:
      stage wait --cache-dir /nvme/cache
      stage wait --cache-dir /nvme/cache --min-shards 8 --min-bytes 4GiB --deadline 30m

    \b
    Exit codes: 0 ready, 75 deadline passed, 130 and 143 stopped, 2 usage, 78 cache of a newer release; all others are
    those of the stage serve that failed.
    """  # noqa: D301 (click reads the backspace)
    from stager.last_words import last_words, leave, write_last_words

    start_log(verbose=verbose, quiet=quiet)
    with last_words(termination_log):
        from stager.readiness import Minimum
        from stager.report import render_ready
        from stager.wait import describe, wait_for_stager

        if deadline <= 0:
            raise click.BadParameter("the deadline must lie in the future", param_hint="--deadline")
        minimum = None if min_shards is None and min_bytes is None else Minimum(min_shards, min_bytes)
        cache_dir = absolute_cache_dir(cache_dir)
        on_stuck = partial(leave, termination_log=termination_log, cache_dir=cache_dir)
        waited = wait_for_stager(cache_dir, holder, minimum, deadline, on_stuck)
        write_last_words(termination_log, render_ready(waited.progress, waited.seconds))
    click.echo(waited.progress.to_json().decode(), nl=False) if is_json else click.echo(describe(waited))
