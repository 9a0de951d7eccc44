"""``stage janitor``."""

import click

from shardferry.console import ByteSize, Duration
from stager.commands.options import absolute_cache_dir, cache_dir_option, log_options, start_log
from stager.commands.space import SpaceOptions, space_options


@click.command("janitor")
@cache_dir_option()
@space_options
@click.option(
    "--interval",
    type=Duration(),
    default=60.0,
    show_default="1m",
    show_envvar=True,
    help="Time between two passes over the cache.",
)
@click.option(
    "--scrub-rate",
    type=ByteSize(),
    default=10 * 1024 * 1024,
    show_default="10MiB",
    show_envvar=True,
    help="Bytes a second that are read to compare staged files with their digests, all of them once a day; 0 for none.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    show_envvar=True,
    help="Serve /metrics for Prometheus and /livez for the kubelet there, for instance on :9464.",
)
@log_options
def command(
    cache_dir: str,
    space: SpaceOptions,
    interval: float,
    scrub_rate: int,
    metrics: str | None,
    verbose: bool,
    quiet: bool,
) -> None:
    """Keep the cache of this node clean until SIGTERM: one process a node, for instance a DaemonSet.

    It does what stage gc does, again and again, and compares what is staged with its digests: a file that the disk has
    damaged is set aside, and the next stage run fetches it. Nothing depends on a janitor; stagers make room themselves.

    \b
    Examples:
      stage janitor --cache-dir /nvme/cache --quota 2TiB --metrics :9464
      stage janitor --cache-dir /nvme/cache --interval 5m --scrub-rate 0
    """  # noqa: D301 (click reads the backspace)
    import contextlib
    import signal
    import threading

    from stager.http import Page, ProbeServer, parse_address, probe_page
    from stager.janitor import Janitor
    from stager.metrics import CONTENT_TYPE
    from stager.prepare import explain_not_writable, open_cache
    from stager.scrub import Scrubber

    start_log(verbose=verbose, quiet=quiet)
    if interval <= 0:
        raise click.BadParameter("the time between two passes must be more than 0", param_hint="--interval")
    layout = open_cache(absolute_cache_dir(cache_dir))
    try:
        space.to_limits(layout.root)
        address = None if metrics is None else parse_address(metrics)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    janitor = Janitor(layout, lambda: space.to_limits(layout.root), interval, stop)
    pages = {
        "/metrics": lambda: Page(janitor.state.render(), content_type=CONTENT_TYPE),
        "/livez": lambda: probe_page(
            is_good=janitor.is_alive, text="alive" if janitor.is_alive else "no pass for long"
        ),
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(explain_not_writable(layout.root))
        if address is not None:
            server = stack.enter_context(ProbeServer(address, pages))
            click.echo(f"stage: metrics on port {server.port}", err=True)
        janitor.run(Scrubber(layout, scrub_rate, stop) if scrub_rate else None)
