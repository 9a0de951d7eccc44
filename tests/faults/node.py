"""A node on which the program runs, and what must hold for it whatever fault there is."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.stager.conftest import Published, environment

PATIENCE_SECONDS = 60.0
"""Far longer than anything here takes; a run that is not over by then is stuck."""

RETRY_FOR = "1s"
"""How long the program repeats what fails, unless a test says otherwise: minutes are too long for one that stays."""


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition; fail, and say for what was waited, when it does not come."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain until {what}"
        time.sleep(0.02)


@dataclass(frozen=True)
class Ended:
    """How a run of the program ended."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def report(self) -> dict[str, Any]:
        assert self.code == 0, self.stderr
        return json.loads(self.stdout)

    @property
    def message(self) -> str:
        """The error that was shown, without the log lines before it."""
        return self.stderr.partition("stage: error: ")[2]


class Running:
    """The program at work, in a process group of its own."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], directory: Path) -> None:
        self._started_at = time.monotonic()
        place = Path(tempfile.mkdtemp(dir=directory, prefix="run-"))
        self._paths = [place / "stdout", place / "stderr"]
        with open(self._paths[0], "wb") as out, open(self._paths[1], "wb") as err:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )

    @property
    def stderr(self) -> str:
        """What it has said so far."""
        return self._paths[1].read_text(errors="replace")

    def is_over(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and its children."""
        os.killpg(self.process.pid, number)

    def finish(self, seconds: float = PATIENCE_SECONDS) -> Ended:
        """Wait for its end; one that does not end is killed and fails the test."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            said = self.stderr[-2000:]
            self.signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # where it hangs in the kernel
                self.process.wait(5)
            raise AssertionError(f"not over after {seconds:g} s; said {said}") from None
        out, err = (path.read_text(errors="replace") for path in self._paths)
        return Ended(self.process.returncode, out, err, time.monotonic() - self._started_at)


class Node:
    """A node with a cache, in which files lie that are not ours.

    Args:
        directory: for what the programs say.
        cache: the cache; need not exist.
    """

    def __init__(self, directory: Path, cache: Path) -> None:
        self.cache = cache
        self._directory = directory
        self._foreign: dict[Path, bytes] = {}

    def plant_foreign_files(self, *datasets: Published) -> None:
        """Put files of somebody else into every directory of the cache where the program works."""
        directories = [self.cache, self.cache / "datasets", *(dataset.staged_in(self.cache) for dataset in datasets)]
        for number, directory in enumerate(directories):
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"somebody-else's-{number}.tar"
            self._foreign[path] = f"foreign {number}".encode()
            path.write_bytes(self._foreign[path])
            for place in (path, *path.parents[: 1 + len(path.relative_to(self.cache).parents)]):
                _make_durable(place)

    def start(
        self, source: object, *options: object, prefix: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> Running:
        """Start ``stage run``."""
        fixed = ("--cache-dir", self.cache, "--retry-for", RETRY_FOR, "--json")
        command = [*prefix, sys.executable, "-m", "stager", "run", source, *fixed, *options]
        return Running([str(part) for part in command], environment(**(env or {})), self._directory)

    def stage(
        self, source: object, *options: object, prefix: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> Ended:
        """Run ``stage run`` to its end."""
        return self.start(source, *options, prefix=prefix, env=env).finish()

    def check(self, *datasets: Published) -> None:
        """No bad byte lies under a final name, a manifest means complete, and foreign files are as they were."""
        for dataset in datasets:
            assert dataset.wrong_files(self.cache) == []
            if (dataset.staged_in(self.cache) / "manifest.json").exists():
                assert dataset.is_staged(self.cache)
        for path, content in self._foreign.items():
            assert path.read_bytes() == content

    def check_completes(
        self, dataset: Published, source: object, *options: object, env: Mapping[str, str] | None = None
    ) -> Ended:
        """With the fault gone, one run stages everything, a second one finds nothing to do, nothing is left over."""
        ended = self.stage(source, *options, env=env)
        assert ended.code == 0, ended.stderr
        assert dataset.is_staged(self.cache)
        again = self.stage(source, *options, env=env)
        assert again.report["result"] == "AlreadyStaged", again.stdout
        self.check(dataset)
        left = [path for path in self.cache.rglob("*.partial") if path not in self._foreign]
        assert left == []
        trash = self.cache / "trash"
        assert not trash.exists() or list(trash.iterdir()) == []
        return ended


def _make_durable(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
