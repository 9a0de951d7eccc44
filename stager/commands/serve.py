"""``stage serve``."""

from functools import partial
from typing import TYPE_CHECKING

import click

from shardferry.console import ByteSize
from stager.commands.options import absolute_cache_dir, log_options, start_log, termination_log_option
from stager.commands.ready import ready_options
from stager.commands.staging import StagingOptions, staging_options

if TYPE_CHECKING:
    from shards.epoch_order import Shuffle

DEFAULT_WINDOW_SHARDS = 8
"""That of loaders."""


@click.command("serve")
@staging_options
@ready_options
@click.option(
    "--shuffle",
    type=click.Choice(["block", "none", "full"]),
    default="block",
    show_default=True,
    show_envvar=True,
    help="Order in which the loader will read, and shards are fetched. full needs everything before the first batch.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    show_envvar=True,
    help="The loader's seed.",
)
@click.option(
    "--epoch",
    type=click.IntRange(0, 2**31),
    default=0,
    show_default=True,
    show_envvar=True,
    help="Epoch that training begins with, from 0.",
)
@click.option(
    "--window-shards",
    type=click.IntRange(1, 2**20),
    default=DEFAULT_WINDOW_SHARDS,
    show_default=True,
    show_envvar=True,
    help="Among how many shards the loader shuffles with block.",
)
@click.option(
    "--window",
    type=ByteSize(1),
    show_envvar=True,
    help="Keep at most this much of the dataset: fetch ahead of the loader, drop what it has passed. For one split "
    "that is bigger than the disk.",
)
@click.option(
    "--listen",
    metavar="[HOST]:PORT",
    show_envvar=True,
    help="Answer /startupz, /readyz, /livez and /metrics there, for instance at :9464.",
)
@termination_log_option
@log_options
def command(
    staging: StagingOptions,
    min_shards: int | None,
    min_bytes: int | None,
    shuffle: "Shuffle",
    seed: int,
    epoch: int,
    window_shards: int,
    window: int | None,
    listen: str | None,
    termination_log: str,
    verbose: bool,
    quiet: bool,
) -> int:
    """Stage the dataset SRC while training starts, then keep it until SIGTERM.

    Shards come in the order in which the first epoch reads them: give the loader's --shuffle, --seed and
    --window-shards. `stage wait` holds training up until enough is there. What goes wrong does not end this program:
    what may pass is tried again, what will not is told to `stage wait` and to loaders.

    \b
    Examples:
      stage serve /mnt/nfs/imagenet --cache-dir /nvme/cache --min-shards 8 --listen :9464
      stage serve /mnt/nfs/laion --cache-dir /nvme/cache --select split=train --window 500GiB --seed 7

    \b
    Exit codes: 0 stopped by a signal after everything was there, 143 stopped before, 2 usage, 73 cache not writable,
    74 cannot listen, or another stager uses the holder's name, 78 cache on an unsuitable filesystem or of a newer
    release.
    """  # noqa: D301 (click reads the backspace)
    from stager.last_words import last_words, leave
    from stager.supervisor import supervise

    start_log(verbose=verbose, quiet=quiet)
    on_stuck = partial(leave, termination_log=termination_log, cache_dir=absolute_cache_dir(staging.cache_dir))
    supervise(on_stuck)  # before numpy is imported, which starts threads
    with last_words(termination_log):
        from shards.epoch_order import OrderSpec
        from stager.http import parse_address
        from stager.order import FetchOrder
        from stager.readiness import Minimum
        from stager.serve import ServeConfig, run_serve

        if window is not None and shuffle == "full":
            raise click.UsageError("--window and --shuffle full exclude each other: full needs all shards at once")
        order = FetchOrder(OrderSpec(shuffle=shuffle, seed=seed, window_shards=window_shards), epoch)
        try:
            address = parse_address(listen) if listen else None
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--listen") from error
        config = ServeConfig(
            staging.to_config(order=order, window_bytes=window), Minimum(min_shards, min_bytes), address
        )
        is_staged = run_serve(config, on_stuck)
    return 0 if is_staged else 143
