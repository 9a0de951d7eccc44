"""The second half of ``pack build``: check the destination, write what is missing, publish."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol

from packer.begun import BASE_NAME
from packer.config import PackConfig
from packer.destination import hold_destination
from packer.engines.local import run_in_process, start_processes
from packer.engines.names import EngineName
from packer.engines.work import Engine, Setting
from packer.locations import directory_of, is_url, without_credentials
from packer.plan import PackPlan, PlannedShard
from packer.preview import Preview
from packer.publish import SourceFacts, make_manifest, write_manifest
from packer.report import BuildReport
from packer.saved import SavedPlan, summarize_plan
from packer.settle import settle_transform
from packer.space import shard_space_bytes
from packer.stop import StopFlag
from packer.stores.open import open_store
from packer.write import ShardResult
from shards.cpus import usable_cpus
from shards.errors import NoSpaceError
from shards.files import free_bytes
from shards.manifest import Manifest
from shards.names import STATE_NAME
from shards.strict_json import JsonValue

_FILES_PER_JOB = 20_000
_BYTES_PER_JOB = 1024**3
"""Less work than this is done before another process has started."""


class ProgressLike(Protocol):
    """What is needed of ``shardferry.console.Progress``."""

    def advance(self, *, num_bytes: int = 0, num_samples: int = 0) -> None:
        """Count finished work."""


class Destination(Protocol):
    """What is needed of a destination; :class:`packer.destination.Destination` says what each method does."""

    @property
    def path(self) -> str:
        """Where it lies, for messages."""

    def read_manifest(self) -> Manifest | None:
        """The manifest, or None when there is none."""

    def is_complete(self, manifest: Manifest) -> bool:
        """Whether all files of a manifest are there."""

    def size_of(self, name: str) -> int | None:
        """Size of a file, or None when it is not there."""

    def check_plan(self, plan: PackPlan, saved: SavedPlan) -> bool:
        """Compare what lies there with a plan."""

    def save_plan(self, plan: PackPlan, saved: SavedPlan) -> None:
        """Save a plan."""

    def clear(self) -> None:
        """Remove the dataset that lies there."""

    def withdraw_manifest(self) -> None:
        """Remove the manifest."""

    def remove_partials(self) -> int:
        """Remove what killed runs left."""

    def check_space(self, needed_bytes: int) -> None:
        """Check that there is room."""


OpenProgress = Callable[[int, int], AbstractContextManager[ProgressLike]]
"""(total bytes, total samples) → a progress display."""


def build(config: PackConfig, preview: Preview, stop: StopFlag, open_progress: OpenProgress) -> BuildReport:
    """Pack a dataset, go on with one, or find that all is done.

    Args:
        config: what was asked for.
        preview: of that config.
        stop: checked between buffers.
        open_progress: opens the display once the work begins.

    Raises:
        PackError: see :mod:`shards.errors`; the message says what to do.
        NoSpaceError: the destination is full.
        StoppedError: a stop was asked for; finished shards are kept.
    """
    plan, options, base = preview.plan, config.recorded_options(), preview.base
    if base is not None:
        options["append_to"] = base.manifest.dataset_id
    saved = summarize_plan(plan, options)
    with _hold(config.destination) as destination:
        is_begun, manifest = _begin(destination, plan, saved, overwrite=config.overwrite)
        if manifest is not None:
            return BuildReport.of(config, manifest, preview.skips, num_kept=manifest.num_shards, is_new=False)
        try:
            with _open_engine(config, plan) as engine:  # its processes start while the plan is saved
                if not is_begun:
                    destination.save_plan(plan, saved)
                if base is not None:
                    open_store(config.destination).put(f"{STATE_NAME}/{BASE_NAME}", base.manifest.to_json())
                results = _finish_shards(config, preview, destination, engine, stop, open_progress)
            if config.engine is EngineName.RAY:  # workers died and their shards were begun again: partials may be left
                destination.remove_partials()
            preview = replace(preview, skips=settle_transform(plan, results, preview.skips))
            manifest = _finish_manifest(config, preview, results, options, stop)
            write_manifest(manifest, config.destination)
        except NoSpaceError as error:
            destination.remove_partials()
            raise NoSpaceError(
                destination.path,
                _missing_bytes(plan, destination),
                free_bytes(destination.path),
                advice="finished shards are kept; free some space, then run the same command again to go on",
            ) from error
        except BaseException:
            destination.remove_partials()
            raise
    num_kept = sum(result.is_kept for result in results.values())
    return BuildReport.of(config, manifest, preview.skips, num_kept=num_kept, is_new=True)


def _finish_manifest(
    config: PackConfig,
    preview: Preview,
    results: Mapping[int, ShardResult],
    options: Mapping[str, JsonValue],
    stop: StopFlag,
) -> Manifest:
    """Describe the dataset; the shards of the one that was added to are brought here first."""

    def describe() -> Manifest:
        source = SourceFacts(preview.source_kind, without_credentials(config.source), preview.skips)
        return make_manifest(preview.plan, results, options=options, source=source)

    base = preview.base
    if base is None:
        return describe()
    from packer.append import extend_manifest  # noqa: PLC0415 (only --append-to needs them)
    from packer.share import share_shards  # noqa: PLC0415

    share_shards(base.location, config.destination, base.manifest, stop.check)
    return extend_manifest(base.manifest, describe() if results else None, options=options)


def _hold(location: str) -> AbstractContextManager[Destination]:
    if not is_url(location):
        return hold_destination(directory_of(location))
    from packer.object_destination import hold_objects  # noqa: PLC0415 (fsspec is loaded only where it is used)

    return hold_objects(location)


def _begin(
    destination: Destination, plan: PackPlan, saved: SavedPlan, *, overwrite: bool
) -> tuple[bool, Manifest | None]:
    """Make the destination ready; gives whether this plan was begun before, and the manifest if all of it was done."""
    is_begun = False
    if overwrite:
        destination.clear()
    else:
        is_begun = destination.check_plan(plan, saved)
    manifest = destination.read_manifest() if is_begun else None
    if manifest is not None:
        if destination.is_complete(manifest):
            return True, manifest
        destination.withdraw_manifest()
    destination.remove_partials()
    destination.check_space(_missing_bytes(plan, destination))
    return is_begun, None


def _finish_shards(
    config: PackConfig,
    preview: Preview,
    destination: Destination,
    engine: Engine,
    stop: StopFlag,
    open_progress: OpenProgress,
) -> Mapping[int, ShardResult]:
    plan = preview.plan
    directory = config.destination if is_url(config.destination) else os.path.abspath(destination.path)
    setting = Setting(preview.origin, directory, config.read_threads)
    with open_progress(plan.size_bytes, plan.num_samples) as progress:

        def report(num_samples: int, num_bytes: int) -> None:
            progress.advance(num_samples=num_samples, num_bytes=num_bytes)

        return engine(plan, setting, report, stop.check)


def _open_engine(config: PackConfig, plan: PackPlan) -> AbstractContextManager[Engine]:
    if config.engine is EngineName.RAY:
        from packer.engines.ray import RayCluster  # noqa: PLC0415 (Ray is loaded only where it is used)

        return nullcontext(RayCluster(config.ray_address, config.jobs))
    worthwhile = 1 + plan.num_files // _FILES_PER_JOB + plan.source_bytes // _BYTES_PER_JOB
    if config.transform is not None:  # what a user's function costs is unknown, and often much
        worthwhile = len(plan.shards)
    num_jobs = min(config.jobs or min(usable_cpus(), worthwhile), len(plan.shards))
    return nullcontext(run_in_process) if num_jobs <= 1 else start_processes(num_jobs)


def _missing_bytes(plan: PackPlan, destination: Destination) -> int:
    """Bytes still to be written."""
    return sum(shard_space_bytes(plan, shard) for shard in plan.shards if not _is_there(plan, shard, destination))


def _is_there(plan: PackPlan, shard: PlannedShard, destination: Destination) -> bool:
    found_bytes = destination.size_of(shard.name)
    return found_bytes is not None if plan.options.transform is not None else found_bytes == shard.size_bytes
