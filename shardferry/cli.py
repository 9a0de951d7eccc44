"""The ``shardferry`` command: ``pack``, ``stage`` and ``load`` under one name.

Rule: a program is imported only when it is called, so that ``shardferry --help`` is as quick as the rest.
"""

import importlib

import click

from shardferry import __version__
from shardferry.console import run_main

PROGRAMS = {
    "pack": ("packer.cli", "Pack a tree of small files into shards, verify and inspect them."),
    "stage": ("stager.cli", "Bring shards onto this node's disk, verified."),
    "load": ("loaders.cli", "Look at a dataset as a training job will read it."),
}
"""Program name to its module and its one-line summary, written here because ``--help`` must not import it."""


class LazyGroup(click.Group):
    """A group whose commands live in modules that are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the programs in the order of the work."""
        return list(PROGRAMS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the program and give its click group."""
        if cmd_name not in PROGRAMS:
            return None
        module_name, _ = PROGRAMS[cmd_name]
        command: click.Command = importlib.import_module(module_name).cli
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries without importing a program."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in PROGRAMS.items()])


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="shardferry")
def cli() -> None:
    """Pack small-file datasets into shards, stage them onto this node, load them into training.

    The three programs are also installed under their own names: pack, stage and load.
    """


def main() -> None:
    """Run the program; the console script calls this."""
    run_main(cli, "shardferry")
