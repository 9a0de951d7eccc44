"""Value types, exit codes, log and progress of the command lines."""

import contextlib
import errno
import io
import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardferry.console import (
    EXIT_CODES,
    ByteSize,
    Duration,
    Progress,
    exit_code_of,
    format_bytes,
    format_count,
    format_seconds,
    parse_bytes,
    parse_seconds,
    run_command,
    setup_logging,
)
from shards import errors


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1000", 1000),
        ("64MiB", 64 << 20),
        ("64Mi", 64 << 20),
        ("64 mib", 64 << 20),
        ("1.5GB", 1_500_000_000),
        ("1.5KiB", 1536),
        ("2TiB", 2 << 40),
        ("7B", 7),
    ],
)
def test_size_is_read_in_bytes(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes
    assert ByteSize().convert(text, None, None) == size_bytes


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("64M", "64MiB"),
        ("-1", "not a size"),
        ("", "not a size"),
        ("MiB", "not a size"),
        ("1e3", "not a size"),
        ("1,5GB", "not a size"),
        ("٣", "not a size"),
        ("5 parsecs", "parsecs"),
        ("0.3B", "whole number"),
        ("9" * 1000, "not a size"),
    ],
)
def test_wrong_size_says_what_is_wrong(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("30s", 30.0),
        ("15m", 900.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("2d", 172800.0),
    ],
)
def test_time_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "s", "1h30", "-5s", "5 weeks", "1:30", "inf", "nan", "1h 30"])
def test_wrong_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|unit"):
        parse_seconds(text)


@given(st.integers(0, 1 << 62))
def test_every_whole_number_of_bytes_is_read_back(size_bytes: int) -> None:
    assert parse_bytes(str(size_bytes)) == size_bytes
    if size_bytes < 1 << 32:
        assert parse_bytes(f"{size_bytes}MiB") == size_bytes << 20


@given(st.text(max_size=40))
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    for parse in (parse_bytes, parse_seconds):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (3 << 60, "3.0 EiB"),
    ],
)
def test_bytes_are_shown(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text


def test_counts_and_seconds_are_shown() -> None:
    assert format_count(6223) == "6,223"
    assert [format_seconds(value) for value in (0.25, 12.34, 59.96, 245, 7380)] == [
        "0.25 s",
        "12.3 s",
        "1 min 00 s",
        "4 min 05 s",
        "2 h 03 min",
    ]


def test_size_below_the_least_is_a_usage_error() -> None:
    with pytest.raises(click.BadParameter, match="too small"):
        ByteSize(min_bytes=4096).convert("1KiB", None, None)


def _concrete_errors() -> Iterator[type[errors.ShardferryError]]:
    pending = [errors.ShardferryError]
    while pending:
        cls = pending.pop()
        pending.extend(cls.__subclasses__())
        if not cls.__subclasses__() and cls.__module__ == errors.__name__ and not cls.__name__.startswith("_"):
            yield cls


@pytest.mark.parametrize("cls", sorted(_concrete_errors(), key=lambda cls: cls.__name__), ids=lambda cls: cls.__name__)
def test_no_error_raised_on_purpose_looks_like_a_bug(cls: type[errors.ShardferryError]) -> None:
    assert next(EXIT_CODES[base] for base in cls.__mro__ if base in EXIT_CODES) not in (0, 1, 2)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TarFormatError("a.tar", 512, "bad"), 65),
        (errors.DigestMismatchError("a.tar", 0, 0, "blake3:00", "blake3:01"), 65),
        (errors.RemoteError("away"), 69),
        (errors.RemoteMissingError("gone"), 66),
        (errors.RemoteDeniedError("no"), 77),
        (errors.NoSpaceError("/c", 2, 1), 79),
        (errors.StoppedError("SIGTERM"), 143),
        (errors.StoppedError("SIGINT"), 130),
        (errors.StoppedError("deadline"), 75),
        (errors.NotStagedError("not there"), 66),
        (click.UsageError("?"), 2),
        (KeyboardInterrupt(), 130),
        (OSError(errno.ENOSPC, "No space left on device"), 79),
        (OSError(errno.EROFS, "Read-only file system", "/x"), 73),
        (OSError(errno.EIO, "Input/output error", "/x"), 74),
        (OSError("something"), 1),
        (ValueError("bug"), 1),
    ],
)
def test_exit_code_of_error(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code


def test_denied_write_and_denied_read_differ(tmp_path: Path) -> None:
    readable = tmp_path / "readable"
    readable.write_text("x")
    assert exit_code_of(PermissionError(errno.EACCES, "Permission denied", str(readable))) == 73
    assert exit_code_of(PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "to be made"))) == 73
    assert exit_code_of(PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "hidden" / "file"))) == 77


def _command_raising(error: BaseException) -> click.Command:
    def fail() -> None:
        raise error

    return click.Command("fail", callback=fail)


def test_purposeful_error_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(_command_raising(errors.NotStagedError("not staged; run stage run")), "load", [])
    assert code == 66
    assert capsys.readouterr().err == "load: error: not staged; run stage run\n"


def test_bug_shows_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(_command_raising(ZeroDivisionError("oops")), "pack", []) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "ZeroDivisionError: oops" in shown


def test_os_error_names_the_file_safely(capsys: pytest.CaptureFixture[str]) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/data/\x1b[2J")
    assert run_command(_command_raising(error), "pack", []) == 79
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "/data/\\x1b[2J: No space left on device" in shown
    assert "Traceback" not in shown


def test_usage_error_is_2_and_help_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    command = click.Command("pack", params=[click.Option(["--size"], type=ByteSize())], callback=lambda size: None)
    assert run_command(command, "pack", ["--size", "64M"]) == 2
    assert "64MiB" in capsys.readouterr().err
    assert run_command(command, "pack", ["--nope"]) == 2
    assert run_command(command, "pack", ["--help"]) == 0


def test_command_may_choose_its_exit_code() -> None:
    assert run_command(click.Command("c", callback=lambda: 65), "c", []) == 65
    assert run_command(click.Command("c", callback=lambda: None), "c", []) == 0


def test_closed_pipe_is_quiet() -> None:
    script = (
        "import click\nfrom shardferry.console import run_main\n"
        "@click.command()\ndef cli():\n    for _ in range(100000): click.echo('x' * 100)\n"
        "run_main(cli, 'pack')\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


STREAMS_SCRIPT = """
import click, os, subprocess, sys
from shardferry.console import run_main
@click.command()
@click.argument("path")
def cli(path):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    click.echo("\\u65e5 to stdout")
    click.echo("\\u65e5 to stderr", err=True)
    assert fd > 2
    subprocess.run(["sh", "-c", "echo from a library >&2; echo from a library"], check=True)
run_main(cli, "pack")
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_end_nothing_and_never_become_a_data_file(tmp_path: Path, closed: str) -> None:
    path = tmp_path / "data"
    script = f'exec "$0" -c "$1" "$2" {closed}'
    command = ["sh", "-c", script, sys.executable, STREAMS_SCRIPT, str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_name_that_the_terminal_cannot_show_ends_nothing(tmp_path: Path, encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STREAMS_SCRIPT, str(tmp_path / "data")],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0, done.stderr


def test_log_is_json_lines_without_a_terminal(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    setup_logging(stream=stream)
    setup_logging(stream=stream)
    logging.getLogger("packer.write").info("shard written", extra={"shard_name": "train-000000.tar", "size_bytes": 5})
    (line,) = stream.getvalue().splitlines()
    facts = json.loads(line)
    assert facts.pop("at").endswith("+00:00")
    assert facts == {
        "level": "info",
        "event": "shard written",
        "logger": "packer.write",
        "shard_name": "train-000000.tar",
        "size_bytes": 5,
    }


def test_log_is_for_people_on_a_terminal(root_logger: logging.Logger) -> None:
    stream = Terminal()
    setup_logging(stream=stream)
    logging.getLogger("x").warning("slow", extra={"path": "a\nb", "seconds": 1.25})
    logging.getLogger("x").debug("unseen")
    assert stream.getvalue().strip() == "warning: slow  path=a\\nb seconds=1.25"


def test_quiet_log_keeps_warnings_only(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    setup_logging(quiet=True, stream=stream)
    logging.getLogger("x").info("unseen")
    logging.getLogger("x").warning("seen")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["seen"]
    with pytest.raises(ValueError, match="exclude"):
        setup_logging(verbose=True, quiet=True)


def test_progress_is_a_line_every_five_seconds_without_a_terminal(root_logger: logging.Logger) -> None:
    now = [0.0]
    stream = io.StringIO()
    setup_logging(stream=stream)
    with Progress("packing", total_bytes=2000, total_samples=20, stream=stream, clock=lambda: now[0]) as progress:
        for _ in range(20):
            now[0] += 1.0
            progress.advance(num_bytes=100, num_samples=1)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["num_samples"] for line in lines] == [5, 10, 15, 20, 20]
    assert "5 of 20 samples" in lines[0]["event"]
    assert "15.0 s left" in lines[0]["event"]
    assert lines[-1]["event"].startswith("packing: done, 2.0 KiB of 2.0 KiB")


def test_progress_is_a_bar_on_a_terminal(root_logger: logging.Logger) -> None:
    stream = Terminal()
    setup_logging(stream=stream)
    with Progress("packing", total_bytes=2048, total_samples=2, stream=stream) as progress:
        progress.advance(num_bytes=1024, num_samples=1)
        logging.getLogger("x").info("a line between")
        progress.advance(num_bytes=1024, num_samples=1)
    shown = stream.getvalue()
    assert "2.00k/2.00k" in shown
    assert "2 of 2 samples" in shown
    assert "\ra line between\n" in shown or "\na line between\n" in shown


def test_progress_is_seen_on_a_terminal_without_a_size() -> None:
    script = (
        "from shardferry.console import Progress, setup_logging\n"
        "setup_logging()\n"
        "with Progress('packing', total_bytes=2048) as progress: progress.advance(num_bytes=2048)\n"
    )
    reader, writer = pty.openpty()
    subprocess.run([sys.executable, "-c", script], stderr=writer, check=True)
    os.close(writer)
    shown = b""
    with contextlib.suppress(OSError):  # reading a closed terminal ends with EIO
        while piece := os.read(reader, 4096):
            shown += piece
    os.close(reader)
    assert b"2.00k/2.00k" in shown


def test_progress_is_silent_when_quiet(root_logger: logging.Logger) -> None:
    for stream in (Terminal(), io.StringIO()):
        setup_logging(quiet=True, stream=stream)
        with Progress("packing", total_bytes=1, stream=stream) as progress:
            progress.advance(num_bytes=1)
        assert stream.getvalue() == ""
