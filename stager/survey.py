"""Datasets without a manifest: shards of others, in a directory or below a prefix, staged from a listing.

A dataset's id is that of its manifest, and a manifest needs digests, which nobody has yet. So shards are brought first,
under a draft: a manifest that has the listing's versions in place of digests. Its id stands for the listing. They are
hashed on the way, scanned on the local disk for their indexes, and then handed over as partials to the dataset whose
manifest has been made of that; there every block is verified once more before the shard gets its final name.

Rules:
    * The source is read once. What a killed run has brought is not read again.
    * A shard is all of one version: it is asked for by that, and looked at again when it is there.
    * The same listing (names, sizes, ETags or times) is not read again: the dataset remembers which one it was made of.
    * The same shards make the same dataset, wherever they lie and whenever they are staged.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from shardferry import __version__
from shardferry.console import Progress
from shards.cache import CacheLayout
from shards.digests import BLOCK_BYTES, hash_bytes, shard_digest
from shards.errors import (
    DamagedShardsError,
    DigestMismatchError,
    ForeignShardsError,
    FormatError,
    RemoteChangedError,
    SelectionError,
    printable,
)
from shards.files import read_regular_file, write_file
from shards.foreign.manifest import make_manifest
from shards.foreign.names import Advice, ForeignShard, ForeignShards, choose_files
from shards.foreign.scan import ScannedShard, scan_shard
from shards.index_schema import index_name
from shards.leases import try_lock
from shards.manifest import MAX_MANIFEST_BYTES, Manifest, ShardEntry, SplitEntry
from shards.ranges import FileRanges
from shards.selection import ALL
from stager.blocks import BlockWriter
from stager.cache import DatasetDirectory
from stager.config import StageConfig
from stager.connections import Connections
from stager.lease import hold_lease
from stager.limits import Retain
from stager.local import observe_file, open_partial, staged_ids
from stager.plan import WantedFile, blocks_of
from stager.prepare import explain_not_writable
from stager.remotes.base import Remote, RemoteVersion
from stager.reserve import Reservation, reserve_room
from stager.session import Published
from stager.status import DatasetStatus
from stager.threads import task_group

logger = logging.getLogger(__name__)

LISTING_NAME = "listing.json"
"""In a dataset's ``.stage``: which draft it was made of."""

ADVICE = Advice(
    no_shard="",
    formats="make a dataset of one of them with pack adopt",
    splits="make a dataset of them with pack adopt, which takes --split NAME=GLOB",
    incomplete="copy what is missing, or make a dataset of what there is with pack adopt --allow-incomplete",
)

_LOCK_POLL_SECONDS = 0.1
_MAX_LISTING_BYTES = 4096


@contextlib.asynccontextmanager
async def survey(config: StageConfig, remote: Remote, layout: CacheLayout) -> AsyncIterator[Published]:
    """Make a dataset of a source that has no manifest, and bring its shards on the way.

    What was brought is protected for the length of the ``with`` block; stage the dataset within.

    Raises:
        ForeignShardsError: no shards, or not such as make a dataset.
        DamagedShardsError: some of them are damaged; all are named.
        SelectionError: a part was selected: what the whole is, is not known before all of it was read.
        RemoteError: the source cannot be listed or read.
        NoSpaceError: they do not fit.
    """
    if config.selection != ALL:
        raise SelectionError("a part of a source without a manifest cannot be selected: make one with pack adopt")
    files, draft = await _list_shards(remote)
    known = await asyncio.to_thread(_find_known, layout, draft.dataset_id)
    if known is not None:
        yield known
        return
    names = [name for _, shard in draft.shards() for name in (shard.name, shard.index_name)]
    directory = DatasetDirectory(layout, draft.dataset_id, names, DatasetStatus.of_manifest(draft, remote.url))
    connections = Connections(config.connections, BLOCK_BYTES)
    with (
        contextlib.closing(connections),
        explain_not_writable(config.cache_dir),
        hold_lease(layout, directory, config.holder, config.lease_ttl_seconds, Retain.DELETE) as lease,
    ):
        async with _alone(directory):
            known = await connections.on_disk(_find_known, layout, draft.dataset_id)  # made while this one waited
            if known is not None:
                yield known
                return
            wanted = tuple(WantedFile(shard.name, shard.size_bytes, shard.digest) for _, shard in draft.shards())
            await reserve_room(
                layout, config.space, Reservation(directory, lease, wanted, draft.to_json()), connections
            )
            surveyor = _Surveyor(remote, directory, connections)
            manifest = await surveyor.run(files)
            shards = tuple(shard for _, shard in manifest.shards())

            def hand_over(target: DatasetDirectory) -> None:
                _hand_over(layout, directory, target, shards)

            yield Published(manifest, manifest.to_json(), shards, hand_over, surveyor.read_bytes)
            lease.release()


async def _list_shards(remote: Remote) -> tuple[ForeignShards, Manifest]:
    """List the source; give its shards, and the draft whose id stands for them as they are now."""
    listed = {file.name: file for file in await remote.list_files()}
    try:
        files = choose_files(listed, ADVICE)
    except ForeignShardsError as error:
        raise ForeignShardsError(f"{printable(remote.url)}: {error}") from error
    if files.left_out:
        logger.info("files that are no shards are left out", extra={"num_files": len(files.left_out)})
    for remark in files.remarks:
        logger.warning(remark)
    splits: dict[str, list[ShardEntry]] = {}
    for file in files.files:
        found = listed[file.name]
        entry = ShardEntry(
            name=file.name,
            size_bytes=found.size_bytes,
            digest=hash_bytes(
                f"{file.format_name} {found.size_bytes} {found.token}".encode("utf-8", "surrogateescape")
            ),
            num_samples=0,
            index_name=index_name(file.name),
            index_size_bytes=0,
            index_digest=hash_bytes(b""),
        )
        splits.setdefault(file.split, []).append(entry)
    draft = Manifest(
        shard_format=files.format_name,
        block_bytes=BLOCK_BYTES,
        splits=tuple(
            SplitEntry(
                name=name,
                num_samples=0,
                size_bytes=sum(entry.size_bytes for entry in entries),
                shards=tuple(entries),
                extensions={},
            )
            for name, entries in sorted(splits.items())
        ),
        source={"kind": "draft", "url": printable(remote.url)},
    )
    return files, draft


def _find_known(layout: CacheLayout, draft_id: str) -> Published | None:
    """Find the dataset that was made of a draft, if it is in the cache with all of its indexes."""
    for dataset_id in staged_ids(layout):
        path = os.path.join(layout.stage_dir(dataset_id), LISTING_NAME)
        with contextlib.suppress(OSError, ValueError, FormatError):
            if json.loads(read_regular_file(path, max_bytes=_MAX_LISTING_BYTES)).get("draft_id") != draft_id:
                continue
            data = read_regular_file(layout.wanted_path(dataset_id), max_bytes=MAX_MANIFEST_BYTES)
            manifest = Manifest.from_json(data, name=layout.wanted_path(dataset_id))
            shards = tuple(shard for _, shard in manifest.shards())
            directory = layout.dataset_dir(dataset_id)
            found = [observe_file(os.path.join(directory, shard.index_name)) for shard in shards]
            if all(
                index is not None and index.size_bytes == shard.index_size_bytes
                for index, shard in zip(found, shards, strict=True)
            ):
                return Published(manifest, data, shards)
    return None


@contextlib.asynccontextmanager
async def _alone(directory: DatasetDirectory) -> AsyncIterator[None]:
    """Wait until no other process surveys the same listing; they would read it as well."""
    fd = os.open(directory.partial_path("survey"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        is_told = False
        while not try_lock(fd):
            if not is_told:
                logger.info("waiting for another stager that reads this source", extra={"path": directory.path})
                is_told = True
            await asyncio.sleep(_LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(fd)


@dataclass(slots=True)
class _Surveyor:
    """Brings shards into the partials of a draft, and finds out what they are."""

    remote: Remote
    directory: DatasetDirectory
    connections: Connections
    read_bytes: int = 0

    async def run(self, files: ForeignShards) -> Manifest:
        """Bring all shards; give the manifest that describes them."""
        found: dict[str, ScannedShard] = {}
        slots = asyncio.Semaphore(self.connections.count)
        logger.info("reading a source without a manifest", extra={"num_shards": len(files.files)})
        with Progress("reading shards") as progress:

            async def bring(file: ForeignShard) -> None:
                async with slots:
                    found[file.name] = await self._bring(file, progress)

            async with task_group() as group:
                for file in files.files:
                    group.create_task(bring(file))
        shards = [found[file.name] for file in files.files]
        faults = [shard.fault for shard in shards if shard.fault]
        if faults:
            summary = f"{len(faults)} of {len(shards)} shard(s) of {printable(self.remote.url)} cannot be used"
            raise DamagedShardsError(summary, faults, "copy or make them again, or move them away to stage the rest")
        return make_manifest(
            files,
            shards,
            packer={"program": "shardferry stage run", "version": __version__},
            source={"kind": "listing", "url": printable(self.remote.url), "num_shards": len(shards)},
        )

    async def _bring(self, file: ForeignShard, progress: Progress) -> ScannedShard:
        fd = await self.connections.on_disk(open_partial, self.directory.partial_path(file.name))
        try:
            expected = await self.connections.on_disk(self._brought_before, file)
            if expected is not None:
                found = await self.connections.on_disk(_scan, fd, file)
                if found.digest == expected:
                    await self.connections.on_commit(self._remember, file, fd, found)
                    return _without_index(found)
            expected = await self._download(file, fd, progress)
            found = await self.connections.on_disk(_scan, fd, file)
            if not found.fault:
                if found.digest != expected:
                    advice = "this node's disk gave other bytes than were written to it"
                    raise DigestMismatchError(file.name, None, 0, expected, found.digest, advice)
                await self.connections.on_commit(self._remember, file, fd, found)
            return _without_index(found)
        finally:
            os.close(fd)

    async def _download(self, file: ForeignShard, fd: int, progress: Progress) -> str:
        """Bring a whole shard of one version; give its digest."""
        version = await self.remote.stat(file.name)
        os.ftruncate(fd, version.size_bytes)
        digests: dict[int, bytes] = {}
        with await self.connections.on_disk(BlockWriter, fd) as writer:

            async def fetch(number: int, offset: int, size_bytes: int, buffer: memoryview) -> None:
                try:
                    with buffer[:size_bytes] as view:
                        await self.remote.read_range(file.name, offset, view, version)
                        digests[number] = await self.connections.on_disk(writer.write_hashed, offset, view)
                        self.read_bytes += size_bytes
                        progress.advance(num_bytes=size_bytes)
                finally:
                    self.connections.give_back(buffer)

            async with task_group() as group:
                for block in blocks_of(version.size_bytes, BLOCK_BYTES):
                    buffer = await self.connections.take()
                    group.create_task(fetch(block.number, block.offset, block.size_bytes, buffer))
        self._check_unchanged(file, version, await self.remote.stat(file.name))
        return shard_digest([digests[number] for number in sorted(digests)])

    def _check_unchanged(self, file: ForeignShard, before: RemoteVersion, after: RemoteVersion) -> None:
        if after != before:
            raise RemoteChangedError(f"{self.remote.url}/{file.name}", before.token, after.token)

    def _brought_before(self, file: ForeignShard) -> str | None:
        """Digest of a shard that an earlier run has brought; None when there is none."""
        with contextlib.suppress(OSError, ValueError, FormatError):
            data = read_regular_file(self._marker_path(file), max_bytes=_MAX_LISTING_BYTES)
            return str(json.loads(data)["digest"])
        return None

    def _remember(self, file: ForeignShard, fd: int, found: ScannedShard) -> None:
        os.fsync(fd)  # what the marker says must be true after a loss of power
        write_file(self.directory.final_path(index_name(file.name)), found.index_bytes)
        write_file(self._marker_path(file), json.dumps({"digest": found.digest}).encode("ascii"))

    def _marker_path(self, file: ForeignShard) -> str:
        return f"{self.directory.partial_path(file.name)}.brought.json"


def _scan(fd: int, file: ForeignShard) -> ScannedShard:
    return scan_shard(FileRanges(fd), file.name, file.format_name)


def _without_index(found: ScannedShard) -> ScannedShard:
    """Keep memory small: the index lies on the disk."""
    found.index_bytes = b""
    return found


def _hand_over(
    layout: CacheLayout, draft: DatasetDirectory, target: DatasetDirectory, shards: tuple[ShardEntry, ...]
) -> None:
    """Move partials and indexes to their dataset. What it has of them already stays as it is."""
    missing = [shard for shard in shards if target.observe(shard.name) is None]
    moves: Mapping[str, str] = {
        **{draft.partial_path(shard.name): target.partial_path(shard.name) for shard in missing},
        **{draft.final_path(shard.index_name): target.final_path(shard.index_name) for shard in shards},
    }
    for old, new in moves.items():
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.link(old, new)  # unlike a rename, never replaces what another process works on
    for old in [*moves, *(draft.partial_path(shard.name) for shard in shards)]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(old)
    record = json.dumps({"draft_id": draft.dataset_id}).encode("ascii")
    write_file(os.path.join(layout.stage_dir(target.dataset_id), LISTING_NAME), record)
