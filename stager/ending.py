"""Work that ends in time: by a signal, or at a deadline; partials are kept."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from shardferry.console.units import format_seconds
from shards.errors import StoppedError

Result = TypeVar("Result")

STOP_SECONDS = 3.0
"""How long a stop waits for reads that are under way before it leaves them behind."""


async def until_stopped(
    work: Coroutine[Any, Any, Result],
    on_stuck: Callable[[StoppedError], None],
    deadline_seconds: float | None = None,
    explain: Callable[[], str] = str,
) -> Result:
    """Await work until SIGTERM or SIGINT comes or the deadline passes; then cancel it.

    Args:
        work: what to do.
        on_stuck: called when the work has not ended :data:`STOP_SECONDS` after it was cancelled, because a read hangs
            in the kernel; it should end the process.
        deadline_seconds: from now; None for no deadline.
        explain: says how far the work is, for the error when the deadline passes.

    Raises:
        StoppedError: a signal came, or the deadline passed.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    stopped_by: list[StoppedError] = []

    def stop(error: StoppedError) -> None:
        if stopped_by:
            return
        stopped_by.append(error)
        task.cancel()
        loop.call_later(STOP_SECONDS, on_stuck, error)

    def stop_late() -> None:
        facts = explain()
        stop(
            StoppedError(
                "deadline",
                f"the deadline of {format_seconds(deadline_seconds or 0)} has passed{f': {facts}' if facts else ''}; "
                "finished work is kept, run the same command again to go on",
            )
        )

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop, StoppedError(number.name))
    timer = None if deadline_seconds is None else loop.call_later(deadline_seconds, stop_late)
    try:
        return await task
    except asyncio.CancelledError:
        if not stopped_by:
            raise
        raise stopped_by[0] from None
    finally:
        if timer is not None:
            timer.cancel()
        for number in signals:
            loop.remove_signal_handler(number)
