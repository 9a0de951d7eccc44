"""Whether the cache shares its disk with the kubelet, which evicts every pod of a node whose disk runs full.

The kubelet's hard thresholds (nodefs.available < 10 %, imagefs.available < 15 %, nodefs.inodesFree < 5 %) are kept by a
margin of 5 points. On the node itself, its directories show which disk is meant. In a container, two files do that the
runtime mounts into every pod: the termination log lies in the kubelet's directory, ``/etc/hostname`` in the runtime's.
"""

import os
from collections.abc import Iterable, Mapping
from enum import StrEnum

from stager.limits import Floor

_MARGIN = 0.05
_NODEFS_BYTES = Floor(share=0.10 + _MARGIN)
_NODEFS_INODES = Floor(share=0.05 + _MARGIN)
_IMAGEFS_BYTES = Floor(share=0.15 + _MARGIN)

NODEFS_PATHS = ("/var/lib/kubelet",)
IMAGEFS_PATHS = ("/var/lib/containerd", "/var/lib/containers", "/var/lib/docker")
POD_NODEFS_PATHS = ("/dev/termination-log",)
POD_IMAGEFS_PATHS = ("/etc/hostname",)


class KubeletDisk(StrEnum):
    """What the kubelet keeps on the disk of the cache."""

    AUTO = "auto"
    """Found out."""
    NODEFS = "nodefs"
    """Pods, logs and emptyDir volumes."""
    IMAGEFS = "imagefs"
    """Images."""
    NONE = "none"
    """Nothing: the cache has a disk of its own, or there is no kubelet."""


def floors_of(disk: KubeletDisk) -> tuple[Floor, Floor]:
    """Give what has to stay free of bytes and of inodes, so that the kubelet does not evict."""
    match disk:
        case KubeletDisk.NODEFS:
            return _NODEFS_BYTES, _NODEFS_INODES
        case KubeletDisk.IMAGEFS:
            return _IMAGEFS_BYTES, _NODEFS_INODES
        case _:
            return Floor(), Floor()


def find_kubelet_disk(cache_dir: str, environment: Mapping[str, str]) -> KubeletDisk:
    """Find out what the kubelet keeps on the disk of a cache; images count before the rest, their threshold is higher.

    Args:
        cache_dir: root of the cache, which may not exist yet.
        environment: of the process; tells whether it runs in a pod.
    """
    device = _device_of_nearest(cache_dir)
    is_pod = "KUBERNETES_SERVICE_HOST" in environment
    if device in _devices(POD_IMAGEFS_PATHS if is_pod else IMAGEFS_PATHS):
        return KubeletDisk.IMAGEFS if is_pod or _devices(NODEFS_PATHS) else KubeletDisk.NONE
    if device in _devices(POD_NODEFS_PATHS if is_pod else NODEFS_PATHS):
        return KubeletDisk.NODEFS
    return KubeletDisk.NONE


def _devices(paths: Iterable[str]) -> frozenset[int]:
    devices = set()
    for path in paths:
        try:
            devices.add(os.stat(path).st_dev)
        except OSError:
            continue
    return frozenset(devices)


def _device_of_nearest(path: str) -> int:
    while True:
        try:
            return os.stat(path).st_dev
        except OSError:
            parent = os.path.dirname(path)
            if parent == path:
                return -1
            path = parent
