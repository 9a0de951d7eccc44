"""The bounded resources of one run: as many buffers as connections, and the threads that use them.

A connection is a buffer of one block: who holds it may read a range from the source. Since everybody draws from one
pool, over all shards, memory is ``connections x block`` whatever the dataset's size.
"""

import asyncio
import mmap
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar, TypeVarTuple

from stager.threads import finish_in_thread, run_in_thread

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

COMMIT_THREADS = 4
"""Commits wait for the disk, one after another it would be its latency that counts with many small shards."""


class Connections:
    """Buffers and threads of one run; close it at the end.

    Args:
        count: buffers.
        block_bytes: size of each.
    """

    def __init__(self, count: int, block_bytes: int) -> None:
        self.count = count
        self.block_bytes = block_bytes
        self._free: asyncio.Queue[memoryview] = asyncio.Queue()
        for _ in range(count):
            # an anonymous map is page aligned and costs memory only once it is used
            self._free.put_nowait(memoryview(mmap.mmap(-1, block_bytes)))
        self._disk = ThreadPoolExecutor(count, thread_name_prefix="stage-disk")
        self._commit = ThreadPoolExecutor(COMMIT_THREADS, thread_name_prefix="stage-commit")

    async def take(self) -> memoryview:
        """Wait for a free buffer. Hand it to :meth:`give_back` when nothing uses it any more."""
        return await self._free.get()

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer to the pool."""
        self._free.put_nowait(buffer)

    @asynccontextmanager
    async def buffer(self) -> AsyncIterator[memoryview]:
        """Hold a buffer for the length of a ``with`` block."""
        buffer = await self.take()
        try:
            yield buffer
        finally:
            self.give_back(buffer)

    async def on_disk(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        """Run work on local files in a thread."""
        return await run_in_thread(self._disk, function, *args)

    async def on_commit(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        """Run work that waits for the disk to be durable, in a thread of its own so that blocks go on meanwhile.

        It is done even when the run is stopped: the bytes are all there, giving them up would be a waste.
        """
        return await finish_in_thread(self._commit, function, *args)

    def close(self) -> None:
        """Let the threads end without waiting for one that hangs."""
        executors: tuple[Executor, ...] = (self._disk, self._commit)
        for executor in executors:
            executor.shutdown(wait=False, cancel_futures=True)


class Backlog:
    """How many blocks are promised and not begun; holds the opening of more shards back while they are plenty.

    Shards are opened late on purpose: what is not opened here can be taken by another stager of the same dataset.

    Args:
        limit: blocks from which on no further shard is opened.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def room(self) -> None:
        """Wait until another shard may be opened."""
        await self._has_room.wait()

    def change(self, num_blocks: int) -> None:
        """Count blocks that were promised (positive), or begun or found to be there (negative)."""
        self._pending += num_blocks
        if self._pending < self._limit:
            self._has_room.set()
        else:
            self._has_room.clear()


class Promise:
    """The blocks of one shard in the backlog, each of which leaves it exactly once.

    Args:
        backlog: where they are counted.
        num_blocks: of the shard; one with none is work as well and counts as one.
    """

    def __init__(self, backlog: Backlog, num_blocks: int) -> None:
        self._backlog = backlog
        self._left = max(num_blocks, 1)
        backlog.change(self._left)

    def begin(self, num_blocks: int) -> None:
        """Take blocks out of the backlog."""
        self._left -= num_blocks
        self._backlog.change(-num_blocks)

    def release(self) -> None:
        """Take out what is left; the shard is done, busy or given up."""
        self.begin(self._left)
