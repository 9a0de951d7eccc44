"""The examples of the help texts are commands that the programs understand."""

import importlib
import re
import shlex

import click
import pytest


def examples_of(program: str, command: click.Command) -> list[str]:
    found = [
        re.split(r"\s{2,}|\s>\s", line.strip())[0]  # without its remark, and what is the shell's
        for line in f"{command.help}\n{command.epilog}".splitlines()
        if re.match(rf"\s*{program} [a-z]", line)
    ]
    if isinstance(command, click.Group):
        context = click.Context(command)
        commands = [command.get_command(context, name) for name in command.list_commands(context)]
        return found + [line for inner in commands if inner for line in examples_of(program, inner)]
    return found


@pytest.mark.parametrize(("program", "module"), [("pack", "packer"), ("stage", "stager"), ("load", "loaders")])
def test_examples_of_the_help_texts_are_understood(program: str, module: str) -> None:
    cli = importlib.import_module(f"{module}.cli").cli
    examples = [line for line in sorted(set(examples_of(program, cli))) if len(line.split()) > 2]
    assert examples
    for line in examples:
        _, name, *words = shlex.split(line)
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, line
        try:
            command.make_context(name, words)
        except click.UsageError as error:
            pytest.fail(f"{line}: {error.format_message()}")
