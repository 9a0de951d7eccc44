"""How many processors this process may really use: affinity and cgroup quota, not the host's count."""

import os
from collections.abc import Iterator

_CGROUP_ROOT = "/sys/fs/cgroup"


def usable_cpus() -> int:
    """Number of processors that this process can keep busy, at least 1."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota(_read("/proc/self/cgroup"))
    return affinity if quota is None else max(1, min(affinity, round(quota)))


def parse_cpu_max(text: str) -> float | None:
    """Processors granted by a cgroup v2 file ``cpu.max`` (``"150000 100000"`` → 1.5), or None for no limit."""
    parts = text.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts) or int(parts[1]) == 0:
        return None
    return int(parts[0]) / int(parts[1])


def cgroup_quota(groups: str, root: str = _CGROUP_ROOT) -> float | None:
    """Processors granted by the tightest quota of a process's cgroups and those above them, or None for no limit.

    In a container the groups may be named as the host sees them; then those of the container are at the root.

    Args:
        groups: content of ``/proc/self/cgroup``.
        root: where cgroups are mounted, version 2 or the directories of version 1.
    """
    quotas: list[float | None] = []
    for line in groups.splitlines():
        _, _, named = line.partition(":")
        controllers, _, group = named.partition(":")
        if not controllers:
            quotas += map(_quota_v2, _with_those_above(root, group))
        elif "cpu" in controllers.split(","):
            for mount in ("cpu", "cpu,cpuacct"):
                quotas += map(_quota_v1, _with_those_above(f"{root}/{mount}", group))
    return min((quota for quota in quotas if quota is not None), default=None)


def _with_those_above(root: str, group: str) -> Iterator[str]:
    group = os.path.normpath(f"/{group.lstrip('/')}")  # so no ".." leads above the root
    while group != "/":
        yield f"{root}{group}"
        group = os.path.dirname(group)
    yield root


def _quota_v2(directory: str) -> float | None:
    return parse_cpu_max(_read(f"{directory}/cpu.max"))


def _quota_v1(directory: str) -> float | None:
    quota, period = (_read(f"{directory}/cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return parse_cpu_max(f"{quota} {period}")  # "-1" is no limit


def _read(path: str) -> str:
    """Content of a small file, empty when it cannot be read: no such limit here."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
