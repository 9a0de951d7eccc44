"""Mounts the latency filesystem for as long as a ``with`` block lasts."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "latencyfs.py")
STOP_SECONDS = 30.0


def can_mount() -> bool:
    """Whether this machine has what is needed."""
    return shutil.which("fusermount3") is not None and os.access("/dev/fuse", os.R_OK | os.W_OK)


@contextmanager
def mounted(source: str, mountpoint: str, open_ms: float) -> Iterator[None]:
    """Mount ``source`` at ``mountpoint`` with a delay for each open.

    Raises:
        RuntimeError: it could not be mounted.
    """
    os.makedirs(mountpoint, exist_ok=True)
    command = [sys.executable, SERVER, source, mountpoint, "--open-ms", str(open_ms)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        if server.stdout is None or server.stdout.readline() != b"ready\n":
            raise RuntimeError(f"cannot mount {mountpoint}; this needs fusermount3 (package fuse3) and /dev/fuse")
        yield
    finally:
        server.terminate()  # it unmounts itself
        try:
            server.wait(STOP_SECONDS)
        finally:
            server.kill()
            server.wait()
            if server.stdout is not None:
                server.stdout.close()
