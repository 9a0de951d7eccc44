"""Writes docs/commands.md from the programs themselves.

usage: generate_command_docs.py           write it
       generate_command_docs.py --check   exit 1 when it is not what would be written
"""

import os
import sys
from collections.abc import Iterator

from command_tree import DocumentedCommand, DocumentedOption, walk_commands

PATH = os.path.join("docs", "commands.md")
HEADER = """\
<!-- Made by `make command-docs` from the programs: change their help texts instead. -->

# Commands

`pack`, `stage` and `load` are the same as `shardferry pack`, `shardferry stage` and `shardferry load`, and as
`python -m packer`, `python -m stager` and `python -m loaders`. A flag beats its environment variable, the variable
beats the default. Results go to stdout, progress and log to stderr.
"""


def render() -> str:
    """Give the whole page."""
    parts = [HEADER]
    for command in walk_commands():
        parts.extend(_render_command(command))
    return "\n".join(parts).rstrip() + "\n"


def _render_command(command: DocumentedCommand) -> Iterator[str]:
    level = "##" if len(command.words) == 1 else "###"
    yield f"{level} {' '.join(command.words)}\n"
    yield f"```\n{command.usage}\n```\n"
    yield from _render_text(command.help)
    if command.options:
        yield "| option | environment | meaning |"
        yield "|---|---|---|"
        for option in command.options:
            yield _render_option(option)
        yield ""
    yield from _render_text(command.epilog)


def _render_text(text: str) -> Iterator[str]:
    r"""Give paragraphs; those that click must not wrap (marked by ``\b``) as blocks of code."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            yield "```\n" + paragraph.lstrip("\b").strip("\n") + "\n```\n"
        elif paragraph:
            yield " ".join(paragraph.split()).replace("<", "\\<") + "\n"


def _render_option(option: DocumentedOption) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    value = f" `{option.metavar}`" if option.metavar else ""
    default = f" Default: `{option.default}`." if option.default else ""
    meaning = (" ".join(option.help.split()) + default).strip().replace("|", "\\|").replace("<", "\\<")
    environment = f"`{option.environment}`" if option.environment else ""
    return f"| {names}{value.replace('|', chr(92) + '|')} | {environment} | {meaning} |"


def main() -> int:
    """Write or check the page."""
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    wanted = render()
    if sys.argv[1:] == ["--check"]:
        with open(PATH, encoding="utf-8") as file:
            if file.read() == wanted:
                return 0
        print(f"{PATH} is not what the programs say; run: make command-docs", file=sys.stderr)
        return 1
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(wanted)
    print(f"{PATH} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
