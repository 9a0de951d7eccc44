"""What a run of the stager did, as a value, and its three renderings: for a person, as JSON, as last words; pure."""

import json
from dataclasses import asdict, dataclass

from shardferry.console.units import format_bytes, format_count, format_seconds
from shards.errors import printable
from shards.progress import StageProgress

MAX_TERMINATION_BYTES = 1024
"""Kubernetes shares 12 KiB between all containers of a pod and cuts each at 4 KiB."""

_MAX_MESSAGE_CHARACTERS = 400


@dataclass(slots=True)
class FetchTotals:
    """What one fetch did, in bytes of shards and indexes."""

    fetched_bytes: int = 0
    """Read from the source and committed or kept in a partial; blocks that were fetched twice count twice."""
    resumed_bytes: int = 0
    """Found right in partials."""
    peer_bytes: int = 0
    """Staged by other processes meanwhile."""


@dataclass(slots=True)
class CacheTotals:
    """What one run did with other datasets of the cache, in bytes."""

    linked_bytes: int = 0
    """Of files that another dataset has, and that got a second name."""
    evicted_bytes: int = 0
    """Freed by evicting what nobody used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """One run that ended well. Bytes count shards and indexes."""

    path: str
    """The staged dataset; open it like any published one."""
    dataset_id: str
    source: str
    num_shards: int
    """Selected."""
    num_samples: int
    """In those."""
    total_bytes: int
    kept_bytes: int
    """Staged already when the run began."""
    resumed_bytes: int
    """Found right in partials of earlier runs."""
    fetched_bytes: int
    """Read from the source by this process."""
    peer_bytes: int
    """Staged meanwhile by other processes of this node."""
    linked_bytes: int = 0
    """Taken from other datasets of the cache, without a copy."""
    evicted_bytes: int = 0
    """Freed in the cache by this process; not part of the dataset's bytes."""
    retries: int
    """Reads that were repeated because the source failed for a moment."""
    seconds: float
    selection: str = "all"
    """Which shards of the dataset were selected."""

    @property
    def result(self) -> str:
        """``Staged``, or ``AlreadyStaged`` when nothing was missing."""
        return "AlreadyStaged" if self.kept_bytes == self.total_bytes else "Staged"

    @property
    def megabytes_per_second(self) -> float:
        """Speed of what was read from the source, in units of 10⁶ bytes."""
        return self.fetched_bytes / 1e6 / self.seconds if self.seconds > 0 else 0.0

    def to_json(self) -> str:
        """Render as one JSON object."""
        return json.dumps(
            {
                "result": self.result,
                **asdict(self),
                "seconds": round(self.seconds, 3),
                "megabytes_per_second": round(self.megabytes_per_second, 1),
            }
        )

    def to_text(self) -> str:
        """Render for a person; no newline at the end."""
        shards = f"{_count(self.num_shards, 'shard')}, {_count(self.num_samples, 'sample')}"
        origins = [
            (self.fetched_bytes, "fetched"),
            (self.resumed_bytes, "resumed"),
            (self.peer_bytes, "staged by others"),
            (self.linked_bytes, "linked"),
            (self.kept_bytes, "kept"),
        ]
        moved = ", ".join(f"{format_bytes(num_bytes)} {how}" for num_bytes, how in origins if num_bytes) or "empty"
        selected = "" if self.selection == "all" else f"  selection:  {printable(self.selection)}\n"
        evicted = f"  evicted:    {format_bytes(self.evicted_bytes)}\n" if self.evicted_bytes else ""
        speed = f", {self.megabytes_per_second:.0f} MB/s" if self.fetched_bytes else ""
        return (
            f"{'already staged' if self.result == 'AlreadyStaged' else 'staged'}: {shards}, "
            f"{format_bytes(self.total_bytes)}\n"
            f"{selected}"
            f"  {moved}; {format_seconds(self.seconds)}{speed}\n"
            f"{evicted}"
            f"  dataset id: {self.dataset_id}\n"
            f"  path:       {printable(self.path)}"
        )


def render_last_words(report: StageReport) -> bytes:
    """Render a good end as the termination message: one JSON line of at most :data:`MAX_TERMINATION_BYTES`."""
    return _one_line(
        {
            "v": 1,
            "result": report.result,
            "code": 0,
            "id": report.dataset_id,
            "selection": _shorten(report.selection),
            "files": 2 * report.num_shards + 1,
            "bytes": report.total_bytes,
            "fetched_bytes": report.fetched_bytes,
            "cached_bytes": report.kept_bytes + report.linked_bytes + report.resumed_bytes + report.peer_bytes,
            "evicted_bytes": report.evicted_bytes,
            "seconds": round(report.seconds, 3),
            "retries": report.retries,
            "path": _shorten(report.path),
        }
    )


def render_ready(progress: StageProgress, seconds: float) -> bytes:
    """Render the good end of a wait as the termination message."""
    return _one_line(
        {
            "v": 1,
            "result": "Ready",
            "code": 0,
            "id": progress.dataset_id,
            "shards": progress.num_shards,
            "ready_shards": progress.num_shards_ready,
            "ready_bytes": progress.ready_bytes,
            "seconds": round(seconds, 3),
            "path": _shorten(progress.path),
        }
    )


def render_failure(code: int, kind: str, message: str) -> bytes:
    """Render a bad end as the termination message.

    Args:
        code: exit code.
        kind: class of the error.
        message: its text; cut when it is long.
    """
    return _one_line({"v": 1, "result": kind, "code": code, "message": _shorten(message)})


def _one_line(facts: dict[str, object]) -> bytes:
    line = json.dumps(facts).encode("ascii") + b"\n"
    if len(line) > MAX_TERMINATION_BYTES:  # text that JSON has to escape takes up to 12 bytes a character
        facts = {name: value for name, value in facts.items() if name not in {"path", "message", "selection"}}
        line = json.dumps(facts).encode("ascii") + b"\n"
    return line


def _shorten(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else text[: _MAX_MESSAGE_CHARACTERS - 1] + "…"


def _count(number: int, noun: str) -> str:
    return f"{format_count(number)} {noun}{'' if number == 1 else 's'}"
