"""Which filesystem a path lies on, out of ``/proc/self/mountinfo``; pure but for :func:`read_mounts`."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "beegfs", "9p", "virtiofs", "afs"}
)

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of this process's namespace."""

    point: str
    root: str
    """Which directory of the filesystem is mounted there."""
    filesystem: str
    """Type: ``ext4``, ``nfs4``, ``fuse.sshfs`` …"""
    source: str
    options: frozenset[str]

    @property
    def is_network(self) -> bool:
        """Whether it is no disk of this node; taken for granted of FUSE."""
        return self.filesystem in _NETWORK or self.filesystem.startswith("fuse.") or self.filesystem == "fuse"


def parse_mounts(text: str) -> list[Mount]:
    """Parse a mountinfo file; lines that cannot be understood are left out."""
    mounts = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        first, last = left.split(" "), right.split(" ")
        if separator and len(first) >= 6 and len(last) >= 2:
            mounts.append(
                Mount(_plain(first[4]), _plain(first[3]), last[0], _plain(last[1]), frozenset(first[5].split(",")))
            )
    return mounts


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """Give the mount that a path lies on; of several at one place, the last."""
    found = None
    for mount in mounts:
        prefix = mount.point.rstrip("/") + "/"
        if (path + "/").startswith(prefix) and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def read_mounts(path: str = "/proc/self/mountinfo") -> list[Mount]:
    """Read the mounts of this process; none where there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return parse_mounts(file.read())
    except OSError:
        return []


def nearest_existing(path: str) -> str:
    """Give the real path of the nearest directory above that exists, or the path itself."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return os.path.realpath(path)


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
