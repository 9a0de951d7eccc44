"""The metrics of one stager, made of its progress; pure."""

from dataclasses import dataclass, field

from shardferry import __version__
from shards.progress import StageProgress, StageState
from stager.metrics import Metric, MetricKind, Sample, counter, gauge

_ID_CHARACTERS = 12
"""Enough of a dataset's id to tell the datasets of a cluster apart."""


@dataclass(slots=True)
class StageCounters:
    """What a stager has counted since it began."""

    cached_bytes: int = 0
    """Found in the cache, or brought by other stagers of the node."""
    retries: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    """By the class of the error."""
    last_success_at: float = 0.0
    """Unix time at which everything wanted was there; 0 for never."""
    dropped_bytes: int = 0

    def add_error(self, error: BaseException) -> None:
        """Count an error."""
        name = type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1


def stage_metrics(progress: StageProgress, counters: StageCounters) -> list[Metric]:
    """Give the metrics of one stager."""
    labels = {"dataset": short_id(progress.dataset_id)}
    remaining_bytes = progress.size_bytes - progress.staged_bytes
    return [
        gauge("shardferry_stage_info", "What runs here.", 1, {"version": __version__}),
        Metric(
            "shardferry_stage_state",
            MetricKind.GAUGE,
            "1 for what the stager is doing.",
            tuple(Sample(progress.state is state, {**labels, "state": state.value}) for state in StageState),
        ),
        Metric(
            "shardferry_stage_bytes_total",
            MetricKind.COUNTER,
            "Bytes of shards and indexes that came to this node, by where they came from.",
            (
                Sample(progress.fetched_bytes, {**labels, "origin": "source"}),
                Sample(counters.cached_bytes, {**labels, "origin": "cache"}),
            ),
        ),
        counter("shardferry_stage_retries_total", "Reads of the source that were repeated.", counters.retries, labels),
        Metric(
            "shardferry_stage_errors_total",
            MetricKind.COUNTER,
            "Errors that stopped staging, by their class.",
            tuple(Sample(number, {**labels, "reason": name}) for name, number in sorted(counters.errors.items())),
        ),
        gauge("shardferry_stage_shards", "Shards that are wanted.", progress.num_shards, labels),
        gauge("shardferry_stage_shards_staged", "Wanted shards that are there.", progress.num_shards_staged, labels),
        gauge(
            "shardferry_stage_ready_ratio",
            "Part of the wanted bytes that is there without a gap from the first shard of the order on.",
            progress.ready_bytes / progress.size_bytes if progress.size_bytes else float(progress.is_ready),
            labels,
        ),
        gauge("shardferry_stage_ready", "Whether training may start.", progress.is_ready, labels),
        gauge("shardferry_stage_remaining_bytes", "Wanted bytes that are not there.", remaining_bytes, labels),
        counter("shardferry_stage_dropped_bytes_total", "Dropped from a window.", counters.dropped_bytes, labels),
        gauge(
            "shardferry_stage_last_success_timestamp_seconds",
            "When everything wanted was there; 0 for never.",
            counters.last_success_at,
            labels,
        ),
    ]


def short_id(dataset_id: str) -> str:
    """Shorten a dataset id to what a label needs."""
    return dataset_id.removeprefix("blake3:")[:_ID_CHARACTERS]


def describe_state(progress: StageProgress) -> str:
    """Say in one line how far a stager is, for probes and logs."""
    shards = f"{progress.num_shards_staged} of {progress.num_shards} shards staged, {progress.num_shards_ready} ready"
    error = f"; {progress.reason} ({progress.code}): {progress.message}" if progress.code else ""
    return f"{progress.state}: {shards}{error}"
