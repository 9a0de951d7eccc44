"""Runs a command as a whole process and says what it took: wall time, processor time, memory."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

PEAK_POLL_SECONDS = 0.02
LIMIT_SECONDS = 3600.0


class CommandError(Exception):
    """A command failed; the message has the end of what it printed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one run took."""

    seconds: float
    """Wall time."""
    cpu_seconds: float
    """User and system time of the process and of all its children that were waited for."""
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    """Peak resident memory by role, ``main`` and ``worker`` (the biggest of them); only when it was watched."""


def run(
    command: Sequence[str], *, log: str, env: Mapping[str, str] | None = None, watches_memory: bool = False
) -> Usage:
    """Run a command to its end.

    Args:
        command: program and arguments.
        log: file for what it prints.
        env: variables added to the environment.
        watches_memory: look at the memory of every process several times a second, which costs a little time.

    Raises:
        CommandError: it failed.
    """
    with open(log, "wb") as output:
        before = os.times()
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
        try:
            with _PeakWatch(process.pid) if watches_memory else contextlib.nullcontext() as watch:
                code = process.wait(LIMIT_SECONDS)
        finally:
            process.kill()
            process.wait()
        seconds = time.perf_counter() - started
        after = os.times()
    if code:
        with open(log, errors="replace") as output:
            text = output.read()
        raise CommandError(f"{' '.join(command)}\nended with status {code}; it printed:\n{text[-2000:]}")
    cpu_seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return Usage(seconds, cpu_seconds, watch.peaks if watch else {})


class _PeakWatch:
    """Polls the kernel's high-water mark of a process and of its direct children; a context manager."""

    def __init__(self, pid: int) -> None:
        self.peaks: dict[str, int] = {}
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._done.wait(PEAK_POLL_SECONDS):
            with contextlib.suppress(OSError):  # a process that just ended
                self._note("main", self._pid)
                for child in _children(self._pid):
                    self._note("worker", child)

    def _note(self, role: str, pid: int) -> None:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    self.peaks[role] = max(self.peaks.get(role, 0), int(line.split()[1]) * 1024)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children") as file:
            children.extend(map(int, file.read().split()))
    return children
