"""The ``stage`` program: its group of commands (:mod:`stager.commands`) and its end."""

from typing import NoReturn

import click

from shardferry import __version__
from shardferry.console import run_main
from stager.commands import Commands


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stage")
def cli() -> None:
    """Bring the shards of a published dataset onto this node's disk, verified.

    All jobs of a node share one cache. Staging again costs nothing, and a run that was killed goes on where it
    stopped.

    \b
    Examples:
      stage doctor s3://datasets/imagenet --cache-dir /nvme/cache    is everything in place?
      stage run /mnt/nfs/imagenet --cache-dir /nvme/cache            before training
      stage serve /mnt/nfs/imagenet --cache-dir /nvme/cache          while training starts
      stage wait --cache-dir /nvme/cache --min-shards 8              until it may start
      stage hold --cache-dir /nvme/cache /data/current -- python train.py
      stage status --cache-dir /nvme/cache
    """  # noqa: D301 (click reads the backspace)


def main() -> NoReturn:
    """Run the program; the console script calls this."""
    try:
        run_main(cli, "stage")
    except SystemExit as end:
        from stager.stuck import has_stuck_threads, leave_now

        # the interpreter's own exit would wait for a thread that hangs in the kernel
        if has_stuck_threads():
            leave_now(end.code if isinstance(end.code, int) else 1)
        raise
