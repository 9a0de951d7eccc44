"""The command lines as data: every command of the programs with its parameters, for the documentation scripts."""

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

_DEFAULT = re.compile(r"[\[;]\s*default: ([^;\]]*)")

PROGRAMS = {"pack": "packer.cli", "stage": "stager.cli", "load": "loaders.cli"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedOption:
    """One option of a command."""

    names: tuple[str, ...]
    """``--verbose``, ``-v``: all spellings, ``--no-…`` included."""
    metavar: str
    """What follows the option; empty for a flag."""
    environment: str
    """Variable that gives its value; empty when there is none."""
    default: str
    """As a user would write it; empty when there is none worth showing."""
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedCommand:
    """One command, or a program itself."""

    words: tuple[str, ...]
    """``("pack", "build")``."""
    usage: str
    help: str
    epilog: str
    options: tuple[DocumentedOption, ...]
    is_group: bool

    @property
    def option_names(self) -> frozenset[str]:
        """Every spelling that the command accepts, ``--help`` included."""
        return frozenset(name for option in self.options for name in option.names) | {"--help"}


def walk_commands() -> Iterator[DocumentedCommand]:
    """Give every command of every program, a program before its commands."""
    for program, module_name in PROGRAMS.items():
        root = importlib.import_module(module_name).cli
        yield from _walk(root, click.Context(root, info_name=program, **root.context_settings), (program,))


def _walk(command: click.Command, context: click.Context, words: tuple[str, ...]) -> Iterator[DocumentedCommand]:
    usage = " ".join([*words, *command.collect_usage_pieces(context)])
    yield DocumentedCommand(
        words=words,
        usage=usage,
        help=_dedent(command.help),
        epilog=_dedent(command.epilog),
        options=tuple(
            _document(parameter, context)
            for parameter in command.params
            if isinstance(parameter, click.Option) and not parameter.hidden
        ),
        is_group=isinstance(command, click.Group),
    )
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                child_context = click.Context(child, info_name=name, parent=context, **child.context_settings)
                yield from _walk(child, child_context, (*words, name))


def _document(option: click.Option, context: click.Context) -> DocumentedOption:
    environment = option.envvar
    if not option.expose_value and option.is_eager:
        environment = None  # --version and the like act at once, no variable switches them on
    elif environment is None and option.allow_from_autoenv and context.auto_envvar_prefix and option.name:
        environment = f"{context.auto_envvar_prefix}_{option.name.upper()}"
    elif not isinstance(environment, str | None):
        environment = environment[0]
    has_value = not option.is_flag and not option.count
    return DocumentedOption(
        names=(*option.opts, *option.secondary_opts),
        metavar=option.make_metavar(context) if has_value else "",
        environment=environment or "",
        default=_show_default(option, context),
        help=option.help or "",
    )


def _show_default(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    found = _DEFAULT.search(record[1]) if record is not None else None
    if found is None or "default:" in (option.help or ""):
        return ""
    return found[1].strip("() ")


def _dedent(text: str | None) -> str:
    lines = [line.rstrip() for line in (text or "").expandtabs().splitlines()]
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    return "\n".join([*(line.strip() for line in lines[:1]), *(line[margin:] for line in lines[1:])]).strip()
