"""``stage status``."""

import click

from stager.commands.options import absolute_cache_dir, cache_dir_option, json_option


@click.command("status")
@cache_dir_option()
@json_option()
def command(cache_dir: str, is_json: bool) -> None:
    """Show what the cache holds: datasets, how complete they are, and who protects them.

    \b
    Examples:
      stage status --cache-dir /nvme/cache
      stage status --cache-dir /nvme/cache --json
    """  # noqa: D301 (click reads the backspace)
    from shards.cache import CacheLayout
    from shards.errors import NotStagedError, printable
    from stager.overview import observe_cache, render_json
    from stager.prepare import check_cache_version

    layout = CacheLayout(absolute_cache_dir(cache_dir))
    try:
        check_cache_version(layout)
    except FileNotFoundError as error:
        raise NotStagedError(f"{printable(layout.root)} is no Shardferry cache: nothing was staged there") from error
    overviews = observe_cache(layout)
    if is_json:
        click.echo(render_json(overviews))
    else:
        click.echo("\n".join(overview.to_text() for overview in overviews) or "no dataset is staged here")
