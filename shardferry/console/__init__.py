"""What the command lines of ``pack``, ``stage`` and ``load`` share: value types, log, progress, exit codes.

A program's ``cli`` module looks like this::

    @click.group()
    def cli() -> None: ...

    @cli.command()
    @click.option("--shard-size", type=ByteSize())
    def build(shard_size: int) -> None: ...

    name_variables(build, "PACK")  # PACK_SHARD_SIZE

    def main() -> None:
        run_main(cli, "pack")

Importing this package loads click and the standard library, nothing else: ``--help`` must be quick.
"""

from shardferry.console.environment import name_variables
from shardferry.console.exits import EXIT_CODES, exit_code_of, run_command, run_main
from shardferry.console.logs import HumanFormatter, JsonFormatter, setup_logging
from shardferry.console.progress import Progress
from shardferry.console.units import (
    ByteSize,
    Duration,
    format_bytes,
    format_count,
    format_seconds,
    parse_bytes,
    parse_seconds,
)

__all__ = [
    "EXIT_CODES",
    "ByteSize",
    "Duration",
    "HumanFormatter",
    "JsonFormatter",
    "Progress",
    "exit_code_of",
    "format_bytes",
    "format_count",
    "format_seconds",
    "name_variables",
    "parse_bytes",
    "parse_seconds",
    "run_command",
    "run_main",
    "setup_logging",
]
