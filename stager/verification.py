"""``stage verify``: hashes staged datasets again and says what is damaged."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from shardferry.console import Progress
from shardferry.console.units import format_bytes, format_count
from shards.cache import CacheLayout
from shards.errors import IntegrityError, NotStagedError, list_offenders, printable
from stager.local import staged_ids
from stager.prepare import explain_not_writable
from stager.reclaim import hold_gc_lock
from stager.staged_files import BadFile, check_staged_file, list_staged_files, set_bad_file_aside


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was verified."""

    num_datasets: int
    num_files: int
    num_bytes: int
    bad: tuple[BadFile, ...]
    is_quarantined: bool
    """Whether bad files were set aside."""

    def to_json(self) -> str:
        """Render as one JSON object."""
        return json.dumps(
            {
                "num_datasets": self.num_datasets,
                "num_files": self.num_files,
                "num_bytes": self.num_bytes,
                "is_quarantined": self.is_quarantined,
                "bad": [
                    {"dataset_id": bad.file.dataset_id, "name": bad.file.name, "reason": bad.reason} for bad in self.bad
                ],
            }
        )

    def to_text(self) -> str:
        """Render for a person; no newline at the end."""
        return (
            f"verified {format_count(self.num_files)} files of {format_count(self.num_datasets)} datasets, "
            f"{format_bytes(self.num_bytes)}: all is right"
        )


def verify_cache(layout: CacheLayout, dataset_ids: Iterable[str], *, is_quarantined: bool) -> VerifyReport:
    """Verify datasets of a cache; all of them when none is named.

    Args:
        layout: of the cache.
        dataset_ids: which, as ``stage status`` shows them.
        is_quarantined: whether bad files are set aside.

    Raises:
        NotStagedError: one of them is not there.
        CacheNotWritableError: a bad file cannot be set aside.
    """
    there = staged_ids(layout)
    chosen = list(dict.fromkeys(dataset_ids)) or there
    for dataset_id in chosen:
        if dataset_id not in there:
            raise NotStagedError(f"no dataset {printable(dataset_id)} in {printable(layout.root)}; see stage status")
    files = [file for dataset_id in chosen for file in list_staged_files(layout, dataset_id)]
    bad: list[BadFile] = []
    num_bytes = sum(file.size_bytes for file in files)
    with Progress("verifying", total_bytes=num_bytes) as progress:
        for file in files:
            found = check_staged_file(file, lambda count: progress.advance(num_bytes=count))
            if found is not None:
                bad.append(found)
    if bad and is_quarantined:
        with explain_not_writable(layout.root), hold_gc_lock(layout):
            for item in bad:
                set_bad_file_aside(layout, item)
    return VerifyReport(len(chosen), len(files), num_bytes, tuple(bad), is_quarantined)


def raise_if_damaged(report: VerifyReport) -> None:
    """Name what is damaged.

    Raises:
        IntegrityError: something is.
    """
    if not report.bad:
        return
    lines = [f"{printable(bad.file.path)}: {bad.reason}" for bad in report.bad]
    advice = (
        "they were set aside; stage run fetches them again"
        if report.is_quarantined
        else "stage run --verify full fetches them again, stage verify --quarantine sets them aside"
    )
    raise IntegrityError(f"{len(lines)} staged files are damaged; {advice}\n{list_offenders(lines)}")
