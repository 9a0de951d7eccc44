"""``stage release``."""

import json

import click

from stager.commands.options import (
    cache_dir_option,
    holder_option,
    json_option,
    log_options,
    open_existing_cache,
    start_log,
)
from stager.commands.space import SpaceOptions, space_options


@click.command("release")
@click.argument("datasets", nargs=-1, metavar="[DATASET…]")
@cache_dir_option()
@holder_option
@click.option(
    "--retain",
    type=click.Choice(["lru", "delete"]),
    show_envvar=True,
    help="What becomes of the datasets when nobody else protects them: lru keeps them until their room is needed.  "
    "[default: what staging was told]",
)
@space_options
@json_option()
@log_options
def command(
    datasets: tuple[str, ...],
    cache_dir: str,
    holder: str,
    retain: str | None,
    space: SpaceOptions,
    is_json: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """End the protection of the holder's datasets (all, or each DATASET) now that its job is over; clean the cache.

    Nothing depends on it: protection ends by itself after its time. It gives room back earlier, for instance in the
    epilogue of a Slurm job.

    \b
    Examples:
      stage release --cache-dir /nvme/cache --holder slurm-4711
      stage release --cache-dir /nvme/cache --retain delete /data/current

    \b
    Exit codes: 0 released, or there was nothing to release, 66 no such dataset, 73 cache not writable, 75 a process of
    the holder still runs, 2 usage.
    """  # noqa: D301 (click reads the backspace)
    from stager.find import find_staged
    from stager.hold import clean_quietly, release_leases
    from stager.limits import Retain
    from stager.prepare import explain_not_writable

    start_log(verbose=verbose, quiet=quiet)
    layout = open_existing_cache(cache_dir)
    try:
        limits = space.to_limits(layout.root)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    dataset_ids = [find_staged(layout, text) for text in datasets] or None
    with explain_not_writable(layout.root):
        released = release_leases(layout, holder, dataset_ids, Retain(retain) if retain else None)
    clean_quietly(layout, limits, 60.0)
    if is_json:
        facts = [{"dataset_id": r.dataset_id, "holder": r.holder, "is_released": r.is_released} for r in released]
        click.echo(json.dumps({"leases": facts}))
    else:
        for one in released:
            state = "released" if one.is_released else "still in use: its process runs"
            click.echo(f"{one.dataset_id} {one.holder}: {state}")
        if not released:
            click.echo(f"{holder} protects nothing here")
    return 0 if all(one.is_released for one in released) else 75
