"""``stage status``."""

import click

from stager.commands.options import cache_dir_option, json_option, open_existing_cache


@click.command("status")
@cache_dir_option()
@json_option()
def command(cache_dir: str, is_json: bool) -> None:
    """Show what the cache holds: datasets, how complete they are, who protects them, and where the bytes are.

    \b
    Examples:
      stage status --cache-dir /nvme/cache
      stage status --cache-dir /nvme/cache --json
    """  # noqa: D301 (click reads the backspace)
    import json

    from stager.overview import observe_cache
    from stager.totals import dataset_facts, render_dataset, render_totals, total_facts
    from stager.usage import observe_usage

    layout = open_existing_cache(cache_dir)
    overviews = observe_cache(layout)
    usage = observe_usage(layout)
    rooms = {dataset.dataset_id: dataset for dataset in usage.datasets}
    if is_json:
        facts = [
            {
                **overview.as_json(),
                **(dataset_facts(rooms[overview.dataset_id]) if overview.dataset_id in rooms else {}),
            }
            for overview in overviews
        ]
        click.echo(json.dumps({"datasets": facts, "cache": total_facts(usage)}))
        return
    for overview in overviews:
        click.echo(overview.to_text())
        if overview.dataset_id in rooms:
            click.echo(render_dataset(rooms[overview.dataset_id]))
    if not overviews:
        click.echo("no dataset is staged here")
    click.echo(render_totals(usage))
