"""Reading and writing past the page cache, where a file lies on a disk of this machine; see ``docs/adr/0014``.

What is read once, or written and synced and not read soon, gains nothing from the page cache. It costs processor time,
and pushes out pages that somebody needs.
"""

import errno
import os

ALIGNMENT_BYTES = 4096
"""Memory, offset and length must be multiples of this. No usual device or filesystem wants more."""

NOT_DIRECT = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
"""How a filesystem says that it does not read or write past the page cache."""


def reopen_direct(fd: int, access: int) -> int | None:
    """Open the file of a descriptor once more, to read or write past the page cache.

    Args:
        fd: the file.
        access: ``os.O_RDONLY`` or ``os.O_WRONLY``.

    Returns:
        A descriptor for the caller to close; None where the filesystem does not offer it, and on those without a
        device of their own (NFS, CephFS, FUSE, overlays, tmpfs), where it would be no gain.
    """
    if os.major(os.fstat(fd).st_dev) == 0:
        return None
    try:
        return os.open(f"/proc/self/fd/{fd}", access | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        # no /proc, or a partial whose mode another process has changed already: it can be done without
        if error.errno not in {*NOT_DIRECT, errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP}:
            raise
        return None
