"""Files that were found damaged, or in the way, under a name of the cache: set aside, never deleted on the spot.

``quarantine/<token>/`` holds the file under the name ``file``, and ``note.json`` that says what it was. A staged file
is deleted from there when its room is needed or after a week; anything else (a directory, a link, a fifo: nothing that
the stager makes) stays for its owner.
"""

import json
import logging
import os
import re
import secrets
import shutil
import stat
import time
from contextlib import suppress
from datetime import UTC, datetime

from shards.cache import CacheLayout
from shards.files import fsync_directory, write_file
from stager.local import make_cache_directory

logger = logging.getLogger(__name__)

KEEP_SECONDS = 7 * 86400.0
"""Long enough to look at what a failing disk did, short enough not to be found by accident."""

_FILE = "file"
_NOTE = "note.json"
_TOKEN = re.compile(r"[0-9a-f]{32}")


def new_token() -> str:
    """Give a name that nothing has yet."""
    return secrets.token_hex(16)


def is_token(name: str) -> bool:
    """Whether a name is one that :func:`new_token` gives."""
    return _TOKEN.fullmatch(name) is not None


def set_aside(layout: CacheLayout, path: str, *, reason: str) -> None:
    """Take what lies under a name of the cache away from there, at once.

    Args:
        layout: of the cache.
        path: what lies below its root.
        reason: why, for the note.

    Raises:
        FileNotFoundError: it is not there any more.
    """
    place = layout.quarantine_path(new_token())
    make_cache_directory(place)
    try:
        os.rename(path, os.path.join(place, _FILE))
    except FileNotFoundError:
        os.rmdir(place)
        raise
    fsync_directory(os.path.dirname(path))
    name = os.path.relpath(path, layout.root)
    logger.warning("file set aside", extra={"file": name, "reason": reason, "quarantine": place})
    note = {"path": name, "reason": reason, "set_aside_at": datetime.now(UTC).isoformat(timespec="seconds")}
    with suppress(OSError):  # a full disk must not keep a bad file under its final name
        write_file(os.path.join(place, _NOTE), json.dumps(note).encode("ascii") + b"\n")


def is_deletable(layout: CacheLayout, token: str) -> bool:
    """Whether what lies there is a staged file."""
    if not is_token(token):
        return False
    place = layout.quarantine_path(token)
    try:
        names = set(os.listdir(place))
        is_file = _FILE not in names or stat.S_ISREG(os.lstat(os.path.join(place, _FILE)).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return is_file and all(name in {_FILE, _NOTE} or name.endswith(".partial") for name in names)


def is_expired(layout: CacheLayout, token: str) -> bool:
    """Whether a file was set aside long ago; by the clock on the wall, so a wrong one deletes it early or late."""
    try:
        return time.time() - os.lstat(layout.quarantine_path(token)).st_mtime > KEEP_SECONDS
    except FileNotFoundError:
        return False


def delete(layout: CacheLayout, token: str) -> None:
    """Delete a file that was set aside."""
    shutil.rmtree(layout.quarantine_path(token), ignore_errors=True)
