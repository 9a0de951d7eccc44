"""Blocking work in threads, safe to cancel; and groups of tasks that fail with the error itself.

A coroutine that is cancelled while its thread still reads into a buffer or writes to a descriptor must not go on to
reuse the buffer or close the descriptor: the number could by then belong to another file. So cancellation waits for
the thread. A thread that hangs in the kernel holds up only that wait; the program's end does not wait for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


async def run_in_thread(executor: Executor, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
    """Run a blocking function in one of the executor's threads and give its result.

    Raises:
        asyncio.CancelledError: the caller was cancelled; the function has ended by then, or never began. A result that
            is a context manager was left, since nobody else will.
    """
    work = executor.submit(function, *args)
    future = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not work.cancel():
            await _wait_for_end(future)
            if future.exception() is None and isinstance(result := future.result(), AbstractContextManager):
                result.__exit__(None, None, None)
        raise


async def finish_in_thread(executor: Executor, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
    """Run a blocking function in a thread, to its end even when the caller is cancelled before it has begun.

    Raises:
        asyncio.CancelledError: the caller was cancelled; the function has ended by then.
    """
    future = asyncio.wrap_future(executor.submit(function, *args))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await _wait_for_end(future)
        raise


async def _wait_for_end(future: "asyncio.Future[Result]") -> None:
    """Wait until the thread is done, whatever comes of it and however often the waiter is cancelled."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A ``TaskGroup`` that raises its first error as it is, so that callers can tell errors apart by class."""
    stopped_by: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        stopped_by = _first_error(errors)
    if stopped_by is not None:
        raise stopped_by


def _first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
