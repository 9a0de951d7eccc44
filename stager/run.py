"""One run of the stager from beginning to end: source → plan → space → fetch → manifest → links → report."""

import asyncio
import contextlib
import logging
import random
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from shardferry.console import Progress
from shards.errors import NoSpaceError, RemoteMissingError, SizeMismatchError, StoppedError
from shards.files import free_bytes
from shards.manifest import MANIFEST_NAME, Manifest
from stager.cache import DatasetDirectory
from stager.config import StageConfig
from stager.connections import Connections
from stager.fetch import Fetcher
from stager.inventory import observe_inventory, verify_files
from stager.lease import Lease, hold_lease
from stager.links import check_link, point_link
from stager.plan import StagePlan, plan_staging
from stager.prepare import explain_not_writable, open_cache
from stager.remotes.base import Remote, read_whole_manifest
from stager.remotes.posix import PosixRemote
from stager.remotes.retry import RetryingRemote, backoff_delays
from stager.report import FetchTotals, StageReport
from stager.status import DatasetStatus

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

STOP_SECONDS = 3.0
"""How long a stop waits for reads that are under way before it leaves them behind."""

_NUM_RETRIES = 4
_FIRST_RETRY_SECONDS = 0.5
_LONGEST_RETRY_SECONDS = 8.0


def open_remote(config: StageConfig) -> Remote:
    """Give what reads the source of a run, with its repeats."""

    def delays() -> Iterator[float]:
        return backoff_delays(_NUM_RETRIES, first_seconds=_FIRST_RETRY_SECONDS, limit_seconds=_LONGEST_RETRY_SECONDS)

    return RetryingRemote(PosixRemote(config.source_dir, config.connections), delays, random.random)


def run_stage(
    config: StageConfig,
    on_stuck: Callable[[StoppedError], None],
    make_remote: Callable[[StageConfig], Remote] = open_remote,
) -> StageReport:
    """Stage a dataset; SIGTERM and SIGINT stop it cleanly while this runs.

    Args:
        config: what to do.
        on_stuck: called when a stop waits for longer than :data:`STOP_SECONDS` because a read hangs in the kernel; it
            should end the process.
        make_remote: gives what reads the source.

    Raises:
        StoppedError: a signal came; partials are kept.
        ShardferryError: anything else that is not a bug, see :func:`stage_dataset`.
        OSError: the local disk failed.
    """

    async def run() -> StageReport:
        return await _until_signal(stage_dataset(config, make_remote(config)), on_stuck)

    return asyncio.run(run())


async def stage_dataset(config: StageConfig, remote: Remote) -> StageReport:
    """Stage the dataset of a remote into the cache.

    Args:
        config: what to do; its ``source_dir`` is not looked at.
        remote: where the dataset is published; closed at the end.

    Raises:
        ShardferryError: see :mod:`stager.fetch`; also when the manifest is damaged, the cache is not usable or there
            is not enough space.
        OSError: the local disk failed.
    """
    started_at = time.monotonic()
    try:
        try:
            manifest_data = await read_whole_manifest(remote, MANIFEST_NAME)
        except RemoteMissingError as error:
            raise RemoteMissingError(
                f"{error}; give the directory of a published dataset (its {MANIFEST_NAME} is written last, when "
                "packing is done)"
            ) from error
        manifest = Manifest.from_json(manifest_data, name=f"{remote.url}/{MANIFEST_NAME}")
        for link in config.links:
            check_link(link)
        layout = open_cache(config.cache_dir)
        names = [name for _, shard in manifest.shards() for name in (shard.name, shard.index_name)]
        status = DatasetStatus.of_manifest(manifest, remote.url)
        dataset = DatasetDirectory(layout, manifest.dataset_id, names, status)
        connections = Connections(config.connections, manifest.block_bytes)
        with (
            contextlib.closing(connections),
            explain_not_writable(config.cache_dir),
            hold_lease(layout, dataset, config.holder, config.lease_ttl_seconds) as lease,
        ):
            plan, totals = await _stage_files(config, remote, manifest, dataset, connections, lease)
            if dataset.read_manifest() != manifest_data:
                _check_complete(dataset, plan)
                dataset.commit_manifest(manifest_data)
            lease.finish()
        for link in config.links:
            point_link(link, dataset.path)
    finally:
        await remote.close()
    return StageReport(
        path=dataset.path,
        dataset_id=manifest.dataset_id,
        source=remote.url,
        num_shards=manifest.num_shards,
        num_samples=manifest.num_samples,
        total_bytes=plan.kept_bytes + plan.needed_bytes,
        kept_bytes=plan.kept_bytes,
        resumed_bytes=totals.resumed_bytes,
        fetched_bytes=totals.fetched_bytes,
        peer_bytes=totals.peer_bytes,
        retries=remote.num_retries if isinstance(remote, RetryingRemote) else 0,
        seconds=time.monotonic() - started_at,
    )


async def _stage_files(
    config: StageConfig,
    remote: Remote,
    manifest: Manifest,
    dataset: DatasetDirectory,
    connections: Connections,
    lease: Lease,
) -> tuple[StagePlan, FetchTotals]:
    """Bring every file under its final name; give the plan that was carried out and what it took."""
    plan = await _make_plan(config, manifest, dataset, connections)
    lease.reserve(plan.needed_space_bytes)
    if not plan.needed_steps:
        dataset.save_records()
        return plan, FetchTotals()
    check_space(dataset.path, plan)
    if plan.was_complete:
        # taken back before anything is replaced: a manifest means that the dataset is complete
        dataset.withdraw_manifest()
    dataset.announce()
    logger.info(
        "staging",
        extra={
            "dataset_id": manifest.dataset_id,
            "source": remote.url,
            "num_shards": len(plan.needed_steps),
            "needed_bytes": plan.needed_bytes,
            "kept_bytes": plan.kept_bytes,
        },
    )
    with Progress("staging", total_bytes=plan.needed_bytes) as progress:
        fetcher = Fetcher(remote, dataset, connections, lambda num_bytes: progress.advance(num_bytes=num_bytes))
        return plan, await fetcher.fetch(plan.needed_steps)


async def _make_plan(
    config: StageConfig, manifest: Manifest, dataset: DatasetDirectory, connections: Connections
) -> StagePlan:
    inventory = observe_inventory(dataset, manifest)
    plan = plan_staging(manifest, inventory, config.verify)
    if not plan.files_to_verify:
        return plan
    total_bytes = sum(file.size_bytes for file in plan.files_to_verify)
    with Progress("verifying staged files", total_bytes=total_bytes) as progress:
        verdicts = await verify_files(
            dataset,
            manifest,
            plan.files_to_verify,
            connections,
            lambda num_bytes: progress.advance(num_bytes=num_bytes),
        )
    return plan_staging(manifest, inventory.with_verdicts(verdicts), config.verify)


def check_space(path: str, plan: StagePlan) -> None:
    """Check, before the first byte, that everything will fit.

    Raises:
        NoSpaceError: it will not.
    """
    free = free_bytes(path)
    if plan.needed_space_bytes > free:
        raise NoSpaceError(
            path, plan.needed_space_bytes, free, advice="free space there or give another --cache-dir, then run again"
        )


def _check_complete(dataset: DatasetDirectory, plan: StagePlan) -> None:
    """Look at every file once more before the dataset is called complete.

    Raises:
        SizeMismatchError: somebody changed a file of the cache meanwhile.
    """
    for step in plan.files():
        found = dataset.observe(step.file.name)
        actual_bytes = 0 if found is None else found.size_bytes
        if found is None or actual_bytes != step.file.size_bytes:
            raise SizeMismatchError(
                dataset.final_path(step.file.name),
                step.file.size_bytes,
                actual_bytes,
                "something else changes the files of this cache; run again",
            )


async def _until_signal(work: Coroutine[Any, Any, Result], on_stuck: Callable[[StoppedError], None]) -> Result:
    """Await work until SIGTERM or SIGINT comes; then cancel it and raise :class:`StoppedError`."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    stopped_by: list[StoppedError] = []

    def stop(number: signal.Signals) -> None:
        if stopped_by:
            return
        stopped_by.append(StoppedError(number.name))
        task.cancel()
        loop.call_later(STOP_SECONDS, on_stuck, stopped_by[0])

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not stopped_by:
            raise
        raise stopped_by[0] from None
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
