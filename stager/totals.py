"""Where the bytes of a cache are: for ``stage status``, as text and as JSON facts; pure."""

from datetime import UTC, datetime

from shardferry.console.units import format_bytes
from stager.space import CacheUsage, DatasetUsage, distinct_bytes


def total_facts(usage: CacheUsage) -> dict[str, int]:
    """Give what takes room; the first is the sum of the next three, files with several names counted once."""
    datasets = distinct_bytes(file for dataset in usage.datasets for file in dataset.files)
    quarantine = distinct_bytes(file for item in usage.quarantine for file in item.files)
    return {
        "used_bytes": usage.used_bytes,
        "dataset_bytes": datasets,
        "quarantine_bytes": quarantine,
        "other_bytes": usage.used_bytes - datasets - quarantine,
        "promised_bytes": usage.promised_bytes,
        "disk_free_bytes": usage.disk.free_bytes,
        "disk_free_inodes": usage.disk.free_inodes,
    }


def render_totals(usage: CacheUsage) -> str:
    """Render for a person; no newline at the end."""
    facts = {name: format_bytes(number) for name, number in total_facts(usage).items() if name.endswith("_bytes")}
    return (
        f"on disk: {facts['used_bytes']} ({facts['dataset_bytes']} in datasets, {facts['quarantine_bytes']} in "
        f"quarantine, {facts['other_bytes']} in leases, trash and other small files)\n"
        f"reserved by running stagers: {facts['promised_bytes']}; free on the disk: {facts['disk_free_bytes']}"
    )


def dataset_facts(dataset: DatasetUsage) -> dict[str, object]:
    """Give what is known about a dataset's room and use."""
    return {
        "disk_bytes": dataset.disk_bytes,
        "used_at": _utc(dataset.used_at) if dataset.used_at else "",
        "retain": dataset.retain.value,
        "is_self_made": dataset.is_self_made,
    }


def render_dataset(dataset: DatasetUsage) -> str:
    """Render them for a person, as further lines of the dataset; no newline at the end."""
    used = f"last used {_utc(dataset.used_at)}" if dataset.used_at else "never used"
    kept = "" if dataset.is_self_made else ", not made by the stager: never evicted"
    return f"  on disk: {format_bytes(dataset.disk_bytes)}, {used}, retain {dataset.retain.value}{kept}"


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
