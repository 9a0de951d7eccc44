"""Checks what the documentation says against the repository and the programs; exit 1 with a list of what is wrong.

* every relative link in a Markdown file leads somewhere, anchors included
* docs/commands.md is what the programs say of themselves, so every option is documented
* every command, subcommand and ``--option`` that is written anywhere in the documentation exists
* Python blocks marked as runnable run (see CONTRIBUTING.md)
* CHANGELOG.md has an entry for the version in work
* no trailing blanks, no file without a newline at its end
* no help text uses a word that the glossary replaces
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import generate_command_docs
from command_tree import DocumentedCommand, walk_commands
from runnable_blocks import run_blocks

from shardferry import __version__

TEXT_SUFFIXES = (".py", ".md", ".toml", ".txt", ".sh", ".yaml", ".yml", ".cfg", ".json", ".proto")
GENERATED_OR_FOREIGN = ("tests/data/", "tests/golden/")
EVERYDAY_WORDS = frozenset(
    {"row", "id", "field", "part", "suffix", "type", "input", "chunk", "version", "manifest", "storage", "tmp", "temp"}
    | {"state", "job", "pin", "offset", "position", "workers", "threads", "downloaded", "cached", "backend", "uid"}
    | {"invalid", "shuffle", "shuffles"}
)
"""Words of the glossary's last column that also have a plain meaning; a program cannot tell which one is meant."""

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
_FENCE = re.compile(r"^(```+|~~~+)(.*?)\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
_OPTION = re.compile(r"--[a-z][a-z0-9-]*")
_SHELL_LANGUAGES = frozenset({"", "sh", "bash", "shell", "console", "text"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One Markdown file."""

    path: str
    text: str

    @property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCE.sub("", self.text)


def tracked_files() -> list[str]:
    """Give the files of the repository: tracked ones and new ones that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, capture_output=True, check=True).stdout
    return sorted(os.fsdecode(name) for name in listed.split(b"\0") if name and os.path.isfile(name))


def check_links(pages: list[Page]) -> Iterator[str]:
    """Report relative links that lead nowhere."""
    anchors = {os.path.normpath(page.path): {_anchor(text) for text in _HEADING.findall(page.prose)} for page in pages}
    for page in pages:
        for target in _LINK.findall(page.prose):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            path, _, anchor = target.partition("#")
            full = os.path.normpath(os.path.join(os.path.dirname(page.path), path) if path else page.path)
            if not os.path.exists(full):
                yield f"{page.path}: link to {target}: there is no {full}"
            elif anchor and full in anchors and anchor not in anchors[full]:
                yield f"{page.path}: link to {target}: {full} has no such heading"


def check_commands(pages: list[Page]) -> Iterator[str]:
    """Report commands and options that the programs do not have."""
    commands = {command.words: command for command in walk_commands()}
    options = {name for command in commands.values() for name in command.option_names} | {"--version"}
    for page in pages:
        if os.path.basename(page.path) == "CHANGELOG.md":
            continue  # it may name options of the past
        for line in [*_CODE_SPAN.findall(page.prose), *_shell_lines(page.text)]:
            if line.startswith("--"):
                unknown = [name for name in _OPTION.findall(line) if name not in options]
                yield from (f"{page.path}: `{line}`: no program has {name}" for name in unknown)
            else:
                yield from (f"{page.path}: `{line}`: {fault}" for fault in _faults_of_command(line, commands))


def check_changelog() -> Iterator[str]:
    """Report a change log without an entry for the version in work."""
    with open("CHANGELOG.md", encoding="utf-8") as file:
        sections = re.split(r"^## ", file.read(), flags=re.MULTILINE)
    mine = [section for section in sections if section.startswith((f"[{__version__}]", "[Unreleased]"))]
    if not any(re.search(r"^- \S", section, re.MULTILINE) for section in mine):
        yield f"CHANGELOG.md: no entry for {__version__}"


def check_blanks(paths: list[str]) -> Iterator[str]:
    """Report trailing blanks and missing newlines at the end."""
    for path in paths:
        if path.startswith(GENERATED_OR_FOREIGN) or not path.endswith(TEXT_SUFFIXES) or os.path.getsize(path) == 0:
            continue
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        if not text.endswith("\n"):
            yield f"{path}: no newline at the end"
        for number, line in enumerate(text.split("\n"), start=1):
            if line != line.rstrip():
                yield f"{path}:{number}: trailing blanks"


def check_words() -> Iterator[str]:
    """Report words in help texts for which the glossary has a better one."""
    better = _read_glossary()
    for command in walk_commands():
        texts = [command.help, command.epilog, *(option.help for option in command.options)]
        for word in sorted(set(re.findall(r"[a-z]+", " ".join(texts).lower()))):
            singular = word.removesuffix("s")
            if word in better or singular in better:
                say = better.get(word) or better[singular]
                yield f"{' '.join(command.words)} --help says {word!r}; the glossary's word is {say!r}"


def check_generated() -> Iterator[str]:
    """Report a docs/commands.md that is not what the programs say."""
    with open(generate_command_docs.PATH, encoding="utf-8") as file:
        if file.read() != generate_command_docs.render():
            yield f"{generate_command_docs.PATH} is not what the programs say; run: make command-docs"


def _shell_lines(text: str) -> Iterator[str]:
    for _, language, body in _FENCE.findall(text):
        if language.strip() in _SHELL_LANGUAGES:
            for line in body.replace("\\\n", " ").splitlines():
                yield line.strip().removeprefix("$ ")


def _faults_of_command(line: str, commands: dict[tuple[str, ...], DocumentedCommand]) -> Iterator[str]:
    """Report what is wrong with a line, if it is a call of one of the programs at all."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return
    if words[:1] == ["shardferry"]:
        words = words[1:]
    if len(words) < 2 or (words[0],) not in commands or not re.fullmatch(r"[a-z-]+", words[1]):
        return
    command = commands[(words[0],)]
    rest = words[1:]
    if not rest[0].startswith("-"):
        if (words[0], rest[0]) not in commands:
            # a sentence such as `stage to the node` is no command
            if any(word.startswith("--") for word in rest):
                yield f"{words[0]} has no command {rest[0]}"
            return
        command = commands[(words[0], rest[0])]
    for word in rest:
        name = word.split("=")[0]
        if _OPTION.fullmatch(name) and name not in command.option_names:
            yield f"{' '.join(command.words)} has no option {name}"
        if word in {"|", "||", "&&", ";"}:
            return


def _read_glossary() -> dict[str, str]:
    """Give the words not to say, each with the word to say, from the table of docs/glossary.md."""
    better: dict[str, str] = {}
    with open(os.path.join("docs", "glossary.md"), encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if line.startswith("|") and len(cells) == 4:
                for word in re.findall(r"[a-z]+", cells[3].split(";")[0].lower()):
                    if word not in EVERYDAY_WORDS:
                        better[word] = cells[0]
    return {word: say for word, say in better.items() if word not in {"don", "t", "say"}}


def _anchor(heading: str) -> str:
    """Give the anchor that a heading gets when the page is shown."""
    plain = re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower())
    return plain.replace(" ", "-")


def main() -> int:
    """Run all checks and report everything that is wrong, not only the first."""
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = tracked_files()
    pages = []
    for path in paths:
        if path.endswith(".md") and not path.startswith(GENERATED_OR_FOREIGN):
            with open(path, encoding="utf-8") as file:
                pages.append(Page(path=path, text=file.read()))
    checks: list[tuple[str, Callable[[], Iterator[str]]]] = [
        ("links", lambda: check_links(pages)),
        ("commands and options", lambda: check_commands(pages)),
        ("docs/commands.md", check_generated),
        ("runnable examples", lambda: run_blocks([(page.path, page.text) for page in pages])),
        ("change log", check_changelog),
        ("blanks", lambda: check_blanks(paths)),
        ("words in help texts", check_words),
    ]
    num_faults = 0
    for name, check in checks:
        faults = list(check())
        num_faults += len(faults)
        print(f"docs: {name}: {'ok' if not faults else f'{len(faults)} wrong'}")
        for fault in faults:
            print(f"  {fault}")
    return 1 if num_faults else 0


if __name__ == "__main__":
    sys.exit(main())
