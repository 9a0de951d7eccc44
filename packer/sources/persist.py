"""Reads of source files that fail for a moment are repeated, a bounded number of times.

Network filesystems give EIO when a server is away for a while, and ESTALE when a file was replaced on it; opening the
file again mostly helps. What stays unreadable is an error that names the file and the errno.
"""

import errno
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

PASSING_ERRNOS = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.EINTR,
        errno.EAGAIN,
        errno.EBADF,  # the kernel's NFS client, of a file that was removed while the server was away
        errno.ETIMEDOUT,
        errno.EREMOTEIO,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ENOTCONN,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ESHUTDOWN,
    }
)
"""Errors after which the same read may succeed."""

PAUSES_SECONDS = (0.05, 0.25, 1.0)
"""Before each further try. Clients of network filesystems wait by themselves, too, before they give an error."""

Result = TypeVar("Result")


class Patience:
    """Counts the tries of one read.

    Args:
        pauses: before each further try, in seconds.
    """

    __slots__ = ("_pauses", "num_failed")

    def __init__(self, pauses: Sequence[float] = PAUSES_SECONDS) -> None:
        self._pauses = pauses
        self.num_failed = 0

    def wait(self, error: OSError) -> bool:
        """Pause before another try; False when there is none left, or none would help."""
        self.num_failed += 1
        if error.errno not in PASSING_ERRNOS or self.num_failed > len(self._pauses):
            return False
        time.sleep(self._pauses[self.num_failed - 1])
        return True


def persist(read: Callable[[], Result], forget: Callable[[], None] | None = None) -> Result:
    """Read until it succeeds or there is no hope.

    Args:
        read: to repeat.
        forget: drops what was opened before, so that the next try opens it again.

    Raises:
        OSError: of the last try.
    """
    patience: Patience | None = None
    while True:
        try:
            return read()
        except OSError as error:
            patience = Patience() if patience is None else patience
            if not patience.wait(error):
                raise
            if forget is not None:
                forget()


def explain_errno(error: OSError) -> str:
    """What went wrong, with the name that manuals and server logs have for it, and how often it was tried."""
    name = errno.errorcode.get(error.errno or 0)
    text = error.strerror or str(error)
    if name is None:
        return text
    tries = f", after {1 + len(PAUSES_SECONDS)} tries" if error.errno in PASSING_ERRNOS else ""
    return f"{text} ({name}{tries})"
