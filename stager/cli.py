"""The ``stage`` command line: parse → log → run → exit code. Nothing heavy is imported before a command runs."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from shardferry import __version__
from shardferry.console import Duration, exit_code_of, run_main, setup_logging
from shards.errors import ShardferryError, StoppedError, printable
from stager.config import (
    DEFAULT_CONNECTIONS,
    DEFAULT_LEASE_TTL_SECONDS,
    DEFAULT_TERMINATION_LOG,
    choose_holder,
    clean_holder,
)

ENVIRONMENT = {"auto_envvar_prefix": "STAGE"}
"""Each option is also an environment variable: ``--cache-dir`` is ``STAGE_CACHE_DIR``, for every command."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stage")
def cli() -> None:
    """Bring the shards of a published dataset onto this node's disk, verified.

    All jobs of a node share one cache. Staging again costs nothing, and a run that was killed goes on where it
    stopped.

    \b
    Examples:
      stage run /mnt/nfs/imagenet --cache-dir /nvme/cache
      stage status --cache-dir /nvme/cache
    """  # noqa: D301 (click reads the backspace)


@cli.command(context_settings=ENVIRONMENT)
@click.argument("source", metavar="SRC", envvar="STORAGE_URI")
@click.option(
    "--cache-dir",
    required=True,
    type=click.Path(file_okay=False),
    show_envvar=True,
    help="Root of this node's cache, on a local disk; made when it is not there.",
)
@click.option(
    "--connections",
    type=click.IntRange(1, 256),
    default=DEFAULT_CONNECTIONS,
    show_default=True,
    show_envvar=True,
    help="Ranges read at the same time, over all shards. Memory is this many blocks of 8 MiB.",
)
@click.option(
    "--verify",
    type=click.Choice(["size", "full"]),
    default="size",
    show_default=True,
    show_envvar=True,
    help="What is checked of files that are staged already: that they look as they did when they were committed, or "
    "every byte. What is fetched is always verified.",
)
@click.option(
    "--link",
    "links",
    type=click.Path(),
    multiple=True,
    envvar="STAGE_LINK",
    show_envvar=True,
    help="Symbolic link to point at the staged dataset: a stable path for training code. May be repeated; in the "
    "variable, paths are separated by colons.",
)
@click.option(
    "--lease-ttl",
    type=Duration(),
    default=DEFAULT_LEASE_TTL_SECONDS,
    show_default="15m",
    show_envvar=True,
    help="How long the dataset stays protected after this program ends, for the trainer to start.",
)
@click.option(
    "--holder",
    show_envvar=True,
    help="Whom the dataset is protected for. Default: the pod (POD_UID), the Slurm job, or this user.",
)
@click.option(
    "--termination-log",
    type=click.Path(),
    default=DEFAULT_TERMINATION_LOG,
    show_default=True,
    show_envvar=True,
    help="File for the last words, one line of JSON; only written when it exists.",
)
@click.option("--json", "is_json", is_flag=True, envvar="STAGE_JSON", help="Print the report as one JSON object.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors only, show no progress.")
def run(
    source: str,
    cache_dir: str,
    connections: int,
    verify: str,
    links: tuple[str, ...],
    lease_ttl: float,
    holder: str | None,
    termination_log: str,
    is_json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Stage the dataset SRC into the cache and print where it lies.

    SRC is the directory of a published dataset (the one with manifest.json), as a path or as a file:// URL, for
    instance on an NFS or CephFS mount. Every block is verified before it is written, and only complete, verified
    shards get their final names.

    \b
    Examples:
      stage run /mnt/nfs/imagenet --cache-dir /nvme/cache
      stage run file:///mnt/cephfs/coco --cache-dir /nvme/cache --link /data/coco
      stage run /mnt/nfs/imagenet --cache-dir /nvme/cache --verify full --json
      STAGE_CACHE_DIR=/nvme/cache stage run /mnt/nfs/imagenet

    \b
    Exit codes: 0 staged, 2 usage, 65 source damaged, 66 source missing, 69 source not available, 73 cache not
    writable, 74 local disk failed, 77 source denied, 78 cache on an unsuitable filesystem or of a newer release,
    79 no space, 130 and 143 stopped (run it again to go on).
    """  # noqa: D301 (click reads the backspace)
    _start_log(verbose=verbose, quiet=quiet)
    with _last_words(termination_log):
        from stager.config import StageConfig, parse_source
        from stager.report import render_last_words
        from stager.run import run_stage
        from stager.verify import Verify

        try:
            source_dir = parse_source(source)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="SRC") from error
        try:
            config = StageConfig(
                source_dir=source_dir,
                cache_dir=_absolute_cache_dir(cache_dir),
                connections=connections,
                verify=Verify(verify),
                links=links,
                lease_ttl_seconds=lease_ttl,
                holder=clean_holder(holder) if holder else choose_holder(os.environ, os.uname().nodename, os.geteuid()),
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        report = run_stage(config, lambda error: _leave(error, termination_log))
        _write_last_words(termination_log, render_last_words(report))
    click.echo(report.to_json() if is_json else report.to_text())


@cli.command(context_settings=ENVIRONMENT)
@click.option(
    "--cache-dir",
    required=True,
    type=click.Path(exists=False, file_okay=False),
    show_envvar=True,
    help="Root of this node's cache.",
)
@click.option("--json", "is_json", is_flag=True, envvar="STAGE_JSON", help="Print one JSON object.")
def status(cache_dir: str, is_json: bool) -> None:
    """Show what the cache holds: datasets, how complete they are, and who protects them.

    \b
    Examples:
      stage status --cache-dir /nvme/cache
      stage status --cache-dir /nvme/cache --json
    """  # noqa: D301 (click reads the backspace)
    from shards.cache import CacheLayout
    from shards.errors import NotStagedError
    from stager.overview import observe_cache, render_json
    from stager.prepare import check_cache_version

    layout = CacheLayout(_absolute_cache_dir(cache_dir))
    try:
        check_cache_version(layout)
    except FileNotFoundError as error:
        raise NotStagedError(f"{printable(layout.root)} is no Shardferry cache: nothing was staged there") from error
    overviews = observe_cache(layout)
    if is_json:
        click.echo(render_json(overviews))
    else:
        click.echo("\n".join(overview.to_text() for overview in overviews) or "no dataset is staged here")


def main() -> NoReturn:
    """Run the program; the console script calls this."""
    try:
        run_main(cli, "stage")
    except SystemExit as end:
        # a thread that is left is one that hangs in the kernel: the interpreter's own exit would wait for it
        if any(thread.name.startswith("stage-") for thread in threading.enumerate()):
            _leave_now(end.code if isinstance(end.code, int) else 1)
        raise


def _absolute_cache_dir(path: str) -> str:
    if not path:  # an unset variable in a script; the current directory is not what was meant
        raise click.BadParameter("the path is empty", param_hint="--cache-dir")
    return os.path.abspath(path)


def _start_log(*, verbose: bool, quiet: bool) -> None:
    if verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude each other")
    setup_logging(verbose=verbose, quiet=quiet)


@contextmanager
def _last_words(path: str) -> Iterator[None]:
    """Write the error that ends the run, if one does, where the kubelet finds it."""
    try:
        yield
    except (ShardferryError, OSError, click.ClickException) as error:
        from stager.report import render_failure

        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        _write_last_words(path, render_failure(exit_code_of(error), type(error).__name__, text))
        raise


def _write_last_words(path: str, line: bytes) -> None:
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


def _leave(error: StoppedError, termination_log: str) -> NoReturn:
    """End the process although a read hangs in the kernel."""
    from stager.report import render_failure

    code = exit_code_of(error)
    click.echo(f"stage: error: {error} (a read that hangs was left behind)", err=True)
    _write_last_words(termination_log, render_failure(code, type(error).__name__, str(error)))
    _leave_now(code)


def _leave_now(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
