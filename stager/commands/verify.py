"""``stage verify``."""

import click

from stager.commands.options import cache_dir_option, json_option, log_options, open_existing_cache, start_log


@click.command("verify")
@click.argument("datasets", nargs=-1, metavar="[DATASET_ID]...")
@cache_dir_option()
@click.option(
    "--quarantine",
    "is_quarantined",
    is_flag=True,
    help="Set bad files aside, so that nobody reads them and the next stage run fetches them again.",
)
@json_option()
@log_options
def command(
    datasets: tuple[str, ...], cache_dir: str, is_quarantined: bool, is_json: bool, verbose: bool, quiet: bool
) -> None:
    """Read all that is staged and compare it with the digests of the manifests.

    Without a DATASET_ID, all datasets of the cache are verified. Changes nothing without --quarantine, and works on a
    cache that is mounted read-only.

    \b
    Examples:
      stage verify --cache-dir /nvme/cache
      stage verify --cache-dir /nvme/cache --quarantine --json

    \b
    Exit codes: 0 all is right, 65 something is damaged, 66 no such dataset.
    """  # noqa: D301 (click reads the backspace)
    from stager.verification import raise_if_damaged, verify_cache

    start_log(verbose=verbose, quiet=quiet)
    layout = open_existing_cache(cache_dir)
    report = verify_cache(layout, datasets, is_quarantined=is_quarantined)
    if is_json:
        click.echo(report.to_json())
    raise_if_damaged(report)
    if not is_json:
        click.echo(report.to_text())
