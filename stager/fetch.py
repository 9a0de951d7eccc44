"""Moves what the plan asks for: ranges from the remote, verified as they arrive, into partials, under final names.

Rules:
    * One bounded set of connections over all shards, blocks and indexes.
    * Nothing gets a final name before each of its blocks has the promised digest, and the block digests together have
      the shard digest of the manifest.
    * A block that differs is fetched once more, then it is the source that is damaged.
    * The first error stops everything; what is committed stays, partials stay and are resumed by the next run. Only
      when the disk is full do the partials of this run go: a full disk hurts more than fetching them again.
    * A shard that another stager works on is left to it; when the rest is done it is waited for.
"""

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from shards.digests import BlockHasher, block_ranges, digest_text
from shards.errors import DigestMismatchError, NoSpaceError, SizeMismatchError
from shards.files import free_bytes
from shards.manifest import ShardEntry
from stager.blocks import BlockWriter, data_extents, has_block, whole_file_digest
from stager.cache import DatasetDirectory
from stager.claims import Claim, ClaimState, IndexClaim
from stager.connections import Backlog, Connections, Promise
from stager.hashing import digest_file, hash_and_write
from stager.indexes import read_block_digests
from stager.plan import Block, ShardStep, WantedFile, blocks_in_extents, blocks_of
from stager.remotes.base import Remote, RemoteVersion
from stager.report import FetchTotals
from stager.threads import task_group

logger = logging.getLogger(__name__)

TRIES_PER_BLOCK = 2
"""Once more rules out what went wrong on the way; a third time would only read the same damage again."""

PEER_POLL_SECONDS = 0.1
PEER_LOG_SECONDS = 5.0
RECORD_INTERVAL_SECONDS = 1.0
"""How much committed work a SIGKILL may cost in hashing again."""


class Fetcher:
    """Fetches the shards of one dataset; use it for one call of :meth:`fetch`.

    Args:
        remote: where the bytes come from.
        dataset: where they go to.
        connections: buffers and threads.
        on_bytes: called with the number of bytes that are done since the last call.
        on_shard: called when a shard and its index lie under their final names.
    """

    def __init__(
        self,
        remote: Remote,
        dataset: DatasetDirectory,
        connections: Connections,
        on_bytes: Callable[[int], None],
        on_shard: Callable[[ShardEntry], None] = lambda shard: None,
    ) -> None:
        self.totals = FetchTotals()
        self._remote = remote
        self._dataset = dataset
        self._connections = connections
        self._on_bytes = on_bytes
        self._on_shard = on_shard
        self._backlog = Backlog(connections.count)
        self._open_shards = asyncio.Semaphore(2 * connections.count)
        self._recorded_at = time.monotonic()

    async def fetch(self, steps: Sequence[ShardStep]) -> FetchTotals:
        """Stage the shards of ``steps``; returns when all of them, and their indexes, lie under their final names.

        Raises:
            IntegrityError: the source is not what its manifest promises.
            FormatError: an index is damaged, though it is what the manifest promises.
            RemoteError: the source cannot be read.
            NoSpaceError: the disk is full.
            OSError: the local disk failed.
        """
        started_at = time.monotonic()
        remaining = list(steps)
        try:
            while remaining:
                busy = await self._pass_over(remaining)
                if len(busy) == len(remaining):
                    await self._wait_for_peers(busy, started_at)
                remaining = busy
        finally:
            self._dataset.save_records()
        return self.totals

    async def _pass_over(self, steps: Sequence[ShardStep]) -> list[ShardStep]:
        """Stage every shard that nobody else works on; give the others."""
        busy: list[ShardStep] = []

        async def attempt(step: ShardStep, promised: Promise) -> None:
            try:
                if await self._stage_shard(step, promised):
                    self._on_shard(step.shard)
                else:
                    busy.append(step)
            finally:
                promised.release()
                self._open_shards.release()

        async with task_group() as group:
            for step in steps:
                await self._open_shards.acquire()
                await self._backlog.room()
                promised = Promise(self._backlog, -(-step.shard.size_bytes // self._connections.block_bytes))
                group.create_task(attempt(step, promised))
        return busy

    async def _stage_shard(self, step: ShardStep, promised: Promise) -> bool:
        """Stage one shard and its index; False when another stager works on it."""
        if not step.data.is_needed:
            return await self._stage_index_alone(step)
        claim = await self._connections.on_disk(self._dataset.claim, step)
        if isinstance(claim, ClaimState):
            if claim is ClaimState.BUSY:
                return False
            if not await self._stage_index_alone(step):
                return False
            self._count_peer(step.shard.size_bytes)
            return True
        with claim:
            try:
                if not await self._stage_claimed(step, claim, promised):
                    return False
            except OSError as error:
                error.filename = error.filename or claim.final_path
                if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise
                claim.give_room_back()
                raise self._no_space(step) from error
        await self._save_records_now_and_then()
        return True

    async def _stage_claimed(self, step: ShardStep, claim: Claim, promised: Promise) -> bool:
        """Stage a shard that this process has claimed; False when another stager works on its index."""
        version = await self._expect_size(step.data.file)
        with ExitStack() as stack:
            index: IndexClaim | None = None
            index_path = self._dataset.final_path(step.shard.index_name)
            if not await self._has_index(step):
                claimed = await self._connections.on_disk(self._dataset.claim_index, step.index.file)
                if claimed is None:
                    return False
                index = stack.enter_context(claimed)
                await self._fetch_file(step.index.file, index)
                index_path = index.path
            digests = await self._connections.on_disk(
                read_block_digests, index_path, step.shard, self._connections.block_bytes
            )
            await self._fill(claim, step.shard, digests, version, promised)
            # both wait for the disk, so the index waits until the connections have moved on to the next shard
            await self._connections.on_commit(self._commit, step, index, claim)
        logger.debug("shard staged", extra={"shard": step.shard.name, "num_bytes": step.shard.size_bytes})
        return True

    async def _fill(
        self,
        claim: Claim,
        shard: ShardEntry,
        digests: Sequence[bytes],
        version: RemoteVersion,
        promised: Promise,
    ) -> None:
        """Bring every block into the partial that is not there yet."""
        blocks = blocks_of(shard.size_bytes, self._connections.block_bytes)
        present = await self._check_partial(claim, blocks, digests)
        promised.begin(len(present))
        with await self._connections.on_disk(BlockWriter, claim.fd) as writer:
            async with task_group() as group:
                for block in blocks:
                    if block.number in present:
                        continue
                    buffer = await self._connections.take()
                    promised.begin(1)
                    fetch = self._fetch_block(claim.name, writer, block, digests[block.number], version, buffer)
                    group.create_task(fetch)

    async def _check_partial(self, claim: Claim, blocks: Sequence[Block], digests: Sequence[bytes]) -> set[int]:
        """Hash what an earlier run left; give the numbers of the blocks that are right."""
        present: set[int] = set()

        async def check(block: Block, buffer: memoryview) -> None:
            try:
                with buffer[: block.size_bytes] as view:
                    expected = digests[block.number]
                    if await self._connections.on_disk(has_block, claim.fd, block.offset, view, expected):
                        present.add(block.number)
                        self.totals.resumed_bytes += block.size_bytes
                        self._on_bytes(block.size_bytes)
            finally:
                self._connections.give_back(buffer)

        extents = await self._connections.on_disk(data_extents, claim.fd, claim.size_bytes)
        async with task_group() as group:
            for block in blocks_in_extents(blocks, extents):
                group.create_task(check(block, await self._connections.take()))
        return present

    async def _fetch_block(
        self,
        name: str,
        writer: BlockWriter,
        block: Block,
        expected: bytes,
        version: RemoteVersion,
        buffer: memoryview,
    ) -> None:
        actual = b""
        try:
            with buffer[: block.size_bytes] as view:
                for _ in range(TRIES_PER_BLOCK):
                    await self._remote.read_range(name, block.offset, view, version)
                    self.totals.fetched_bytes += block.size_bytes
                    actual = await self._connections.on_disk(writer.write_verified, block.offset, view, expected)
                    if actual == expected:
                        self._on_bytes(block.size_bytes)
                        return
                    logger.warning("block differs from its digest", extra={"shard": name, "block": block.number})
        finally:
            self._connections.give_back(buffer)
        raise DigestMismatchError(
            name, block.number, block.offset, digest_text(expected), digest_text(actual), self._advice()
        )

    async def _stage_index_alone(self, step: ShardStep) -> bool:
        """Stage the index of a shard that is there already; False when another stager works on it."""
        if await self._has_index(step):
            if step.index.is_needed:
                self._count_peer(step.index.file.size_bytes)
            return True
        index = await self._connections.on_disk(self._dataset.claim_index, step.index.file)
        if index is None:
            return False
        with index:
            await self._fetch_file(step.index.file, index)
            await self._connections.on_disk(read_block_digests, index.path, step.shard, self._connections.block_bytes)
            await self._connections.on_commit(self._commit, step, index, None)
        return True

    async def _has_index(self, step: ShardStep) -> bool:
        """Tell whether the right index lies under its final name; hashes it, since block digests hang on it."""
        file = step.index.file
        found = self._dataset.observe(file.name)
        if found is None or found.size_bytes != file.size_bytes:
            return False
        return await digest_file(self._connections, self._dataset.final_path(file.name)) == file.digest

    def _commit(self, step: ShardStep, index: IndexClaim | None, claim: Claim | None) -> None:
        """Give final names, index first: a shard that is there has its index."""
        if index is not None:
            file = step.index.file
            self._dataset.clear_way(file.name)
            index.commit()
            self._dataset.record(file)
        if claim is not None:
            claim.commit()

    async def _fetch_file(self, file: WantedFile, partial: IndexClaim) -> None:
        """Bring a whole file into a partial, in pieces of a buffer, and check its digest; does not commit it."""
        version = await self._expect_size(file)
        actual = ""
        for _ in range(TRIES_PER_BLOCK):
            hasher = BlockHasher(max(file.size_bytes, 1))
            async with self._connections.buffer() as buffer:
                for start, end in block_ranges(file.size_bytes, len(buffer)):
                    with buffer[: end - start] as view:
                        await self._remote.read_range(file.name, start, view, version)
                        await self._connections.on_disk(hash_and_write, hasher, partial.fd, start, view)
            self.totals.fetched_bytes += file.size_bytes
            actual = whole_file_digest(hasher.finish().digests)
            if actual == file.digest:
                self._on_bytes(file.size_bytes)
                return
            logger.warning("file differs from its digest", extra={"file": file.name})
        raise DigestMismatchError(file.name, None, 0, file.digest, actual, self._advice())

    async def _expect_size(self, file: WantedFile) -> RemoteVersion:
        version = await self._remote.stat(file.name)
        if version.size_bytes != file.size_bytes:
            raise SizeMismatchError(file.name, file.size_bytes, version.size_bytes, self._advice())
        return version

    async def _wait_for_peers(self, busy: Sequence[ShardStep], started_at: float) -> None:
        waited_seconds = time.monotonic() - started_at
        if int(waited_seconds / PEER_LOG_SECONDS) != int((waited_seconds + PEER_POLL_SECONDS) / PEER_LOG_SECONDS):
            logger.info(
                "waiting for another stager; its shards are taken over when it ends",
                extra={
                    "num_shards": len(busy),
                    "shard": busy[0].shard.name,
                    "holders": self._dataset.live_holders(),
                    "elapsed_seconds": round(waited_seconds, 1),
                },
            )
        await asyncio.sleep(PEER_POLL_SECONDS)

    async def _save_records_now_and_then(self) -> None:
        if time.monotonic() - self._recorded_at >= RECORD_INTERVAL_SECONDS:
            self._recorded_at = time.monotonic()
            await self._connections.on_commit(self._dataset.save_records)

    def _count_peer(self, num_bytes: int) -> None:
        self.totals.peer_bytes += num_bytes
        self._on_bytes(num_bytes)

    def _no_space(self, step: ShardStep) -> NoSpaceError:
        path = self._dataset.path
        return NoSpaceError(path, step.shard.size_bytes, free_bytes(path), advice="free space there and run again")

    def _advice(self) -> str:
        return (
            f"the source {self._remote.url} is damaged or is not the dataset of its manifest: restore it or pack it "
            "again; nothing bad was committed, shards that are staged stay"
        )
