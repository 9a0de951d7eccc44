"""How a command ends: its last words where the kubelet finds them, and an end that waits for nothing that hangs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from shardferry.console import exit_code_of
from shards.errors import ShardferryError, StoppedError, printable
from shards.leases import release_locks_below
from stager.report import render_failure
from stager.stuck import leave_now


@contextmanager
def last_words(path: str) -> Iterator[None]:
    """Write the error that ends a ``with`` block, if one does, to the termination message."""
    try:
        yield
    except (ShardferryError, OSError, click.ClickException) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        write_last_words(path, render_failure(exit_code_of(error), type(error).__name__, text))
        raise


def write_last_words(path: str, line: bytes) -> None:
    """Best effort: a run must not fail for the lack of a place for its last words."""
    try:
        # O_NONBLOCK: a fifo that nobody reads must not hold up the end
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return
    try:
        os.write(fd, line)
    except OSError as error:
        click.echo(f"stage: warning: {printable(path)}: {error.strerror}", err=True)
    finally:
        os.close(fd)


def leave(error: StoppedError, termination_log: str, cache_dir: str) -> NoReturn:
    """End the process although a thread hangs in the kernel, and let go of what it has locked in the cache."""
    code = exit_code_of(error)
    click.echo(f"stage: error: {error} (a read or write that hangs was left behind)", err=True)
    write_last_words(termination_log, render_failure(code, type(error).__name__, str(error)))
    # a process with a thread that hangs keeps its files, and so its locks, until the thread is free
    release_locks_below(cache_dir)
    leave_now(code)
