"""What the tests borrow from this machine, and give back: mounts, loop devices, FUSE servers."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.faults.node import PATIENCE_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 10.0


def need_root() -> None:
    """Skip the test where nothing may be mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")


def need_programs(*names: str) -> None:
    """Skip the test where a program is missing, and say which."""
    missing = [name for name in names if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def run(*command: object) -> str:
    """Run a program that must succeed; gives its output."""
    env = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def mounts_below(directory: Path) -> list[Path]:
    """Mount points at or below a directory, deepest first. Reads a table: a mount that hangs cannot hold this up."""
    table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    points = [Path(line.split(" ")[4].encode().decode("unicode_escape")) for line in table.splitlines()]
    return sorted((point for point in points if directory in (point, *point.parents)), reverse=True)


def unmount(point: Path) -> None:
    """Take a mount away, also one whose server is dead or whose files are open."""
    if subprocess.run(["umount", str(point)], check=False, capture_output=True).returncode:
        subprocess.run(["umount", "-l", str(point)], check=True)


@contextlib.contextmanager
def mounted(point: Path, *arguments: object) -> Iterator[Path]:
    """Mount for the length of a ``with`` block; arguments are those of mount(8) without the mount point."""
    need_root()
    point.mkdir(parents=True, exist_ok=True)
    run("mount", *arguments, point)
    try:
        yield point
    finally:
        unmount(point)


@contextlib.contextmanager
def disk_image(point: Path, filesystem: str, size_bytes: int, *mkfs_options: str) -> Iterator[Path]:
    """Mount a fresh filesystem of its own, in an image on a loop device."""
    need_root()
    need_programs(f"mkfs.{filesystem}", "losetup")
    image = point.with_suffix(".image")
    with image.open("wb") as file:
        file.truncate(size_bytes)
    try:
        run(f"mkfs.{filesystem}", "-q", *mkfs_options, image)
        with mounted(point, "-o", "loop", image):
            yield point
    finally:
        image.unlink()


def loop_images_below(directory: Path) -> list[str]:
    """Files below a directory that a loop device still holds."""
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return [text for path in files if (text := path.read_text().strip()).startswith(f"{directory}/")]


class Server:
    """A program that serves a FUSE mount, and can be taken away without warning."""

    def __init__(self, point: Path, module: str, *arguments: object, env: Mapping[str, str] | None = None) -> None:
        need_programs("fusermount3")
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            pytest.skip("needs /dev/fuse")
        point.mkdir(parents=True, exist_ok=True)
        self.point = point
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
            stdout=subprocess.PIPE,
        )
        if self.process.stdout is None or self.process.stdout.readline() != b"ready\n":
            self.stop()
            raise AssertionError(f"{module} does not serve {point}")

    def stop(self) -> None:
        """Unmount and end; who waits for an answer gets an error."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        for point in mounts_below(self.point):
            unmount(point)


class FaultMount:
    """A mount of :mod:`tests.faults.faultfs`."""

    def __init__(self, source: Path, point: Path) -> None:
        self.point = point
        self._rules = point.with_suffix(".rules")
        self.set()
        self.server = Server(point, "tests.faults.faultfs", source, point, self._rules)

    def set(self, *rules: Mapping[str, Any]) -> None:
        """Let these rules be in force from now on; none heals the mount."""
        new = self._rules.with_suffix(".new")
        new.write_text(json.dumps(rules))
        new.replace(self._rules)

    @property
    def faults(self) -> list[dict[str, Any]]:
        """What was done to whom, in order."""
        log = self._rules.with_name(f"{self._rules.name}.log")
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def wait_for_fault(self, num_faults: int = 1, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something was done to somebody."""
        wait_until(lambda: len(self.faults) >= num_faults, f"{num_faults} faults were met", seconds)


@contextlib.contextmanager
def fault_mount(source: Path, point: Path) -> Iterator[FaultMount]:
    """Mount a directory through the fault filesystem, without a fault yet."""
    made = FaultMount(source, point)
    try:
        yield made
    finally:
        made.set()
        made.server.stop()
