"""The long-running cleaner of a node: a pass over the cache every minute, scrubbing in between, metrics.

It needs nothing from a cluster and nobody waits for it: stagers clean on their own when they need room. It is for what
happens between runs, such as datasets that are to be deleted after a job whose node was lost.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from shardferry import __version__
from shards.cache import CacheLayout
from shards.errors import StageError
from stager.limits import SpaceLimits
from stager.metrics import Metric, MetricKind, Sample, counter, gauge, render_metrics
from stager.reclaim import clean, hold_gc_lock
from stager.scrub import Scrubber, ScrubTotals
from stager.space import CacheUsage, CleaningReport, evictable_bytes, free_for_cache
from stager.stager_metrics import StagerMetrics
from stager.usage import observe_usage

logger = logging.getLogger(__name__)

LATE_PASSES = 3
"""After so many intervals without a pass, the janitor says that it does not live."""

_PATIENCE_SECONDS = 2.0


@dataclass(slots=True)
class JanitorState:
    """What the janitor did and saw, for its metrics."""

    usage: CacheUsage | None = None
    """At the last pass."""
    limits: SpaceLimits = field(default_factory=SpaceLimits)
    num_passes: int = 0
    num_failures: int = 0
    evicted_bytes: Counter[str] = field(default_factory=Counter)
    """By reason, since the start."""
    last_pass_at: float = 0.0
    """Seconds since 1970."""
    scrubbed: ScrubTotals = field(default_factory=ScrubTotals)
    stagers: tuple[Metric, ...] = ()
    """What the stagers of the cache said of themselves at the last pass."""

    def add(self, report: CleaningReport) -> None:
        """Count a pass."""
        self.num_passes += 1
        for victim in report.evicted:
            self.evicted_bytes[victim.reason.value] += victim.freed_bytes

    def render(self) -> bytes:
        """Render as the page that Prometheus scrapes."""
        return render_metrics(self._metrics())

    def _metrics(self) -> Iterable[Metric]:
        yield gauge("shardferry_janitor_info", "Which release runs.", 1, {"version": __version__})
        yield counter("shardferry_cache_passes_total", "Passes over the cache.", self.num_passes)
        yield counter("shardferry_cache_errors_total", "Passes that failed.", self.num_failures)
        yield gauge(
            "shardferry_cache_last_gc_timestamp_seconds", "When the last pass ended.", round(self.last_pass_at, 3)
        )
        samples = tuple(
            Sample(self.evicted_bytes[reason], {"reason": reason})
            for reason in ("damaged", "delete", "room", "watermark")
        )
        yield Metric("shardferry_cache_evicted_bytes_total", MetricKind.COUNTER, "Evicted, by reason.", samples)
        yield counter("shardferry_cache_scrubbed_bytes_total", "Hashed again.", self.scrubbed.num_bytes)
        yield counter("shardferry_cache_damaged_files_total", "Found damaged by scrubbing.", self.scrubbed.num_bad)
        if self.usage is not None:
            yield from _usage_metrics(self.usage, self.limits)
        yield from self.stagers


def _usage_metrics(usage: CacheUsage, limits: SpaceLimits) -> Iterable[Metric]:
    yield gauge("shardferry_cache_size_bytes", "What the cache takes on disk.", usage.used_bytes)
    yield gauge("shardferry_cache_promised_bytes", "What running stagers may still write.", usage.promised_bytes)
    if limits.quota_bytes is not None:
        yield gauge("shardferry_cache_quota_bytes", "Most that it may take.", limits.quota_bytes)
    free_bytes = max(free_for_cache(usage, limits).num_bytes, 0)
    yield gauge("shardferry_cache_available_bytes", "What it may still take.", free_bytes)
    yield gauge("shardferry_cache_evictable_bytes", "What could be evicted now.", evictable_bytes(usage, limits))
    num_held = sum(1 for dataset in usage.datasets if dataset.holders)
    samples = (Sample(num_held, {"state": "held"}), Sample(len(usage.datasets) - num_held, {"state": "unused"}))
    yield Metric("shardferry_cache_datasets", MetricKind.GAUGE, "Datasets, by whether anybody protects them.", samples)
    yield gauge("shardferry_cache_quarantined_files", "Set aside as damaged.", len(usage.quarantine))


class Janitor:
    """Cleans a cache until it is told to stop.

    Args:
        layout: of the cache.
        find_limits: gives what the cache may take; asked before each pass.
        interval_seconds: between two passes.
        stop: ends it.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        layout: CacheLayout,
        find_limits: Callable[[], SpaceLimits],
        interval_seconds: float,
        stop: threading.Event,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.state = JanitorState()
        self._layout = layout
        self._find_limits = find_limits
        self._interval_seconds = interval_seconds
        self._stop = stop
        self._clock = clock
        self._stager_metrics = StagerMetrics(layout)
        self._seen_alive_at = time.monotonic()

    @property
    def is_alive(self) -> bool:
        """Whether passes still come, good or bad."""
        return time.monotonic() - self._seen_alive_at < LATE_PASSES * self._interval_seconds + _PATIENCE_SECONDS

    def run(self, scrubber: Scrubber | None) -> None:
        """Clean until told to stop; a pass that fails is logged and the next one comes all the same.

        Args:
            scrubber: runs meanwhile; None for no scrubbing.
        """
        thread = None
        if scrubber is not None:
            self.state.scrubbed = scrubber.totals
            thread = threading.Thread(target=scrubber.run, name="scrubber", daemon=True)
            thread.start()
        while not self._stop.is_set():
            self.pass_once()
            self._stop.wait(self._interval_seconds)
        if thread is not None:
            thread.join(_PATIENCE_SECONDS)  # a read that hangs must not hold up the end

    def pass_once(self) -> None:
        """Clean once."""
        try:
            limits = self._find_limits()
            with hold_gc_lock(self._layout):
                report = clean(self._layout, limits)
            self.state.usage, self.state.limits = observe_usage(self._layout), limits
            self.state.stagers = self._stager_metrics.collect()
        except (OSError, StageError) as error:
            self.state.num_failures += 1
            logger.error("pass failed", extra={"reason": str(error)})  # noqa: TRY400 (a traceback tells nothing here)
        else:
            self.state.add(report)
            self.state.last_pass_at = self._clock()
        self._seen_alive_at = time.monotonic()
