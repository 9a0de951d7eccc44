"""The metrics that stagers leave in the cache, put together for the janitor's page: a stager may be gone by the time.

Rules:
    * Counters are sums over all stagers that the janitor has seen: what a file adds to what it said before counts, and
      all of it when it says less, since then another stager began under that name. A file that goes takes nothing away.
    * Of gauges with the same labels the last one that was written counts.
    * What is not written as :mod:`stager.metrics_file` writes it is left out.
"""

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress

from shards.cache import CacheLayout
from shards.errors import FormatError
from shards.files import read_regular_file
from stager.metrics import Metric, MetricKind, Sample

_PREFIX = "shardferry_stage_"
_MAX_BYTES = 64 * 1024
_LABEL = re.compile(r'([a-z_]+)="([^"\\]*)"(?:,|$)')
_LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? ([0-9.e+-]+)")

_Labels = tuple[tuple[str, str], ...]


class StagerMetrics:
    """Collects the metrics of the stagers of one cache.

    Args:
        layout: of the cache.
    """

    def __init__(self, layout: CacheLayout) -> None:
        self._layout = layout
        self._seen: dict[tuple[str, str, _Labels], float] = {}
        self._totals: dict[tuple[str, _Labels], float] = {}

    def collect(self) -> tuple[Metric, ...]:
        """Read what the stagers say now."""
        found: dict[str, Metric] = {}
        values: dict[str, dict[_Labels, float]] = {}
        files = self._files()
        names = {name for name, _ in files}
        self._seen = {key: value for key, value in self._seen.items() if key[0] in names}
        for name, data in files:
            for metric in parse_metrics(data):
                found[metric.name] = metric
                for sample in metric.samples:
                    labels = tuple(sample.labels.items())
                    value = sample.value
                    if metric.kind is MetricKind.COUNTER:
                        value = self._count(name, metric.name, labels, value)
                    values.setdefault(metric.name, {})[labels] = value
        return tuple(
            Metric(
                metric.name,
                metric.kind,
                metric.help,
                tuple(Sample(value, dict(labels)) for labels, value in sorted(values[metric.name].items())),
            )
            for metric in found.values()
            if metric.name in values
        )

    def _count(self, file: str, name: str, labels: _Labels, value: float) -> float:
        before = self._seen.get((file, name, labels), 0.0)
        self._seen[file, name, labels] = value
        added = value - before if value >= before else value
        total = self._totals[name, labels] = self._totals.get((name, labels), 0.0) + added
        return total

    def _files(self) -> list[tuple[str, bytes]]:
        """Give names and contents, the oldest first."""
        directory = self._layout.metrics_dir
        files = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in os.listdir(directory):
                path = os.path.join(directory, name)
                with suppress(OSError, FormatError):
                    facts = os.lstat(path)
                    if name.endswith(".prom") and stat.S_ISREG(facts.st_mode):
                        files.append((facts.st_mtime_ns, name, read_regular_file(path, max_bytes=_MAX_BYTES)))
        return [(name, data) for _, name, data in sorted(files)]


def parse_metrics(data: bytes) -> Sequence[Metric]:
    """Parse what :func:`stager.metrics.render_metrics` made of a stager's metrics."""
    helps: dict[str, str] = {}
    kinds: dict[str, MetricKind] = {}
    samples: dict[str, list[Sample]] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        head, _, rest = line.partition(" ")
        if head == "#":
            word, _, rest = rest.partition(" ")
            name, _, text = rest.partition(" ")
            if word == "HELP":
                helps[name] = text
            elif word == "TYPE" and text in set(MetricKind):
                kinds[name] = MetricKind(text)
        elif (match := _LINE.fullmatch(line)) is not None and match[1] in kinds and match[1].startswith(_PREFIX):
            with suppress(ValueError):
                labels = dict(_LABEL.findall(match[2] or ""))
                samples.setdefault(match[1], []).append(Sample(float(match[3]), labels))
    return [Metric(name, kinds[name], helps.get(name, ""), tuple(values)) for name, values in samples.items()]
