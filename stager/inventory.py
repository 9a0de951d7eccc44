"""Observes what the cache holds of a dataset: names, sizes, records, partials; and hashes what has to be hashed."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence

from shards.digests import shard_digest
from shards.manifest import MANIFEST_NAME, Manifest, ShardEntry
from stager.cache import DatasetDirectory
from stager.connections import Connections
from stager.hashing import digest_file, hash_blocks
from stager.plan import Inventory, ObservedFile, WantedFile
from stager.threads import task_group

logger = logging.getLogger(__name__)


def observe_inventory(
    dataset: DatasetDirectory, manifest: Manifest, wanted: Sequence[ShardEntry] | None = None
) -> Inventory:
    """Observe files of a dataset in the cache; one ``lstat`` a name, nothing is opened but the status file.

    Args:
        dataset: its directory.
        manifest: of the dataset.
        wanted: the shards to look at; all when None.
    """
    # first, so that a dataset which another stager completes meanwhile never looks complete and damaged
    has_manifest = dataset.observe(MANIFEST_NAME) is not None
    files: dict[str, ObservedFile] = {}
    partial_bytes: dict[str, int] = {}
    for shard in [shard for _, shard in manifest.shards()] if wanted is None else wanted:
        for name in (shard.index_name, shard.name):
            found = dataset.observe(name)
            if found is not None:
                files[name] = found
        if shard.name not in files or files[shard.name].size_bytes != shard.size_bytes:
            partial_bytes[shard.name] = allocated_bytes(dataset.partial_path(shard.name))
    status = dataset.read_status()
    return Inventory(
        files=files,
        records={} if status is None else status.records,
        partial_bytes=partial_bytes,
        has_manifest=has_manifest,
    )


def allocated_bytes(path: str) -> int:
    """Give the bytes that a file takes on disk, holes not counted; 0 when there is none."""
    try:
        return os.lstat(path).st_blocks * 512
    except FileNotFoundError:
        return 0


async def verify_files(
    dataset: DatasetDirectory,
    manifest: Manifest,
    files: Sequence[WantedFile],
    connections: Connections,
    on_bytes: Callable[[int], None],
) -> dict[str, bool]:
    """Hash files under their final names; give for each whether it is what the manifest promises.

    A file that is right is recorded, so that the next run need not hash it.
    """
    shard_names = {shard.name for _, shard in manifest.shards()}
    verdicts: dict[str, bool] = {}

    async def verify(file: WantedFile) -> None:
        path = dataset.final_path(file.name)
        if file.name in shard_names:
            actual = shard_digest(await hash_blocks(connections, path))
        else:
            actual = await digest_file(connections, path)
        verdicts[file.name] = actual == file.digest
        on_bytes(file.size_bytes)
        if actual == file.digest:
            dataset.record(file)
        else:
            logger.warning(
                "staged file is damaged, fetching it again",
                extra={"file": file.name, "expected": file.digest, "actual": actual},
            )

    async def verify_some(queue: Iterator[WantedFile]) -> None:
        for file in queue:
            await verify(file)

    queue = iter(files)
    async with task_group() as group:
        for _ in range(connections.count):
            group.create_task(verify_some(queue))
    return verdicts
