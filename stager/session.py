"""What every stager does first: manifest → chosen shards → cache → lease; and the plan of what is missing."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from shardferry.console import Progress
from shards.cache import CacheLayout
from shards.errors import RemoteMissingError
from shards.manifest import MANIFEST_NAME, Manifest, ShardEntry
from stager.cache import DatasetDirectory
from stager.config import StageConfig
from stager.connections import Connections
from stager.inventory import observe_inventory, verify_files
from stager.lease import Lease, hold_lease, renewing
from stager.plan import StagePlan, WantedFile, plan_staging
from stager.prepare import explain_not_writable
from stager.remotes.base import Remote, read_whole_manifest
from stager.report import CacheTotals
from stager.reserve import Reservation, give_room_back, reserve_room
from stager.select import choose_shards, explain_empty
from stager.status import DatasetStatus
from stager.threads import task_group
from stager.twins import find_twins, is_right, link_twins

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """A dataset at its source, and what is wanted of it."""

    manifest: Manifest
    manifest_data: bytes
    """The file, as it is published."""
    wanted: tuple[ShardEntry, ...]
    """In the order of fetching."""
    hand_over: Callable[[DatasetDirectory], None] | None = None
    """Gives the dataset what was brought before its id was known, once it is protected; see :mod:`stager.survey`."""
    surveyed_bytes: int = 0
    """Of shards that were read from the source before."""

    @property
    def is_whole(self) -> bool:
        """Whether every shard is wanted."""
        return len(self.wanted) == self.manifest.num_shards


@dataclass(frozen=True, slots=True)
class Session:
    """A dataset that this process has a lease on, and the means to bring it."""

    config: StageConfig
    remote: Remote
    published: Published
    layout: CacheLayout
    dataset: DatasetDirectory
    connections: Connections
    lease: Lease
    totals: CacheTotals = field(default_factory=CacheTotals)
    """What was done so far; grows."""


async def read_published(config: StageConfig, remote: Remote) -> Published:
    """Read the manifest and choose the shards.

    Raises:
        RemoteError: it cannot be read.
        FormatError: it is damaged.
        SelectionError: nothing of the dataset is selected.
    """
    try:
        data = await read_whole_manifest(remote, MANIFEST_NAME)
    except RemoteMissingError as error:
        raise RemoteMissingError(
            f"{error}; give the directory of a published dataset (its {MANIFEST_NAME} is written last, when packing "
            "is done), or --without-manifest when these are shards of others"
        ) from error
    manifest = Manifest.from_json(data, name=f"{remote.url}/{MANIFEST_NAME}")
    wanted = choose_shards(manifest, config.selection, config.order)
    if not wanted and not config.allow_empty:
        raise explain_empty(manifest, config.selection)
    return Published(manifest, data, wanted)


@contextlib.asynccontextmanager
async def open_session(
    config: StageConfig, remote: Remote, published: Published, layout: CacheLayout
) -> AsyncIterator[Session]:
    """Protect the dataset of a source for the length of a ``with`` block, and for the lease's time after it.

    Raises:
        StageError: the cache is not usable.
    """
    manifest = published.manifest
    names = [name for _, shard in manifest.shards() for name in (shard.name, shard.index_name)]
    dataset = DatasetDirectory(layout, manifest.dataset_id, names, DatasetStatus.of_manifest(manifest, remote.url))
    connections = Connections(config.connections, manifest.block_bytes)
    with (
        contextlib.closing(connections),
        explain_not_writable(config.cache_dir),
        hold_lease(
            layout,
            dataset,
            config.holder,
            config.lease_ttl_seconds,
            config.retain,
            is_window=config.window_bytes is not None,
        ) as lease,
    ):
        async with renewing(lease, layout, connections):
            try:
                if published.hand_over is not None:
                    published.hand_over(dataset)
                yield Session(config, remote, published, layout, dataset, connections, lease)
            finally:
                give_room_back(layout, dataset, lease)


async def make_plan(session: Session, wanted: Sequence[ShardEntry]) -> StagePlan:
    """Find out what is missing of some shards; hashes what is there and not known to be right."""
    config, dataset, manifest = session.config, session.dataset, session.published.manifest
    inventory = observe_inventory(dataset, manifest, wanted)
    plan = plan_staging(manifest, inventory, config.verify, wanted)
    if plan.needed_steps and await _link_twins(session, plan):
        inventory = observe_inventory(dataset, manifest, wanted)
        plan = plan_staging(manifest, inventory, config.verify, wanted)
    if not plan.files_to_verify:
        return plan
    total_bytes = sum(file.size_bytes for file in plan.files_to_verify)
    with Progress("verifying staged files", total_bytes=total_bytes) as progress:
        verdicts = await verify_files(
            dataset,
            manifest,
            plan.files_to_verify,
            session.connections,
            lambda num_bytes: progress.advance(num_bytes=num_bytes),
        )
    return plan_staging(manifest, inventory.with_verdicts(verdicts), config.verify, wanted)


async def _link_twins(session: Session, plan: StagePlan) -> bool:
    """Give what other datasets of the cache have its names in this one; tell whether there was something."""
    block_bytes = session.published.manifest.block_bytes
    found = await session.connections.on_disk(find_twins, session.layout, session.dataset, plan, block_bytes)
    async with task_group() as group:
        checks = [group.create_task(session.connections.on_disk(is_right, session.layout, twin)) for twin in found]
    twins = [twin for twin, check in zip(found, checks, strict=True) if check.result()]
    if not twins:
        return False
    await _reserve(session, ())  # the manifest and the names take a little
    num_bytes = await session.connections.on_commit(link_twins, session.dataset, twins)
    await session.connections.on_commit(session.dataset.save_records)
    session.totals.linked_bytes += num_bytes
    logger.info("linked from other datasets", extra={"num_files": len(twins), "num_bytes": num_bytes})
    return True


async def _reserve(session: Session, files: tuple[WantedFile, ...]) -> None:
    reservation = Reservation(session.dataset, session.lease, files, session.published.manifest_data)
    report = await reserve_room(session.layout, session.config.space, reservation, session.connections)
    session.totals.evicted_bytes += report.evicted_bytes


async def prepare_to_fetch(session: Session, plan: StagePlan) -> None:
    """Take the room for what a plan needs, and make sure that a dataset with gaps does not pass for complete.

    Raises:
        NoSpaceError: it will not fit.
    """
    if not plan.needed_steps:
        session.dataset.save_records()
        return
    if plan.was_complete:
        # taken back before anything is replaced: a manifest means that the dataset is complete
        session.dataset.withdraw_manifest()
    await _reserve(session, tuple(step.file for step in plan.files() if step.is_needed))
    session.dataset.announce()
