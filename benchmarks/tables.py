"""Results as JSON and as Markdown."""

import datetime as dt
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from pairs import Comparison, Spread
from processes import Usage
from records import Growth, Memory, Resume

PEER_PACKAGES = ("webdataset", "mosaicml-streaming", "litdata", "tensorflow-cpu")
MIB = 2**20
TIMES = "\N{MULTIPLICATION SIGN}"
TO = "\N{EN DASH}"


def describe_machine(work: str) -> dict[str, object]:
    """What a reader must know to judge the numbers; nothing that names the machine."""
    versions = {}
    for package in ("shardferry", *PEER_PACKAGES):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    tar = subprocess.run(["tar", "--version"], stdout=subprocess.PIPE, check=True, text=True).stdout
    versions["GNU tar"] = tar.splitlines()[0].split()[-1]
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "filesystem": _filesystem(work),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
        "versions": versions,
        "load_average": round(os.getloadavg()[0], 1),
    }


def _filesystem(path: str) -> str:
    found = subprocess.run(["df", "--output=fstype", path], stdout=subprocess.PIPE, check=True)
    return found.stdout.decode().split()[-1]


def machine_lines(machine: Mapping[str, object]) -> list[str]:
    """The machine in words."""
    versions = machine["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())  # type: ignore[attr-defined]
    return [
        (
            f"- {machine['date']}; {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['filesystem']}, "
            f"Linux {machine['kernel']}, Python {machine['python']}"
        ),
        f"- {listed}",
        f"- load average when it began: {machine['load_average']}; when it ended: {machine.get('load_average_end')}",
    ]


def comparison_lines(rows: Sequence[tuple[Comparison, float]]) -> list[str]:
    """Table of comparisons; each with the least speedup that is aimed at."""
    lines = [
        "| against | files | its files/s | ours files/s | ours is … times as quick | aim | processor time, ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for row, aim in rows:
        reached = "reached" if row.speedup.median >= aim else "**not reached**"
        lines.append(
            f"| {row.base.name} | {row.num_files:,} | {row.base_rate.median:,.0f} | {row.ours_rate.median:,.0f} "
            f"| {_spread(row.speedup)} | {aim:g} {TIMES} {reached} | {_spread(row.cpu_speedup)} |"
        )
    return lines


def scaling_lines(row: Comparison) -> list[str]:
    """Gain of a second job."""
    line = (
        f"- 1 → 2 jobs: {row.base_rate.median:,.0f} → {row.ours_rate.median:,.0f} files/s, {_spread(row.speedup)}; "
        f"processor time of one job, as a multiple of that of two: {_spread(row.cpu_speedup)}"
    )
    return [line]


def memory_lines(rows: Sequence[Memory]) -> list[str]:
    """Peak memory."""
    lines = ["| options | main process, MiB | biggest worker, MiB |", "|---|---|---|"]
    for row in rows:
        worker = f"{row.worker_bytes / MIB:.0f}" if row.worker_bytes else "none"
        lines.append(f"| `{row.options}` | {row.main_bytes / MIB:.0f} | {worker} |")
    return lines


def resume_lines(row: Resume) -> list[str]:
    """Cost of a kill."""
    line = (
        f"- killed with SIGKILL when {row.kept_share.median:.0%} of the shards were finished, then run again: together "
        f"{_spread(row.total)} the time of an undisturbed build ({row.undisturbed_seconds:.2f} s); same bytes"
    )
    return [line]


def growth_lines(rows: Sequence[Growth]) -> list[str]:
    """Growth with the number of files."""
    lines = ["| files | seconds | µs a file | processor time, µs a file | main process, MiB |", "|---|---|---|---|---|"]
    lines.extend(
        f"| {row.num_files:,} | {_spread(row.seconds, unit='')} | {row.seconds.median / row.num_files * 1e6:.0f} "
        f"| {row.cpu_microseconds_per_file:.0f} | {row.main_bytes / MIB:.0f} |"
        for row in rows
    )
    return lines


def comparison_json(row: Comparison, aim: float) -> dict[str, object]:
    """A comparison with every single run."""
    return {
        "against": row.base.name,
        "ours": row.ours.name,
        "num_files": row.num_files,
        "aim": aim,
        "speedup": asdict(row.speedup),
        "cpu_speedup": asdict(row.cpu_speedup),
        "base_runs": [_run_json(run) for run in row.base_runs],
        "ours_runs": [_run_json(run) for run in row.ours_runs],
    }


def _run_json(run: Usage) -> dict[str, float]:
    return {"seconds": run.seconds, "cpu_seconds": run.cpu_seconds}


def _spread(spread: Spread, unit: str = f" {TIMES}") -> str:
    return f"{spread.median:.2f}{unit} ({spread.low:.2f}{TO}{spread.high:.2f})"
