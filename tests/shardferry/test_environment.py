"""Options and environment variables have the same names."""

import click
from click.testing import CliRunner

from loaders.cli import cli as load_cli
from packer.cli import cli as pack_cli
from shardferry.console import name_variables
from stager.cli import cli as stage_cli


def make_command():
    @click.command()
    @click.version_option("9", prog_name="x")
    @click.option("-f", "--format", "format_name", default="tar")
    @click.option("--cache-dir", envvar="STAGE_CACHE_DIR", default="nowhere")
    def show(format_name, cache_dir):
        click.echo(f"{format_name} {cache_dir}")

    return name_variables(show, "PACK")


def test_variable_is_named_after_the_flag_and_the_flag_wins():
    runner = CliRunner(env={"PACK_FORMAT": "tfrecord", "STAGE_CACHE_DIR": "/cache", "PACK_VERSION": "1"})
    assert runner.invoke(make_command(), []).output == "tfrecord /cache\n"
    assert runner.invoke(make_command(), ["-f", "tar"]).output == "tar /cache\n"


def test_variables_of_the_programs_are_those_of_their_flags():
    for group, name, prefix in (
        (pack_cli, "build", "PACK"),
        (load_cli, "inspect", "LOAD"),
        *((stage_cli, name, "STAGE") for name in stage_cli.list_commands(click.Context(stage_cli))),
    ):
        command = group.get_command(click.Context(group), name)
        for option in command.params:
            if not isinstance(option, click.Option):
                continue
            flag = max(option.opts, key=len).removeprefix("--").replace("-", "_").upper()
            known = {f"{prefix}_{flag}", f"STAGE_{flag}"}
            variables = option.envvar or f"{prefix}_{option.name.upper()}"
            # others after the first are those of other programs, such as AWS_REGION
            variable = variables if isinstance(variables, str) else variables[0]
            assert variable in known, option
