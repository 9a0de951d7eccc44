"""What the demo shows: numbered steps, commands, facts and checks, on a terminal and in a log alike."""

import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

WIDTH = 100
"""Columns of a rule under a heading."""


class Screen:
    """Writes to stdout; colour only on a terminal that wants it."""

    def __init__(self) -> None:
        """Start the clock of the whole demo."""
        self._is_coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._started_seconds = time.monotonic()
        self._num_steps = 0

    def step(self, title: str) -> None:
        """Begin the next numbered step."""
        self._num_steps += 1
        elapsed = time.monotonic() - self._started_seconds
        heading = f"{self._num_steps}. {title}"
        clock = f"[{elapsed:5.1f} s]"
        self._write("")
        self._write(self._paint(f"{heading:<{WIDTH - len(clock)}}{clock}", "1"))
        self._write("-" * WIDTH)

    def command(self, words: Sequence[str]) -> None:
        """Show a command as a user would type it."""
        self._write(self._paint(f"   $ {' '.join(words)}", "36"))

    def output(self, text: str) -> None:
        """Show what a program printed, set off from the demo's own words."""
        for line in text.splitlines():
            self._write(f"   | {line}".rstrip())

    def fact(self, text: str) -> None:
        """State something."""
        self._write(f"   {text}".rstrip())

    def check(self, is_so: bool, text: str) -> None:  # noqa: FBT001 (reads as a sentence: check(a == b, "a is b"))
        """State something that has been checked; a failed check ends the demo.

        Raises:
            SystemExit: it is not so.
        """
        if not is_so:
            self.fail(text)
        self._write(f"   {self._paint('ok', '32')}  {text}")

    def fail(self, text: str) -> NoReturn:
        """End the demo with exit code 1 and the reason.

        Raises:
            SystemExit: always.
        """
        self._write(f"   {self._paint('FAILED', '31')}  {text}")
        sys.stdout.flush()
        sys.exit(1)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table: columns whose head starts with a blank, numbers that is, are flush right."""
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        for number, row in enumerate((head, *rows)):
            cells = [
                f"{cell:>{width}}" if title.startswith(" ") else f"{cell:<{width}}"
                for cell, title, width in zip(row, head, widths, strict=True)
            ]
            self._write("   " + "   ".join(cells).rstrip())
            if number == 0:
                self._write("   " + "   ".join("-" * width for width in widths))

    def finish(self) -> None:
        """Say how long the demo took."""
        self._write("")
        self._write(self._paint(f"Done in {time.monotonic() - self._started_seconds:.0f} s, every check passed.", "1"))

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_coloured else text

    def _write(self, text: str) -> None:
        # flushed at once: the programs that the demo calls write to the same terminal
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
