"""A cluster whose nodes can be killed, and a program that runs on it."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACK = os.path.join(os.path.dirname(sys.executable), "pack")
TEST_SECONDS = 180
"""No test takes longer."""
STORE_BYTES = 80 * 1024**2
"""Ray's least."""


@dataclass
class RayNodes:
    """A cluster whose nodes can be killed and replaced."""

    cluster: Any
    address: str

    def add_node(self):
        return self.cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)

    def kill_node(self, node) -> None:
        """End a node as a loss of power does: without a word to anybody."""
        self.cluster.remove_node(node, allow_graceful=False)

    def alive(self) -> list[str]:
        """Ids of the nodes that the head believes alive."""
        return [node["NodeID"] for node in self.cluster.global_state.node_table() if node["Alive"]]

    def busy_workers_by_node(self) -> dict[int, list[int]]:
        """Process of a node → its processes that pack a shard right now."""
        raylets = {
            running.process.pid
            for node in self.cluster.list_all_nodes()
            for running in node.all_processes.get("raylet", ())
        }
        busy: dict[int, list[int]] = {}
        for pid, parent, command in processes():
            if parent in raylets and command.startswith("ray::pack "):
                busy.setdefault(parent, []).append(pid)
        return busy

    def busy_workers(self) -> list[int]:
        """Processes of the cluster that pack a shard right now."""
        return [pid for pids in self.busy_workers_by_node().values() for pid in pids]


def processes() -> Iterator[tuple[int, int, str]]:
    """(pid, parent's pid, command line) of all processes."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = Path("/proc", name, "stat").read_text(errors="replace")
                command = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield int(name), int(status.rpartition(")")[2].split()[1]), command


@dataclass
class Running:
    """A ``pack build`` that was started."""

    process: subprocess.Popen
    destination: str

    def is_done(self) -> bool:
        """Whether the program has ended."""
        return self.process.poll() is not None

    def wait_until(self, is_so: Callable[[], object]):
        """Wait for a condition while the program runs."""
        deadline = time.monotonic() + TEST_SECONDS
        while not (found := is_so()):
            assert not self.is_done(), self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return found

    def num_finished(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return sum(
                not name.startswith(".") and not name.endswith(".arrow") for name in os.listdir(self.destination)
            )
        return 0

    def finish(self) -> tuple[int, str, str]:
        stdout, stderr = self.process.communicate(timeout=TEST_SECONDS)
        return self.process.returncode, stdout, stderr


def contents(directory) -> dict[str, bytes]:
    """All files of a dataset, without the packer's own state."""
    return {name: Path(directory, name).read_bytes() for name in sorted(os.listdir(directory)) if name != ".pack"}
