"""Runs the real programs as a user would, shows the command lines, and gives what they printed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from screen import Screen


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A program that has ended well."""

    stdout: str
    seconds: float


class Programs:
    """Calls programs of this virtual environment, and the system's, by their plain names."""

    def __init__(self, screen: Screen) -> None:
        """Use a screen to show what is called."""
        self._screen = screen
        # the environment's own programs first, whether or not it is activated
        path = os.pathsep.join([os.path.join(sys.prefix, "bin"), os.environ.get("PATH", os.defpath)])
        self._environment = {**os.environ, "PATH": path}

    def run(
        self,
        words: Sequence[str],
        *,
        shown: Sequence[str] | None = None,
        is_shown: bool = True,
        has_output: bool = True,
    ) -> Finished:
        """Run a program to its end; anything but exit code 0 ends the demo.

        On a terminal its progress bar is seen live; in a log its messages follow when it has ended.

        Args:
            words: program and arguments.
            shown: how to show the command, when it differs.
            is_shown: show the command.
            has_output: show what it prints.

        Raises:
            SystemExit: the program failed.
        """
        has_output = has_output and is_shown
        if is_shown:
            self._screen.command(words if shown is None else shown)
        started = time.perf_counter()
        is_live = sys.stderr.isatty() and has_output
        try:
            done = subprocess.run(
                list(words),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if is_live else subprocess.PIPE,
                text=True,
                errors="backslashreplace",
                check=False,
            )
        except FileNotFoundError:
            self._screen.fail(f"{words[0]} is not installed")
        seconds = time.perf_counter() - started
        if done.returncode != 0:
            self._screen.output(done.stdout + (done.stderr or ""))
            self._screen.fail(f"{words[0]} ended with exit code {done.returncode}")
        if has_output:
            self._screen.output("\n".join(_readable(line) for line in (done.stderr or "").splitlines()))
            self._screen.output(done.stdout)
        return Finished(stdout=done.stdout, seconds=seconds)


def _readable(line: str) -> str:
    """Give the event of a JSON log line, any other line as it is."""
    if line.startswith("{"):
        try:
            return str(json.loads(line)["event"])
        except (ValueError, KeyError):
            return line
    return line
