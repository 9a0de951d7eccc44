"""From an exception to an exit code and one clear message: the end of every program.

Rules:
    * Codes follow sysexits, so that a Job's ``podFailurePolicy`` can tell "try again" from "never will".
    * A user's mistake, damaged data or a full disk never show a traceback; a bug always does.
    * The message goes to stderr as plain text; stdout carries results only.
"""

import contextlib
import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click
from click.shell_completion import shell_complete

from shards import errors

EXIT_BUG = 1
EXIT_USAGE = 2
EXIT_CONFIG = 64
EXIT_DAMAGED = 65
EXIT_MISSING = 66
EXIT_UNAVAILABLE = 69
EXIT_NOT_WRITABLE = 73
EXIT_LOCAL_IO = 74
EXIT_DEADLINE = 75
EXIT_DENIED = 77
EXIT_UNSUPPORTED = 78
EXIT_NO_SPACE = 79
EXIT_SIGINT = 130
EXIT_SIGPIPE = 141
EXIT_SIGTERM = 143

EXIT_CODES: dict[type[errors.ShardferryError], int] = {
    errors.ShardferryError: EXIT_BUG,
    errors.FormatError: EXIT_DAMAGED,
    errors.IntegrityError: EXIT_DAMAGED,
    errors.KeyGrammarError: EXIT_CONFIG,
    errors.SampleGroupError: EXIT_DAMAGED,
    errors.PackError: EXIT_LOCAL_IO,
    errors.SourceError: EXIT_MISSING,
    errors.ForeignShardsError: EXIT_MISSING,
    errors.SourceChangedError: EXIT_DAMAGED,
    errors.DuplicateKeyError: EXIT_DAMAGED,
    errors.OversizeSampleError: EXIT_CONFIG,
    errors.TransformError: EXIT_DAMAGED,
    errors.PlanMismatchError: EXIT_NOT_WRITABLE,
    errors.DestinationError: EXIT_NOT_WRITABLE,
    errors.EngineError: EXIT_UNAVAILABLE,
    errors.StageError: EXIT_LOCAL_IO,
    errors.RemoteError: EXIT_UNAVAILABLE,
    errors.RemoteMissingError: EXIT_MISSING,
    errors.RemoteDeniedError: EXIT_DENIED,
    errors.RemoteBusyError: EXIT_UNAVAILABLE,
    errors.SelectionError: EXIT_MISSING,
    errors.ConfigurationError: EXIT_CONFIG,
    errors.CacheNotWritableError: EXIT_NOT_WRITABLE,
    errors.UnsupportedEnvironmentError: EXIT_UNSUPPORTED,
    errors.NoSpaceError: EXIT_NO_SPACE,
    errors.StoppedError: EXIT_DEADLINE,
    errors.LoadError: EXIT_MISSING,
    errors.NotStagedError: EXIT_MISSING,
    errors.MissingMemberError: EXIT_MISSING,
    errors.DecodeError: EXIT_DAMAGED,
    errors.IncompatibleStateError: EXIT_CONFIG,
    errors.BadSampleBudgetError: EXIT_DAMAGED,
}
"""Error class to exit code; a class that is not listed has the code of its nearest base."""

_STOP_CODES = {"SIGINT": EXIT_SIGINT, "SIGTERM": EXIT_SIGTERM}
_NO_SPACE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED_ERRNOS = frozenset({errno.EACCES, errno.EPERM})
_MACHINE_ERRNOS = frozenset({errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.EFBIG, errno.ETXTBSY})
"""Faults of the machine, not of the code, even when the operation carried no file name."""


TRANSIENT_CODES = frozenset({EXIT_UNAVAILABLE, EXIT_LOCAL_IO, EXIT_DEADLINE, EXIT_NO_SPACE})
"""Exit codes after which the same command may succeed."""


def exit_code_of(error: BaseException) -> int:
    """Give the exit code for an exception that ends a program; 1 means a bug, shown with its traceback."""
    if isinstance(error, errors.StoppedError):
        return _STOP_CODES.get(error.reason, EXIT_DEADLINE)
    if isinstance(error, errors.ServeFailedError) and error.code:
        return error.code
    if isinstance(error, errors.ShardferryError):
        return next(EXIT_CODES[base] for base in type(error).__mro__ if base in EXIT_CODES)
    if isinstance(error, click.UsageError):
        return EXIT_USAGE
    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return EXIT_SIGINT
    if isinstance(error, BrokenPipeError):
        return EXIT_SIGPIPE
    if isinstance(error, OSError):
        return _exit_code_of_os_error(error)
    return EXIT_BUG


def run_command(command: click.Command, prog: str, args: Sequence[str]) -> int:
    """Run a click command and give its exit code; every message has been shown when this returns.

    The command may return an int, which is then the exit code, or call ``context.exit(code)``.

    Args:
        command: command or group.
        prog: program name for usage and messages.
        args: arguments without the program's name.
    """
    try:
        with command.make_context(prog, list(args)) as context:
            result = command.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except SystemExit:
        raise
    except BrokenPipeError as error:
        _give_up_stdout()
        return exit_code_of(error)
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 (this is the end of the program)
        code = exit_code_of(error)
        _explain(error, code, prog)
        return code
    return result if isinstance(result, int) else 0


def run_main(command: click.Command, prog: str) -> NoReturn:
    """Run a program: arguments from ``sys.argv``, exit code to the caller of the process.

    Raises:
        SystemExit: always.
    """
    _make_streams_usable()
    complete_var = f"_{prog}_COMPLETE".replace("-", "_").upper()
    instruction = os.environ.get(complete_var)
    if instruction:
        sys.exit(shell_complete(command, {}, prog, complete_var, instruction))
    sys.exit(run_command(command, prog, sys.argv[1:]))


def _make_streams_usable() -> None:
    """Let nothing about the standard streams end a program: one that is closed, or cannot encode a name.

    A closed descriptor would be given to the next file that is opened, and what a library writes to its stderr would
    land in a shard.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _exit_code_of_os_error(error: OSError) -> int:
    if error.errno in _NO_SPACE_ERRNOS:
        return EXIT_NO_SPACE
    if error.errno == errno.EROFS:
        return EXIT_NOT_WRITABLE
    if error.errno in _DENIED_ERRNOS:
        return EXIT_NOT_WRITABLE if _was_writing(error) else EXIT_DENIED
    if error.filename is not None or error.errno in _MACHINE_ERRNOS:
        return EXIT_LOCAL_IO
    return EXIT_BUG


def _was_writing(error: OSError) -> bool:
    """Tell whether a refused operation was a write: the file can be read, or it is not there and was to be made."""
    path = error.filename
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    if os.access(path, os.R_OK):
        return True
    return not os.path.lexists(path) and os.access(os.path.dirname(path) or os.curdir, os.X_OK)


def _explain(error: BaseException, code: int, prog: str) -> None:
    """Show on stderr why the program ends."""
    if isinstance(error, click.ClickException):
        error.show(file=sys.stderr)
    elif isinstance(error, KeyboardInterrupt | click.Abort):
        click.echo(f"\n{prog}: interrupted", err=True)
    elif code == EXIT_BUG and not isinstance(error, errors.ShardferryError):
        traceback.print_exception(error, file=sys.stderr)
        click.echo(f"{prog}: this is a bug in shardferry; please report it with the lines above", err=True)
    elif isinstance(error, OSError):
        click.echo(f"{prog}: error: {_describe_os_error(error)}", err=True)
    else:
        click.echo(f"{prog}: error: {error}", err=True)


def _describe_os_error(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    where = " -> ".join(errors.printable(name) for name in names)
    advice = ""
    if error.errno in _NO_SPACE_ERRNOS:
        advice = "; free some space there, then run the same command again"
    elif error.errno in _DENIED_ERRNOS:
        advice = f"; this process runs as uid {os.geteuid()}, gid {os.getegid()}"
    return f"{where}: {reason}{advice}" if where else f"{reason}{advice}"


def _give_up_stdout() -> None:
    """Point stdout at /dev/null, or the interpreter's last flush would report the broken pipe again."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
