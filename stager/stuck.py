"""Threads that the interpreter's own end would trip over: whether there are any, and an end that leaves them be."""

import os
import sys
import threading
from typing import NoReturn

THREAD_PREFIX = "stage-"
"""Names of the stager's threads begin so: one that is left at the end is one that hangs in the kernel."""


NATIVE_DRIVERS = frozenset({"obstore"})
"""Modules with threads of their own, which Python does not see. One that wakes up while the interpreter ends aborts the
process, and its exit code is lost (seen with obstore, once)."""


def has_stuck_threads() -> bool:
    """Whether a thread of the stager still runs, though its work is over, or there may be threads of native drivers."""
    return not NATIVE_DRIVERS.isdisjoint(sys.modules) or any(
        thread.name.startswith(THREAD_PREFIX) for thread in threading.enumerate()
    )


def leave_now(code: int) -> NoReturn:
    """End the process without waiting for its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
