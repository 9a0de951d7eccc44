"""``stage status``."""

import click

from stager.commands.options import cache_dir_option, json_option, open_existing_cache


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
    from stager.overview import observe_cache, render_json

    layout = open_existing_cache(cache_dir)
    overviews = observe_cache(layout)
    if is_json:
        click.echo(render_json(overviews))
    else:
        click.echo("\n".join(overview.to_text() for overview in overviews) or "no dataset is staged here")
