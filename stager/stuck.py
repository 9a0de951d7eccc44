"""Threads that hang in the kernel: whether there are any, and an end that does not wait for them."""

import os
import sys
import threading
from typing import NoReturn

THREAD_PREFIX = "stage-"
"""Names of the stager's threads begin so: one that is left at the end is one that hangs in the kernel."""


def has_stuck_threads() -> bool:
    """Whether a thread of the stager still runs, though its work is over."""
    return any(thread.name.startswith(THREAD_PREFIX) for thread in threading.enumerate())


def leave_now(code: int) -> NoReturn:
    """End the process without waiting for its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
