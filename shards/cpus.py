"""How many processors this process may really use: affinity and cgroup quota, not the host's count."""

import os

_CGROUP_ROOT = "/sys/fs/cgroup"


def usable_cpus() -> int:
    """Number of processors that this process can keep busy, at least 1."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for quota in (_quota_v2(), _quota_v1()) if quota is not None]
    return max(1, min(affinity, *(round(quota) for quota in quotas))) if quotas else affinity


def parse_cpu_max(text: str) -> float | None:
    """Processors granted by a cgroup v2 file ``cpu.max`` (``"150000 100000"`` → 1.5), or None for no limit."""
    parts = text.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts) or int(parts[1]) == 0:
        return None
    return int(parts[0]) / int(parts[1])


def _quota_v2() -> float | None:
    """The tightest quota of this process's cgroup and those above it."""
    group = next((line[3:] for line in _read("/proc/self/cgroup").splitlines() if line.startswith("0::")), "")
    tightest: float | None = None
    directory = os.path.normpath(f"{_CGROUP_ROOT}/{group}")
    while directory.startswith(_CGROUP_ROOT):
        quota = parse_cpu_max(_read(f"{directory}/cpu.max"))
        if quota is not None:
            tightest = quota if tightest is None else min(tightest, quota)
        directory = os.path.dirname(directory)
    return tightest


def _quota_v1() -> float | None:
    for directory in (f"{_CGROUP_ROOT}/cpu", f"{_CGROUP_ROOT}/cpu,cpuacct"):
        quota, period = (_read(f"{directory}/cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit() and int(period):  # "-1" is no limit
            return int(quota) / int(period)
    return None


def _read(path: str) -> str:
    """Content of a small file, empty when it cannot be read: no such limit here."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
