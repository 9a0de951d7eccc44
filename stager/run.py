"""One run of the stager from beginning to end: source → plan → space → fetch → manifest → links → report."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from shardferry.console import Progress
from shards.cache import CacheLayout
from shards.errors import ShardferryError, SizeMismatchError, StoppedError
from shards.manifest import ShardEntry
from shards.progress import StageProgress, StageState
from stager.bandwidth import Bandwidth, LimitedRemote
from stager.config import StageConfig
from stager.ending import until_stopped
from stager.fetch import Fetcher
from stager.inventory import observe_inventory
from stager.links import check_link, point_link
from stager.metrics_file import write_metrics
from stager.plan import StagePlan, plan_staging
from stager.prepare import open_cache
from stager.publisher import ProgressFile, open_progress
from stager.readiness import EVERYTHING, Minimum
from stager.remotes.base import Remote
from stager.remotes.open import open_remote
from stager.remotes.retry import RetryingRemote
from stager.report import FetchTotals, StageReport
from stager.session import Session, make_plan, open_session, prepare_to_fetch, read_published
from stager.stage_metrics import StageCounters
from stager.stalls import report_stalls
from stager.tracker import Tracker
from stager.verify import Verify

logger = logging.getLogger(__name__)


def open_source(config: StageConfig) -> Remote:
    """Give what reads the source of a run, with its repeats."""
    rate = config.remote.bandwidth_bytes_per_second
    if rate is None:
        return open_remote(config.source, config.remote, config.connections)
    bandwidth = Bandwidth(CacheLayout(config.cache_dir).bandwidth_path, rate)
    return open_remote(
        config.source, config.remote, config.connections, lambda remote: LimitedRemote(remote, bandwidth)
    )


def run_stage(
    config: StageConfig,
    on_stuck: Callable[[StoppedError], None],
    make_remote: Callable[[StageConfig], Remote] = open_source,
) -> StageReport:
    """Stage a dataset; SIGTERM, SIGINT and the deadline stop it cleanly while this runs.

    Args:
        config: what to do.
        on_stuck: called when a stop waits for longer than :data:`stager.ending.STOP_SECONDS` because a read hangs in
            the kernel; it should end the process.
        make_remote: gives what reads the source.

    Raises:
        StoppedError: a signal came, or the deadline passed; partials are kept.
        ShardferryError: anything else that is not a bug, see :func:`stage_dataset`.
        OSError: the local disk failed.
    """
    progress: list[Progress] = []

    async def run() -> StageReport:
        return await until_stopped(
            stage_dataset(config, make_remote(config), progress.append),
            on_stuck,
            config.deadline_seconds,
            lambda: _describe_progress(progress),
        )

    return asyncio.run(run())


async def stage_dataset(
    config: StageConfig, remote: Remote, on_start: Callable[[Progress], None] = lambda progress: None
) -> StageReport:
    """Stage the dataset of a remote into the cache.

    Args:
        config: what to do; its ``source`` is not looked at.
        remote: where the dataset is published; closed at the end.
        on_start: given what counts the bytes, when fetching begins.

    Raises:
        ShardferryError: see :mod:`stager.fetch`; also when the manifest is damaged, nothing is selected, the cache is
            not usable or there is not enough space.
        OSError: the local disk failed.
    """
    started_at = time.monotonic()
    try:
        async with report_stalls(remote) as watched, contextlib.AsyncExitStack() as stack:
            if config.without_manifest:
                from stager.survey import survey  # noqa: PLC0415 (pyarrow: the usual run does without)

                surveyed = survey(config, watched, open_cache(config.cache_dir))
                published = await stack.enter_async_context(surveyed)
            else:
                published = await read_published(config, watched)
            for link in config.links:
                check_link(link)
            layout = open_cache(config.cache_dir, config.group_id)
            async with open_session(config, watched, published, layout) as session:
                progress = StageProgress(
                    holder=session.lease.holder,
                    state=StageState.STAGING,
                    source=remote.url,
                    selection=config.selection.to_text(),
                    dataset_id=published.manifest.dataset_id,
                    path=session.dataset.path,
                )
                counters = StageCounters()
                with open_progress(layout, progress, is_numbered=True) as shown:
                    try:
                        plan, totals = await stage_files(session, shown, EVERYTHING, on_start)
                        commit_if_complete(session, plan)
                        session.lease.finish()
                        counters.last_success_at = time.time()
                        counters.cached_bytes = plan.kept_bytes + totals.resumed_bytes + totals.peer_bytes
                        shown.show(replace(shown.progress, state=StageState.STAGED))
                    except (ShardferryError, OSError) as error:
                        counters.add_error(error)
                        raise
                    finally:
                        counters.retries = num_retries(remote)
                        write_metrics(layout, shown.progress, counters)
            for link in config.links:
                point_link(link, session.dataset.path)
    finally:
        await remote.close()
    return StageReport(
        path=session.dataset.path,
        dataset_id=published.manifest.dataset_id,
        source=remote.url,
        selection=config.selection.to_text(),
        num_shards=len(published.wanted),
        num_samples=sum(shard.num_samples for shard in published.wanted),
        total_bytes=plan.kept_bytes + plan.needed_bytes,
        kept_bytes=max(plan.kept_bytes - session.totals.linked_bytes, 0),
        linked_bytes=session.totals.linked_bytes,
        evicted_bytes=session.totals.evicted_bytes,
        resumed_bytes=max(totals.resumed_bytes - published.surveyed_bytes, 0),
        fetched_bytes=totals.fetched_bytes + published.surveyed_bytes,
        peer_bytes=totals.peer_bytes,
        retries=num_retries(remote),
        seconds=time.monotonic() - started_at,
    )


def num_retries(remote: Remote) -> int:
    """Give how many reads of a remote were repeated."""
    return remote.num_retries if isinstance(remote, RetryingRemote) else 0


async def stage_files(
    session: Session,
    shown: ProgressFile,
    minimum: Minimum,
    on_start: Callable[[Progress], None] = lambda progress: None,
) -> tuple[StagePlan, FetchTotals]:
    """Bring every wanted file under its final name; give the plan that was carried out and what it took.

    Args:
        session: the dataset.
        shown: where others see how far this is.
        minimum: when training may start.
        on_start: given what counts the bytes, when fetching begins.
    """
    wanted = session.published.wanted
    plan = await make_plan(session, wanted)
    await prepare_to_fetch(session, plan)
    tracker = Tracker(wanted, (step.shard.name for step in plan.steps if not step.is_needed))

    def show(fetched_bytes: int) -> None:
        is_ready = minimum.is_met(tracker.num_ready, tracker.ready_bytes, is_complete=tracker.is_complete)
        shown.count(tracker, fetched_bytes, is_ready=is_ready)

    show(0)
    if not plan.needed_steps:
        return plan, FetchTotals()
    logger.info(
        "staging",
        extra={
            "dataset_id": session.published.manifest.dataset_id,
            "source": session.remote.url,
            "selection": session.config.selection.to_text(),
            "num_shards": len(plan.needed_steps),
            "needed_bytes": plan.needed_bytes,
            "kept_bytes": plan.kept_bytes,
        },
    )
    with Progress("staging", total_bytes=plan.needed_bytes) as progress:
        on_start(progress)

        def on_bytes(num_bytes: int) -> None:
            progress.advance(num_bytes=num_bytes)
            show(fetcher.totals.fetched_bytes)

        def on_shard(shard: ShardEntry) -> None:
            tracker.add(shard.name)
            show(fetcher.totals.fetched_bytes)

        fetcher = Fetcher(session.remote, session.dataset, session.connections, on_bytes, on_shard)
        return plan, await fetcher.fetch(plan.needed_steps)


def commit_if_complete(session: Session, plan: StagePlan) -> None:
    """Say that the dataset is complete, when it is.

    Args:
        session: the dataset.
        plan: was carried out.

    Raises:
        SizeMismatchError: somebody changed a file of the cache meanwhile.
    """
    dataset, published = session.dataset, session.published
    if dataset.read_manifest() == published.manifest_data:
        return
    _check_complete(session, plan)
    if published.is_whole or _is_all_there(session):
        dataset.commit_manifest(published.manifest_data)


def _is_all_there(session: Session) -> bool:
    """Whether what others wanted of the dataset is there as well, so that together it is the whole."""
    dataset, manifest = session.dataset, session.published.manifest
    plan = plan_staging(manifest, observe_inventory(dataset, manifest), Verify.SIZE)
    return not plan.needed_steps and not plan.files_to_verify


def _check_complete(session: Session, plan: StagePlan) -> None:
    """Look at every file once more before the dataset is called complete.

    Raises:
        SizeMismatchError: somebody changed a file of the cache meanwhile.
    """
    for step in plan.files():
        found = session.dataset.observe(step.file.name)
        actual_bytes = 0 if found is None else found.size_bytes
        if found is None or actual_bytes != step.file.size_bytes:
            raise SizeMismatchError(
                session.dataset.final_path(step.file.name),
                step.file.size_bytes,
                actual_bytes,
                "something else changes the files of this cache; run again",
            )


def _describe_progress(progress: list[Progress]) -> str:
    if not progress:
        return "the source's manifest had not been read"
    return f"{progress[-1].describe()}"
