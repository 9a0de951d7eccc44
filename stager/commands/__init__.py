"""The commands of ``stage``, one module each, imported when they are asked for.

To add one: write ``stager/commands/NAME.py`` with a click command called ``command``, and enter it in :data:`MODULES`.
Every option gets an environment variable of its own, named after its flag: ``--cache-dir`` is ``STAGE_CACHE_DIR``.
A module here imports click and the standard library; what does the work is imported when the command runs.
"""

import importlib

import click

from shardferry.console import name_variables

MODULES = {
    "run": "stager.commands.run",
    "serve": "stager.commands.serve",
    "wait": "stager.commands.wait",
    "hold": "stager.commands.hold",
    "release": "stager.commands.release",
    "status": "stager.commands.status",
    "doctor": "stager.commands.doctor",
    "verify": "stager.commands.verify",
    "gc": "stager.commands.gc",
    "janitor": "stager.commands.janitor",
}
"""Name of a command → module that has it as ``command``, in the order of ``stage --help``."""


class Commands(click.Group):
    """The group of the commands in :data:`MODULES`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names in the order of the table."""
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and give the command."""
        if cmd_name not in MODULES:
            return None
        command: click.Command = importlib.import_module(MODULES[cmd_name]).command
        return name_variables(command, "STAGE")
