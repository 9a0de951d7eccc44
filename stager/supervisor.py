"""Ends the program although a thread of it cannot end.

A read that hangs in a FUSE mount, as of ceph-fuse or s3fs, survives even SIGKILL: its process stays behind as a zombie
with a living thread until the mount answers, and whoever waits for the process waits as long. So a child does the work,
and this process ends when the child has ended *as far as it can*, with the child's exit code.

Rules:
    * A child that was asked to stop, or has a deadline, and has not ended in time is given up: the thread that would
      have to hear the signal may be the one that hangs.
    * Whatever the caller of the program does to it, happens to the child: signals are handed on, a child that a signal
      ended ends this process by the same signal, and when this process is killed, the kernel kills the child.
    * Nothing else is done here: no thread, no file.
"""

import ctypes
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from shards.errors import StoppedError

LOOK_SECONDS = 0.25
"""How often is looked whether the child has ended but for a thread that hangs; a whole end is noticed at once."""

PATIENCE_SECONDS = 4.0
"""How long a child that should stop may take; it leaves what hangs behind by itself before that, if it can."""

_FORWARDED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})
_SI_KERNEL = 0x80
"""A signal with this code came from the terminal, which has sent it to the child as well."""
_PR_SET_PDEATHSIG = 1


def supervise(give_up: Callable[[StoppedError], NoReturn], deadline_seconds: float | None = None) -> None:
    """Go on in a child process; the one that called this ends as the child does. Call it before there are threads.

    In a process that has threads, the command is called by another program and is not the program itself: it goes on
    where it is, for a fork would take the caller's code along and leave its threads behind.

    Args:
        give_up: called in the parent when the child should have stopped and has not; says so and ends the process.
        deadline_seconds: by when the child stops by itself, from now; None for no deadline.
    """
    if threading.active_count() > 1:
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or both processes would write what is left
    waited_for = _FORWARDED | {signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    pid = os.fork()
    if pid == 0:
        _die_with_parent(os.getppid())
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return
    stop = StoppedError("deadline", "the deadline has passed; run the same command again to go on")
    give_up_at = math.inf if deadline_seconds is None else time.monotonic() + deadline_seconds + PATIENCE_SECONDS
    while True:
        received = signal.sigtimedwait(waited_for, LOOK_SECONDS)
        if received is not None and received.si_signo in _FORWARDED:
            if received.si_code != _SI_KERNEL:
                os.kill(pid, received.si_signo)
            if received.si_signo in _STOPPING and give_up_at > time.monotonic() + PATIENCE_SECONDS:
                stop = StoppedError(signal.Signals(received.si_signo).name)
                give_up_at = time.monotonic() + PATIENCE_SECONDS
        status = _end_of(pid)
        if status is not None:
            _end_like(os.waitstatus_to_exitcode(status))
        if time.monotonic() >= give_up_at:
            os.kill(pid, signal.SIGKILL)
            give_up(stop)


def _die_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was told
        os._exit(128 + signal.SIGKILL)


def _end_of(pid: int) -> int | None:
    """The wait status of a child that has ended, be it that a thread of it is still there; else None."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        return status
    with open(f"/proc/{pid}/stat", "rb") as file:  # in the program's name there may be anything, but no end of it
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[-1]) if fields[0] == b"Z" else None


def _end_like(code: int) -> NoReturn:
    if code < 0:
        if -code not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        code = 128 - code  # the first process of a container is not killed by its own signals
    os._exit(code)
