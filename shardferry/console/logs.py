"""The log of a program: lines for a person on a terminal, JSON lines for a collector everywhere else.

Only a ``cli`` module calls :func:`setup_logging`. Everybody else does ``logger = logging.getLogger(__name__)``, logs a
constant text and puts the facts into ``extra`` with the glossary's names.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from shards.errors import printable

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""What every log record has; all else in a record came in through ``extra``."""


def setup_logging(*, verbose: bool = False, quiet: bool = False, stream: TextIO | None = None) -> None:
    """Install the one log handler of this process, replacing an earlier one of ours.

    Args:
        verbose: also debug lines.
        quiet: warnings and errors only, and no progress.
        stream: where to; stderr when None.

    Raises:
        ValueError: both verbose and quiet.
    """
    if verbose and quiet:
        raise ValueError("verbose and quiet exclude each other")
    target = sys.stderr if stream is None else stream
    handler = _StreamHandler(target)
    handler.setFormatter(HumanFormatter() if target.isatty() else JsonFormatter())
    root = logging.getLogger()
    for earlier in [known for known in root.handlers if isinstance(known, _StreamHandler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)


class HumanFormatter(logging.Formatter):
    """``text  name=value name=value``; the level only when it is a warning or worse."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record as a line (a traceback follows on further lines)."""
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        facts = "".join(f" {name}={_readable(value)}" for name, value in _facts_of(record).items())
        line = f"{level}{record.getMessage()}{' ' if facts else ''}{facts}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``at`` (UTC), ``level``, ``event``, ``logger``, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record as one line, whatever is in it."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        line.update((name, value) for name, value in _facts_of(record).items() if name not in line)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _StreamHandler(logging.StreamHandler[TextIO]):
    """A stream handler whose lines do not tear a progress bar on the same terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        # tqdm is looked up and not imported: a program without a bar must not pay for it
        tqdm_module = sys.modules.get("tqdm")
        if tqdm_module is None or not self.stream.isatty():
            super().emit(record)
            return
        try:
            tqdm_module.tqdm.write(self.format(record), file=self.stream)
        except Exception:  # noqa: BLE001 (a log line must never end the program)
            self.handleError(record)


def _facts_of(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


def _readable(value: object) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    text = printable(text)
    return json.dumps(text, ensure_ascii=False) if not text or " " in text else text
