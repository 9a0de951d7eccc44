"""``stage run``."""

from functools import partial

import click

from shardferry.console import Duration
from stager.commands.options import json_option, log_options, start_log, termination_log_option
from stager.commands.staging import StagingOptions, staging_options


@click.command("run")
@staging_options
@click.option(
    "--without-manifest",
    is_flag=True,
    show_envvar=True,
    help="Stage shards of others: the files in SRC that are shards by their names. They are hashed on the way, and get "
    "indexes and a manifest in the cache.",
)
@click.option(
    "--deadline",
    type=Duration(),
    show_envvar=True,
    help="Most time that this may take; then it ends with 75 and keeps what it has, also when the source hangs.",
)
@termination_log_option
@json_option("Print the report as one JSON object.")
@log_options
def command(
    staging: StagingOptions,
    without_manifest: bool,
    deadline: float | None,
    termination_log: str,
    is_json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Stage the dataset SRC into the cache and print where it lies.

    SRC is the place of a published dataset (the one with manifest.json): a path, for instance on an NFS or CephFS
    mount, or a URL: s3:// for AWS, Ceph RGW and anything compatible, https://, or whatever fsspec has a driver for.
    Credentials come from where AWS programs look for them. Every block is verified before it is written, and only
    complete, verified shards get their final names.

    \b
    Examples:
      stage run /mnt/nfs/imagenet --cache-dir /nvme/cache
      stage run file:///mnt/cephfs/coco --cache-dir /nvme/cache --link /data/coco
      stage run /mnt/nfs/imagenet --cache-dir /nvme/cache --verify full --json
      stage run s3://datasets/imagenet --cache-dir /nvme/cache --endpoint-url https://rgw.example
      stage run /mnt/nfs/imagenet --cache-dir /nvme/cache --select split=train --select rank=0/4
      STAGE_CACHE_DIR=/nvme/cache stage run /mnt/nfs/imagenet --deadline 30m

    \b
    Exit codes: 0 staged, 2 usage, 65 source damaged, 66 source missing or nothing selected, 69 source not available,
    73 cache not writable, 74 local disk failed, 75 deadline passed, 77 source denied, 78 cache on an unsuitable
    filesystem or of a newer release, 79 no space, 130 and 143 stopped (run it again to go on).
    """  # noqa: D301 (click reads the backspace)
    from stager.last_words import last_words, leave, write_last_words
    from stager.supervisor import supervise

    start_log(verbose=verbose, quiet=quiet)
    with last_words(termination_log):
        from stager.report import render_last_words

        config = staging.to_config(without_manifest=without_manifest, deadline_seconds=deadline)
        on_stuck = partial(leave, termination_log=termination_log, cache_dir=config.cache_dir)
        supervise(on_stuck, deadline)
        from stager.run import run_stage

        report = run_stage(config, on_stuck)
        write_last_words(termination_log, render_last_words(report))
    click.echo(report.to_json() if is_json else report.to_text())
