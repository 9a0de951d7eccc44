"""Prometheus metrics as values, and their text format; pure.

Rules:
    * Names begin with ``shardferry_``, units are base units and stand in the name, counters end in ``_total``.
    * Labels are few and bounded; names of shards, paths and pods never are labels.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricKind(StrEnum):
    """What Prometheus may do with a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with its values."""

    name: str
    kind: MetricKind
    help: str
    samples: tuple[Sample, ...]


def gauge(name: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    """A value that goes up and down."""
    return Metric(name, MetricKind.GAUGE, text, (Sample(value, labels or {}),))


def counter(name: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    """A value that only grows, from 0 at the start of the process."""
    return Metric(name, MetricKind.COUNTER, text, (Sample(value, labels or {}),))


def render_metrics(metrics: Iterable[Metric]) -> bytes:
    """Render as the text that Prometheus scrapes, and node_exporter's textfile collector reads."""
    lines = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escape(metric.help)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for sample in metric.samples:
            labels = ",".join(f'{name}="{_escape(value, quote=True)}"' for name, value in sample.labels.items())
            lines.append(f"{metric.name}{f'{{{labels}}}' if labels else ''} {_number(sample.value)}")
    return "".join(f"{line}\n" for line in lines).encode()


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escape(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-8", "replace").decode()
    return text.replace('"', '\\"') if quote else text
