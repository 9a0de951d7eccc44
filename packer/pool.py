"""Does the same with each of many things in several processes; values in, values out.

A worker ignores the terminal's interrupt (the parent decides what it means) and never outlives its parent.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from shards.errors import PackError

POLL_SECONDS = 0.2
"""How soon a stop is noticed."""

_QUEUED_PER_JOB = 2
"""Results hold an index each: no more are made than are soon taken."""


Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_processes(
    task: Callable[[Item], Result], items: Sequence[Item], num_jobs: int, check: Callable[[], None]
) -> Iterator[tuple[int, Result]]:
    """Do a task with every item.

    Args:
        task: picklable: a function of a module, or a partial of one.
        items: picklable.
        num_jobs: processes; with one, all is done in this process.
        check: called often; raises to stop.

    Yields:
        (place in ``items``, result), as they come.

    Raises:
        PackError: a worker died.
    """
    num_jobs = min(num_jobs, len(items))
    if num_jobs <= 1:
        for place, item in enumerate(items):
            check()
            yield place, task(item)
        return
    waiting = iter(enumerate(items))
    running: dict[Future[Result], int] = {}
    with ProcessPoolExecutor(num_jobs, multiprocessing.get_context("spawn"), _begin_worker) as pool:
        try:
            while True:
                while len(running) < num_jobs * _QUEUED_PER_JOB and (following := next(waiting, None)) is not None:
                    place, item = following
                    running[pool.submit(task, item)] = place
                if not running:
                    return
                check()
                for future in wait(running, POLL_SECONDS, FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool as error:
            raise PackError(
                "a process that read shards was ended from outside; that is what the kernel does when memory runs "
                "out: try fewer --jobs"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
