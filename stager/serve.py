"""``stage serve``: stages while training starts, then keeps the dataset until it is told to stop.

Rules:
    * It does not end by itself: in a pod it would only be started again, and nobody would learn the exit code. What
      goes wrong stands in its live file, where ``stage wait`` and loaders find it.
    * What may pass is tried again and again; what will not pass is said, and that is all.
    * It can be killed and started again at any moment.
"""

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from shardferry.console import exit_code_of
from shardferry.console.exits import EXIT_BUG, TRANSIENT_CODES
from shards.cache import CacheLayout
from shards.errors import ShardferryError, StoppedError
from shards.progress import StageProgress, StageState
from stager.config import StageConfig
from stager.ending import until_stopped
from stager.hold import clean_quietly
from stager.http import Page, ProbeServer, probe_page
from stager.links import check_link, point_link
from stager.metrics import CONTENT_TYPE, render_metrics
from stager.metrics_file import write_metrics
from stager.prepare import explain_not_writable, open_cache
from stager.publisher import ProgressFile, open_progress
from stager.readiness import EVERYTHING, Minimum
from stager.remotes.base import Remote
from stager.remotes.retry import RetryPolicy
from stager.run import commit_if_complete, num_retries, open_source, stage_files
from stager.session import Session, open_session, read_published
from stager.stage_metrics import StageCounters, describe_state, stage_metrics
from stager.stalls import report_stalls
from stager.stuck import THREAD_PREFIX
from stager.window_run import keep_window

logger = logging.getLogger(__name__)

PAUSES = RetryPolicy(budget_seconds=float("inf"), first_seconds=2.0, limit_seconds=60.0)
"""Between two tries of what may pass."""

METRICS_SECONDS = 10.0
"""Between two states of the metrics file."""

CLEAN_SECONDS = 1.0
"""How long the end waits for the cleaning of the cache: within the 5 seconds that a stop may take, all in all."""


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What ``stage serve`` is told beside what ``stage run`` is told."""

    stage: StageConfig
    minimum: Minimum = EVERYTHING
    address: tuple[str, int] | None = None
    """Host and port for probes and metrics."""


def run_serve(
    config: ServeConfig,
    on_stuck: Callable[[StoppedError], None],
    make_remote: Callable[[StageConfig], Remote] = open_source,
) -> bool:
    """Serve until SIGTERM or SIGINT comes.

    Args:
        config: what to do.
        on_stuck: see :func:`stager.run.run_stage`.
        make_remote: gives what reads the source; called for each try.

    Returns:
        Whether everything wanted was there at the end.

    Raises:
        StageError: it could not begin: the cache is not usable, another one uses the holder's name, or the address
            for probes is not to be had.
    """
    stage = config.stage
    for link in stage.links:
        check_link(link)
    layout = open_cache(stage.cache_dir)
    progress = StageProgress(
        holder=stage.holder,
        state=StageState.STARTING,
        source=stage.source,
        selection=stage.selection.to_text(),
        window_bytes=stage.window_bytes or 0,
    )
    with explain_not_writable(stage.cache_dir):
        shown = open_progress(layout, progress, is_numbered=False)
    server = Server(config, layout, shown, make_remote)
    with shown, _probes(config.address, server.pages()):
        with suppress(StoppedError):
            asyncio.run(until_stopped(server.serve(), on_stuck))
        _clean_up(layout, stage)
        return shown.progress.state is StageState.STAGED


def _clean_up(layout: CacheLayout, config: StageConfig) -> None:
    """Remove what nobody needs now that training has ended. Whoever comes next goes on with what takes too long."""
    thread = threading.Thread(
        target=clean_quietly, args=(layout, config.space, CLEAN_SECONDS), name=f"{THREAD_PREFIX}clean", daemon=True
    )
    thread.start()
    thread.join(CLEAN_SECONDS)


class Server:
    """One ``stage serve``.

    Args:
        config: what to do.
        layout: of the cache.
        shown: where its state is told.
        make_remote: gives what reads the source.
    """

    def __init__(
        self,
        config: ServeConfig,
        layout: CacheLayout,
        shown: ProgressFile,
        make_remote: Callable[[StageConfig], Remote],
    ) -> None:
        self._config = config
        self._layout = layout
        self._shown = shown
        self._make_remote = make_remote
        self._counters = StageCounters()

    async def serve(self) -> None:
        """Stage, and keep what is staged; ends when it is cancelled."""
        writer = asyncio.create_task(self._write_metrics_now_and_then())
        try:
            await self._serve()
        finally:
            writer.cancel()
            write_metrics(self._layout, self._shown.progress, self._counters)

    async def _write_metrics_now_and_then(self) -> None:
        while True:
            write_metrics(self._layout, self._shown.progress, self._counters)
            await asyncio.sleep(METRICS_SECONDS)

    async def _serve(self) -> None:
        for attempt in itertools.count():
            try:
                await self._serve_once()
            except (ShardferryError, OSError) as error:
                code = exit_code_of(error)
                if code == EXIT_BUG:
                    raise
                self._counters.add_error(error)
                facts = {"reason": type(error).__name__, "code": code, "error": str(error)}
                if code not in TRANSIENT_CODES:
                    self._shown.fail(StageState.FAILED, code, error)
                    logger.error("staging has failed; waiting to be stopped", extra=facts)  # noqa: TRY400
                    await asyncio.Event().wait()
                self._shown.fail(StageState.STAGING, code, error)
                pause_seconds = PAUSES.longest_wait(attempt)
                logger.warning("staging was interrupted, trying again", extra={**facts, "pause_seconds": pause_seconds})
                await asyncio.sleep(pause_seconds)

    async def _serve_once(self) -> None:
        """Stage once and keep it; ends only by an exception."""
        config = self._config.stage
        remote = self._make_remote(config)
        try:
            async with report_stalls(remote) as watched:
                published = await read_published(config, watched)
                async with open_session(config, watched, published, self._layout) as session:
                    self._begin(session)
                    try:
                        if config.window_bytes is None:
                            await self._stage_all(session)
                            await asyncio.Event().wait()
                        else:
                            await keep_window(session, self._layout, self._shown, self._config.minimum, self._counters)
                    except asyncio.CancelledError:
                        # whoever uses the dataset has ended, or holds it by itself
                        session.lease.release()
                        raise
        finally:
            self._counters.retries += num_retries(remote)
            await remote.close()

    def _begin(self, session: Session) -> None:
        """Show what is going to be staged, and let the links lead there: training starts before everything is there."""
        self._shown.show(
            replace(
                self._shown.progress,
                state=StageState.STAGING,
                source=session.remote.url,
                dataset_id=session.published.manifest.dataset_id,
                path=session.dataset.path,
            )
        )
        for link in self._config.stage.links:
            point_link(link, session.dataset.path)

    async def _stage_all(self, session: Session) -> None:
        plan, totals = await stage_files(session, self._shown, self._config.minimum)
        self._counters.cached_bytes += plan.kept_bytes + totals.resumed_bytes + totals.peer_bytes
        commit_if_complete(session, plan)
        session.lease.finish()
        self._counters.last_success_at = time.time()
        self._shown.show(replace(self._shown.progress, state=StageState.STAGED, code=0, reason="", message=""))
        logger.info("staged; keeping the dataset until told to stop", extra={"path": session.dataset.path})

    def pages(self) -> Mapping[str, Callable[[], Page]]:
        """Give what probes and Prometheus ask for."""

        def probe(is_good: Callable[[StageProgress], bool]) -> Callable[[], Page]:
            def page() -> Page:
                progress = self._shown.progress
                return probe_page(is_good=is_good(progress), text=describe_state(progress))

            return page

        return {
            "/livez": probe(lambda progress: True),
            "/startupz": probe(lambda progress: bool(progress.dataset_id)),
            "/readyz": probe(lambda progress: progress.is_ready and progress.state is not StageState.FAILED),
            "/metrics": lambda: Page(
                render_metrics(stage_metrics(self._shown.progress, self._counters)), content_type=CONTENT_TYPE
            ),
        }


class _NoProbes:
    """No server."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _probes(address: tuple[str, int] | None, pages: Mapping[str, Callable[[], Page]]) -> "ProbeServer | _NoProbes":
    if address is None:
        return _NoProbes()
    server = ProbeServer(address, pages)
    logger.info("listening for probes", extra={"port": server.port})
    return server
