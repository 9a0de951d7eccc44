"""``stage run``."""

import os

import click

from shardferry.console import Duration
from stager.commands.options import (
    absolute_cache_dir,
    cache_dir_option,
    json_option,
    log_options,
    start_log,
    termination_log_option,
)
from stager.config import DEFAULT_CONNECTIONS, DEFAULT_LEASE_TTL_SECONDS, choose_holder, clean_holder


@click.command("run")
@click.argument("source", metavar="SRC", envvar="STORAGE_URI")
@cache_dir_option("Root of this node's cache, on a local disk; made when it is not there.")
@click.option(
    "--connections",
    type=click.IntRange(1, 256),
    default=DEFAULT_CONNECTIONS,
    show_default=True,
    show_envvar=True,
    help="Ranges read at the same time, over all shards. Memory is this many blocks of 8 MiB.",
)
@click.option(
    "--verify",
    type=click.Choice(["size", "full"]),
    default="size",
    show_default=True,
    show_envvar=True,
    help="What is checked of files that are staged already: that they look as they did when they were committed, or "
    "every byte. What is fetched is always verified.",
)
@click.option(
    "--link",
    "links",
    type=click.Path(),
    multiple=True,
    envvar="STAGE_LINK",
    show_envvar=True,
    help="Symbolic link to point at the staged dataset: a stable path for training code. May be repeated; in the "
    "variable, paths are separated by colons.",
)
@click.option(
    "--lease-ttl",
    type=Duration(),
    default=DEFAULT_LEASE_TTL_SECONDS,
    show_default="15m",
    show_envvar=True,
    help="How long the dataset stays protected after this program ends, for the trainer to start.",
)
@click.option(
    "--holder",
    show_envvar=True,
    help="Whom the dataset is protected for. Default: the pod (POD_UID), the Slurm job, or this user.",
)
@termination_log_option
@json_option("Print the report as one JSON object.")
@log_options
def command(
    source: str,
    cache_dir: str,
    connections: int,
    verify: str,
    links: tuple[str, ...],
    lease_ttl: float,
    holder: str | None,
    termination_log: str,
    is_json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Stage the dataset SRC into the cache and print where it lies.

    SRC is the directory of a published dataset (the one with manifest.json), as a path or as a file:// URL, for
    instance on an NFS or CephFS mount. Every block is verified before it is written, and only complete, verified
    shards get their final names.

    \b
    Examples:
      stage run /mnt/nfs/imagenet --cache-dir /nvme/cache
      stage run file:///mnt/cephfs/coco --cache-dir /nvme/cache --link /data/coco
      stage run /mnt/nfs/imagenet --cache-dir /nvme/cache --verify full --json
      STAGE_CACHE_DIR=/nvme/cache stage run /mnt/nfs/imagenet

    \b
    Exit codes: 0 staged, 2 usage, 65 source damaged, 66 source missing, 69 source not available, 73 cache not
    writable, 74 local disk failed, 77 source denied, 78 cache on an unsuitable filesystem or of a newer release,
    79 no space, 130 and 143 stopped (run it again to go on).
    """  # noqa: D301 (click reads the backspace)
    from stager.last_words import last_words, leave, write_last_words

    start_log(verbose=verbose, quiet=quiet)
    with last_words(termination_log):
        from stager.config import StageConfig, parse_source
        from stager.report import render_last_words
        from stager.run import run_stage
        from stager.verify import Verify

        try:
            source_dir = parse_source(source)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="SRC") from error
        try:
            config = StageConfig(
                source_dir=source_dir,
                cache_dir=absolute_cache_dir(cache_dir),
                connections=connections,
                verify=Verify(verify),
                links=links,
                lease_ttl_seconds=lease_ttl,
                holder=clean_holder(holder) if holder else choose_holder(os.environ, os.uname().nodename, os.geteuid()),
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        report = run_stage(config, lambda error: leave(error, termination_log))
        write_last_words(termination_log, render_last_words(report))
    click.echo(report.to_json() if is_json else report.to_text())
