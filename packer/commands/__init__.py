"""Commands of ``pack`` in modules of their own, imported when they are asked for, and what commands share."""

import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from shardferry.console import setup_logging

if TYPE_CHECKING:
    from shards.strict_json import JsonValue

MODULES = {
    "adopt": "packer.commands.adopt",
    "cat": "packer.commands.cat",
    "dali-index": "packer.commands.dali_index",
    "extract": "packer.commands.extract",
    "inspect": "packer.commands.inspect",
    "ls": "packer.commands.ls",
    "plan": "packer.commands.plan",
    "verify": "packer.commands.verify",
}
"""Name of a command → module that has it as ``command``."""

_DRIVERS = ("aiobotocore", "botocore", "fsspec", "s3fs")
"""Loggers of libraries that tell at length how they found their settings."""


class MoreCommands(click.Group):
    """A group that also has the commands of :data:`MODULES`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all names, ascending."""
        return sorted({*super().list_commands(ctx), *MODULES})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and give the command."""
        if cmd_name not in MODULES:
            return super().get_command(ctx, cmd_name)
        command: click.Command = importlib.import_module(MODULES[cmd_name]).command
        return command


def set_up_log(*, verbose: bool, quiet: bool) -> None:
    """Log as the flags say."""
    if verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude each other")
    setup_logging(verbose=verbose, quiet=quiet)
    if not verbose:
        for name in _DRIVERS:
            logging.getLogger(name).setLevel(logging.WARNING)


def show(as_json: bool, json_value: "Callable[[], dict[str, JsonValue]]", text: Callable[[], str]) -> None:
    """Write the result to stdout, as one JSON object or as text."""
    if not as_json:
        click.echo(text())
        return
    from shards.strict_json import render_json

    click.echo(render_json(json_value()))
