"""``stage hold``."""

import click

from shardferry.console import Duration
from stager.commands.options import cache_dir_option, holder_option, log_options, open_existing_cache, start_log
from stager.config import DEFAULT_LEASE_TTL_SECONDS


@click.command("hold", context_settings={"allow_interspersed_args": False})
@cache_dir_option()
@holder_option
@click.option(
    "--lease-ttl",
    type=Duration(),
    default=DEFAULT_LEASE_TTL_SECONDS,
    show_default="15m",
    show_envvar=True,
    help="How long the dataset stays protected after a sudden end without a command.",
)
@log_options
@click.argument("dataset")
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
def command(
    cache_dir: str,
    holder: str,
    lease_ttl: float,
    verbose: bool,
    quiet: bool,
    dataset: str,
    program: tuple[str, ...],
) -> None:
    """Hold the staged DATASET, so that nothing evicts it: for training code that does not use our loaders.

    With a COMMAND, this program becomes it: signals and exit code are the command's own, and the dataset is held until
    the last of its processes ends. Without one, it holds the dataset until SIGTERM, and then gives it back: a sidecar.
    A cache that is mounted read-only will do. DATASET is an id (8 digits or more), its directory, or a link to that.

    \b
    Examples:
      stage hold --cache-dir /nvme/cache /data/current -- python train.py
      stage hold --cache-dir /nvme/cache 4f1c09aa

    \b
    Exit codes: those of the command; 0 when stopped without one, 64 the command cannot be run, 66 no such dataset in
    the cache, 2 usage.
    """  # noqa: D301 (click reads the backspace)
    from stager.find import find_staged
    from stager.hold import clean_quietly, hold_until_stopped, run_held
    from stager.limits import SpaceLimits

    start_log(verbose=verbose, quiet=quiet)
    layout = open_existing_cache(cache_dir)
    dataset_id = find_staged(layout, dataset)
    if program[:1] == ("--",):  # parsing ended at DATASET already
        program = program[1:]
    if program:
        run_held(layout, dataset_id, holder, lease_ttl, program)
    hold_until_stopped(layout, dataset_id, holder, lease_ttl)
    clean_quietly(layout, SpaceLimits(), 1.0)
