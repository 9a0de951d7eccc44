"""What lies at a destination already: the same work, other work, or files that are not ours; pure."""

import contextlib
from collections.abc import Callable, Iterable, Sequence

from packer.saved import SavedPlan, list_differences
from shards.errors import DestinationError, FormatError, PlanMismatchError, list_offenders, printable
from shards.index_schema import index_name
from shards.manifest import MANIFEST_NAME, Manifest
from shards.names import STATE_NAME
from shards.strict_json import JsonError

PLAN_NAME = "plan.json"
SOURCES_NAME = "sources.tsv.gz"
BASE_NAME = "base.json"
"""Manifest of the dataset that is added to."""


def check_same_plan(data: bytes, saved: SavedPlan, where: str, list_sources: Callable[[], Sequence[str]]) -> None:
    """Compare the plan that was begun somewhere with the one at hand.

    Args:
        data: the saved plan.
        saved: the plan at hand.
        where: of the destination.
        list_sources: says how the source files differ.

    Raises:
        PlanMismatchError: they are not the same; the message has the differences.
    """
    try:
        old = SavedPlan.from_json(data)
    except JsonError as error:
        raise PlanMismatchError(
            f"the saved plan {printable(where)}/{STATE_NAME}/{PLAN_NAME} cannot be used ({error}); "
            "start anew with --overwrite, or choose another destination"
        ) from error
    if old.digest == saved.digest:
        return
    lines = [*list_differences(old, saved), *list_sources()]
    listed = "\n".join(f"  {line}" for line in lines)  # both lists are short, or end with a count
    raise PlanMismatchError(
        f"{printable(where)} holds the work of another plan:\n{listed}\n"
        "run the earlier command again, choose another destination, or replace what is there with --overwrite"
    )


def refuse_unplanned(where: str) -> PlanMismatchError:
    """The error for a dataset without its plan."""
    return PlanMismatchError(
        f"{printable(where)} holds a dataset, but not the plan it was packed by; "
        "choose another destination, or replace it with --overwrite"
    )


def refuse_foreign(where: str, names: Iterable[str]) -> None:
    """Refuse a destination that holds files of others.

    Args:
        where: of the destination.
        names: of those files.

    Raises:
        DestinationError: there are any.
    """
    foreign = sorted(printable(name) for name in names)
    if foreign:
        raise DestinationError(
            f"{printable(where)} is not empty, and what it holds was not made by pack:\n"
            f"{list_offenders(foreign)}\n"
            "choose a new or empty directory"
        )


def own_names(manifests: Iterable[bytes | None], plan: bytes | None) -> set[str]:
    """The manifest, and the shards and indexes that manifests or the saved plan speak of; nothing if there are none.

    Args:
        manifests: of the dataset, and of the one that is added to.
        plan: the saved plan.
    """
    names: set[str] = set()
    for data in manifests:
        with contextlib.suppress(FormatError):
            if data is not None:
                manifest = Manifest.from_json(data, name=MANIFEST_NAME)
                names.add(MANIFEST_NAME)
                names.update(name for _, shard in manifest.shards() for name in (shard.name, shard.index_name))
    if plan is not None:
        with contextlib.suppress(JsonError):
            shards = SavedPlan.from_json(plan).shards
            names.add(MANIFEST_NAME)
            # a plan is no manifest, its names were not checked: nothing outside of the dataset may be touched
            planned = {name for shard in shards for name in (shard.name, index_name(shard.name))}
            names.update(name for name in planned if "/" not in name and not name.startswith("."))
    return names
