"""What a cleaning did and how the cache stands, for a person and as JSON; pure."""

import json

from shardferry.console.units import format_bytes, format_count
from stager.limits import SpaceLimits
from stager.space import CacheUsage, CleaningReport, evictable_bytes, free_for_cache


def render_text(report: CleaningReport, usage: CacheUsage, limits: SpaceLimits) -> str:
    """Render for a person; no newline at the end."""
    would = "would evict" if report.is_dry_run else "evicted"
    lines = [
        f"{would} {victim.name}: {victim.reason.value}, {format_bytes(victim.freed_bytes)}" for victim in report.evicted
    ]
    if not lines:
        lines.append("nothing to evict")
    if not report.is_dry_run:
        lines.append(
            f"removed {format_count(report.num_leases_removed)} ended leases, "
            f"{format_count(report.num_partials_removed)} useless partials, {format_bytes(report.trash_bytes)} of trash"
        )
    quota = "" if limits.quota_bytes is None else f" of {format_bytes(limits.quota_bytes)}"
    lines.append(
        f"the cache takes {format_bytes(usage.used_bytes)}{quota}, "
        f"{format_bytes(max(free_for_cache(usage, limits).num_bytes, 0))} are free for it, "
        f"{format_bytes(evictable_bytes(usage, limits))} can be evicted"
    )
    return "\n".join(lines)


def render_json(report: CleaningReport, usage: CacheUsage, limits: SpaceLimits) -> str:
    """Render as one JSON object."""
    return json.dumps(
        {
            "is_dry_run": report.is_dry_run,
            "evicted": [
                {"name": victim.name, "reason": victim.reason.value, "num_bytes": victim.freed_bytes}
                for victim in report.evicted
            ],
            "evicted_bytes": report.evicted_bytes,
            "num_leases_removed": report.num_leases_removed,
            "num_partials_removed": report.num_partials_removed,
            "trash_bytes": report.trash_bytes,
            "used_bytes": usage.used_bytes,
            "promised_bytes": usage.promised_bytes,
            "quota_bytes": limits.quota_bytes,
            "free_bytes": max(free_for_cache(usage, limits).num_bytes, 0),
            "evictable_bytes": evictable_bytes(usage, limits),
        }
    )
