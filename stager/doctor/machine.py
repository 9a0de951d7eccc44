"""Looks at what the container allows: memory and open files."""

import os
import resource
from collections.abc import Iterator

from shardferry.console.units import format_bytes
from stager.doctor.findings import Finding, good, warning

_MEMORY_PATHS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PROGRAM_BYTES = 128 * 1024 * 1024
"""Interpreter, libraries and clients, beside the blocks in flight."""

_BLOCK_BYTES = 8 * 1024 * 1024
_NO_LIMIT_BYTES = 2**60
_FEW_FILES = 256


def check_machine(connections: int) -> Iterator[Finding]:
    """Look at the limits of this process.

    Args:
        connections: ranges that will be read at the same time.
    """
    limit = _memory_limit()
    needed = _PROGRAM_BYTES + connections * _BLOCK_BYTES
    if limit is None:
        yield good("memory", f"no limit; staging takes about {format_bytes(needed)}")
    elif limit < needed:
        yield warning(
            "memory",
            f"the limit of the container is {format_bytes(limit)}, staging takes about {format_bytes(needed)}",
            "raise the limit, or use fewer --connections",
        )
    else:
        yield good("memory", f"a limit of {format_bytes(limit)}; staging takes about {format_bytes(needed)}")
    num_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if num_files < _FEW_FILES:
        yield warning("open files", f"at most {num_files}", "raise the limit: ulimit -n 1024")
    else:
        yield good("open files", f"at most {num_files}")


def _memory_limit() -> int | None:
    for path in _MEMORY_PATHS:
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
            return int(text) if text.isdigit() and int(text) < _NO_LIMIT_BYTES else None
    return None
