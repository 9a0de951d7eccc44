"""``stage gc``."""

import click

from stager.commands.options import cache_dir_option, json_option, log_options, open_existing_cache, start_log
from stager.commands.space import SpaceOptions, space_options


@click.command("gc")
@cache_dir_option()
@space_options
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Show what would be evicted, change nothing.")
@json_option()
@log_options
def command(cache_dir: str, space: SpaceOptions, is_dry_run: bool, is_json: bool, verbose: bool, quiet: bool) -> None:
    """Clean the cache once: leftovers of what was killed, datasets to be deleted, and what is above the limits.

    Datasets that somebody protects, that were used a short while ago, or that the stager did not make always stay.

    \b
    Examples:
      stage gc --cache-dir /nvme/cache
      stage gc --cache-dir /nvme/cache --quota 2TiB --dry-run
      stage gc --cache-dir /nvme/cache --min-free-bytes 20% --json
    """  # noqa: D301 (click reads the backspace)
    from stager.cleaning_report import render_json, render_text
    from stager.prepare import explain_not_writable
    from stager.reclaim import clean, hold_gc_lock
    from stager.usage import observe_usage

    start_log(verbose=verbose, quiet=quiet)
    layout = open_existing_cache(cache_dir)
    try:
        limits = space.to_limits(layout.root)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if is_dry_run:
        report = clean(layout, limits, is_dry_run=True)
    else:
        with explain_not_writable(layout.root), hold_gc_lock(layout):
            report = clean(layout, limits)
    usage = observe_usage(layout)
    click.echo(render_json(report, usage, limits) if is_json else render_text(report, usage, limits))
