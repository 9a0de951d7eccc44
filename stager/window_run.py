"""Keeps a window over a dataset that is bigger than the disk: fetches ahead of its readers, drops behind them."""

import asyncio
import logging
import time
from collections.abc import Sequence

from shardferry.console.units import format_bytes
from shards.cache import CacheLayout
from shards.epoch_order import ORDER_VERSION, OrderSpec, Shuffle, shard_order
from shards.errors import ConfigurationError, printable
from shards.manifest import ShardEntry
from shards.positions import ReadingPosition
from shards.progress import StageState
from stager.fetch import Fetcher
from stager.holders import read_leases
from stager.inventory import observe_inventory
from stager.order import FetchOrder
from stager.publisher import ProgressFile
from stager.readers import Readers, read_positions
from stager.readiness import Minimum
from stager.select import choose_shards
from stager.session import Session, make_plan, prepare_to_fetch
from stager.stage_metrics import StageCounters
from stager.tracker import Tracker, bytes_of
from stager.window import Place, WindowPlan, least_window_bytes, plan_window

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
"""How soon a reader's progress is noticed; a few small files are read each time."""

WARN_SECONDS = 60.0
"""Between two warnings of the same kind."""

_BATCH_BLOCKS = 2
"""Blocks of each connection that one batch holds at least: enough to keep all busy, and soon done when plans change."""


async def keep_window(
    session: Session, layout: CacheLayout, shown: ProgressFile, minimum: Minimum, counters: StageCounters
) -> None:
    """Bring what the readers need next and drop what they have passed, until cancelled.

    Raises:
        ConfigurationError: the window is too small for the dataset, or several splits are selected.
        ShardferryError: see :mod:`stager.fetch`.
    """
    keeper = WindowKeeper(session, layout, shown, minimum, counters)
    await keeper.run()


class WindowKeeper:
    """One window over one split.

    Args:
        session: the dataset.
        layout: of the cache.
        shown: where the state is told.
        minimum: when training may start.
        counters: for metrics.
    """

    def __init__(
        self,
        session: Session,
        layout: CacheLayout,
        shown: ProgressFile,
        minimum: Minimum,
        counters: StageCounters,
    ) -> None:
        self._session = session
        self._layout = layout
        self._shown = shown
        self._minimum = minimum
        self._counters = counters
        published = session.published
        self._shards = choose_shards(published.manifest, session.config.selection, None)
        self._window_bytes = session.config.window_bytes or 0
        self._order = _check(session, self._shards, self._window_bytes)
        self._sequences: dict[tuple[OrderSpec, int], Sequence[ShardEntry]] = {}
        self._places = [Place(self._order.epoch, 0, lambda epoch: self._sequence(self._order.spec, epoch))]
        self._by_name = {shard.name: shard for shard in self._shards}
        self._tracker = Tracker(published.wanted)
        self._warned_at: dict[str, float] = {}
        self._fetched_bytes = 0

    async def run(self) -> None:
        """Keep the window until cancelled."""
        await self._observe()
        logger.info(
            "keeping a window",
            extra={
                "dataset_id": self._session.published.manifest.dataset_id,
                "source": self._session.remote.url,
                "split": self._split,
                "window_bytes": self._window_bytes,
                "num_shards": len(self._shards),
                "staged_bytes": self._tracker.staged_bytes,
            },
        )
        while True:
            readers = read_positions(self._layout, self._session.dataset.dataset_id)
            may_drop = self._follow(readers)
            staged = {name: self._by_name[name] for name in self._by_name if self._tracker.has(name)}
            plan = plan_window(self._places, staged, self._window_bytes)
            if plan.drop and may_drop and not self._is_blocked():
                self._drop(plan)
            batch = self._choose_batch(plan)
            if batch:
                await self._fetch(batch)
            else:
                self._show(state=StageState.STAGED if not plan.missing else StageState.STAGING)
                await asyncio.sleep(POLL_SECONDS)

    async def _observe(self) -> None:
        """Find out what is there already; all of it is checked."""
        dataset, manifest = self._session.dataset, self._session.published.manifest
        inventory = observe_inventory(dataset, manifest, self._shards)
        there = [shard for shard in self._shards if shard.name in inventory.files]
        plan = await make_plan(self._session, there)
        for step in plan.steps:
            if not step.is_needed:
                self._tracker.add(step.shard.name)
        self._counters.cached_bytes += plan.kept_bytes
        dataset.save_records()

    def _follow(self, readers: Readers) -> bool:
        """Take over where the readers are; False when nothing may be dropped now."""
        places = []
        is_known = not readers.unknown
        for position in readers.positions:
            if position.split != self._split:
                continue
            spec = self._spec_of(position)
            if spec is None:
                is_known = False
            else:
                places.append(self._place(spec, position))
        if not is_known:
            self._warn("a reader lives whose order is another one, or not understood; nothing is dropped")
        if places:
            self._places = places
        return is_known and bool(places)

    def _spec_of(self, position: ReadingPosition) -> OrderSpec | None:
        """Give the order of a reader; None when a window cannot follow it."""
        if position.order_version != ORDER_VERSION or position.num_shards != len(self._shards):
            return None
        # with "full", each batch may need any shard
        if position.shuffle not in ("block", "none") or position.seed >= 2**63 or position.window_shards < 1:
            return None
        shuffle: Shuffle = "block" if position.shuffle == "block" else "none"
        return OrderSpec(shuffle=shuffle, seed=position.seed, window_shards=position.window_shards)

    def _place(self, spec: OrderSpec, position: ReadingPosition) -> Place:
        return Place(position.epoch, position.num_shards_passed, lambda epoch: self._sequence(spec, epoch))

    def _sequence(self, spec: OrderSpec, epoch: int) -> Sequence[ShardEntry]:
        key = spec, epoch
        if key not in self._sequences:
            if len(self._sequences) > 8:
                self._sequences.clear()
            self._sequences[key] = [self._shards[place] for place in shard_order(spec, epoch, len(self._shards))]
        return self._sequences[key]

    @property
    def _split(self) -> str:
        """The one split that the window moves over."""
        (split,) = {
            split.name for split, shard in self._session.published.manifest.shards() if shard.name in self._by_name
        }
        return split

    def _is_blocked(self) -> bool:
        """Whether the dataset is somebody else's as well."""
        dataset = self._session.dataset
        if dataset.read_manifest() is not None:
            return True
        others = [
            lease.holder
            for lease in read_leases(self._layout, dataset.dataset_id)
            if lease.holder != self._session.lease.holder
            and not lease.is_window
            and (lease.is_locked or lease.seconds_left > 0)
        ]
        if others:
            self._warn("others have a lease on this dataset as well; nothing is dropped", holders=", ".join(others))
        return bool(others)

    def _drop(self, plan: WindowPlan) -> None:
        names = [name for shard in plan.drop for name in (shard.name, shard.index_name)]
        self._session.dataset.drop(names)
        for shard in plan.drop:
            self._tracker.remove(shard.name)
            self._counters.dropped_bytes += bytes_of(shard)
        logger.debug("dropped", extra={"num_shards": len(plan.drop)})

    def _choose_batch(self, plan: WindowPlan) -> list[ShardEntry]:
        """Give the most urgent missing shards for which there is room; not more than keeps the connections busy."""
        connections = self._session.connections
        enough_bytes = _BATCH_BLOCKS * connections.count * connections.block_bytes
        room = self._window_bytes - self._tracker.staged_bytes
        batch: list[ShardEntry] = []
        size_bytes = 0
        for shard in plan.missing:
            if size_bytes + bytes_of(shard) > room or size_bytes >= enough_bytes:
                break
            batch.append(shard)
            size_bytes += bytes_of(shard)
        if plan.missing and not batch:
            self._warn("the window is full of what may not be dropped", missing=plan.missing[0].name)
        return batch

    async def _fetch(self, batch: Sequence[ShardEntry]) -> None:
        plan = await make_plan(self._session, batch)
        await prepare_to_fetch(self._session, plan)
        self._show(state=StageState.STAGING)

        def on_shard(shard: ShardEntry) -> None:
            self._tracker.add(shard.name)
            self._show(state=StageState.STAGING)

        for step in plan.steps:
            if not step.is_needed:
                on_shard(step.shard)
        session = self._session
        fetcher = Fetcher(session.remote, session.dataset, session.connections, lambda num_bytes: None, on_shard)
        totals = await fetcher.fetch(plan.needed_steps)
        self._fetched_bytes += totals.fetched_bytes
        self._counters.cached_bytes += totals.peer_bytes + totals.resumed_bytes
        self._show(state=StageState.STAGING)

    def _show(self, *, state: StageState) -> None:
        if state is StageState.STAGED and self._shown.progress.state is not state:
            if not self._counters.last_success_at:
                logger.info("window filled", extra={"num_shards": self._tracker.num_staged})
            self._counters.last_success_at = time.time()
        tracker = self._tracker
        is_ready = self._minimum.is_met(
            tracker.num_ready, tracker.ready_bytes, is_complete=state is StageState.STAGED or tracker.is_complete
        )
        self._shown.count(tracker, self._fetched_bytes, is_ready=is_ready, state=state)

    def _warn(self, event: str, **facts: str) -> None:
        now = time.monotonic()
        if now - self._warned_at.get(event, -WARN_SECONDS) >= WARN_SECONDS:
            self._warned_at[event] = now
            logger.warning("%s", event, extra=facts)


def _check(session: Session, shards: Sequence[ShardEntry], window_bytes: int) -> FetchOrder:
    """Give the order, when a window can follow it.

    Raises:
        ConfigurationError: it cannot.
    """
    manifest, config = session.published.manifest, session.config
    names = {shard.name for shard in shards}
    splits = [split.name for split in manifest.splits if any(shard.name in names for shard in split.shards)]
    if len(splits) > 1:
        raise ConfigurationError(
            f"a window moves over one split, but {', '.join(map(printable, splits))} are selected; choose one with "
            "--select split=NAME, and stage the others with a stage run of their own"
        )
    order = config.order or FetchOrder(OrderSpec(shuffle="none"))
    width = order.spec.window_shards if order.spec.shuffle == "block" else 1
    least_bytes = least_window_bytes(shards, width)
    if window_bytes < least_bytes:
        raise ConfigurationError(
            f"a window of {format_bytes(window_bytes)} is too small: its reader needs up to {width + 1} shards at "
            f"once, here {format_bytes(least_bytes)} ({least_bytes} bytes); give a bigger --window, or let the loader "
            "shuffle among fewer shards (--window-shards)"
        )
    return order
