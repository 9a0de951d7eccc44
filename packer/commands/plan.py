"""``pack plan``: the options of ``pack build`` that shape a plan, and what will read the result."""

import click

from packer.cli import build_command
from packer.cli_options import cluster_options

_ONLY_FOR_BUILDING = frozenset({"overwrite", "dry_run"})


@click.command("plan", context_settings=build_command.context_settings)
@click.argument("source", type=click.Path(path_type=str, readable=False))
@click.argument("destination", type=click.Path(path_type=str, readable=False), default="", metavar="[DESTINATION]")
@cluster_options
@click.pass_context
def command(context: click.Context, /, **shared: object) -> None:
    """Show what `pack build` would do with the files below SOURCE; write nothing.

    Samples, extensions and sizes, what is left out and which samples are incomplete, what the shards will take, how
    well their order is mixed, and advice. With DESTINATION also whether there is room; with --nodes, --gpus and
    --workers the size and number of shards that suit the cluster.
    """
    context.invoke(build_command, **shared, dry_run=True)


command.params += [
    parameter
    for parameter in build_command.params
    if isinstance(parameter, click.Option) and parameter.name not in _ONLY_FOR_BUILDING
]
