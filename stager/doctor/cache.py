"""Looks at the directory of the cache: who may write, which filesystem, whether locks exclude, how much is free."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress

from shardferry.console.exits import EXIT_LOCAL_IO, EXIT_NO_SPACE, EXIT_NOT_WRITABLE, EXIT_UNSUPPORTED
from shardferry.console.units import format_bytes, format_count
from shards.cache import CacheLayout
from shards.errors import CacheNotWritableError, UnsupportedEnvironmentError
from shards.leases import probe_locking, read_boot_id
from stager.doctor.findings import Finding, failed, good, skipped, warning
from stager.doctor.mounts import Mount, mount_of, nearest_existing, read_mounts
from stager.prepare import check_cache_version, explain_not_writable

_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs"})

KUBELET_SHARE = 0.15
"""The kubelet evicts pods when less than 10 % of its own disk, or 15 % of that of the images, are free."""

_FEW_INODES = 10_000


def check_cache(root: str, needed_bytes: int | None) -> Iterator[Finding]:
    """Look at a cache.

    Args:
        root: its directory, absolute; need not exist.
        needed_bytes: what a dataset will take; None when that is not known.
    """
    place = nearest_existing(root)
    yield _identity(root, place)
    mount = mount_of(place, read_mounts())
    yield _filesystem(mount)
    if not os.path.isdir(root):
        yield _would_be_made(root, place)
        yield skipped("locks", "the directory is not there yet")
    else:
        yield _version(root)
        writable = _writable(root)
        yield writable
        yield _locks(root) if not writable.code else skipped("locks", "the directory cannot be written")
    yield _boot()
    yield from _space(root, place, needed_bytes)
    ephemeral = _ephemeral(place, mount, needed_bytes)
    if ephemeral is not None:
        yield ephemeral


def _identity(root: str, place: str) -> Finding:
    try:
        status = os.stat(place)
    except OSError as error:
        return failed("owner", f"{place}: {error.strerror}", "check the path and its mount", EXIT_NOT_WRITABLE)
    groups = ",".join(map(str, sorted(set(os.getgroups()) - {os.getegid()})))
    return good(
        "owner",
        f"{root if place == os.path.realpath(root) else place} has mode {stat.S_IMODE(status.st_mode):04o}, uid "
        f"{status.st_uid}, gid {status.st_gid}; this process has uid {os.geteuid()}, gid {os.getegid()}"
        f"{f', groups {groups}' if groups else ''}",
    )


def _filesystem(mount: Mount | None) -> Finding:
    if mount is None:
        return skipped("filesystem", "cannot tell: /proc/self/mountinfo says nothing")
    facts = f"{mount.filesystem} at {mount.point}"
    if "ro" in mount.options:
        return failed("filesystem", f"{facts}, read-only", "mount it writable for the stager", EXIT_NOT_WRITABLE)
    if mount.filesystem in _LOCAL:
        return good("filesystem", facts)
    if mount.filesystem == "overlay":
        return warning(
            "filesystem",
            f"{facts}: the layer of a container",
            "use a volume: what is in the layer goes with the container, and no other pod shares it",
        )
    if mount.filesystem in {"tmpfs", "ramfs"}:
        return warning("filesystem", f"{facts}: memory", "it counts as the container's memory; use a disk")
    if mount.is_network:
        return warning(
            "filesystem",
            f"{facts}: not a disk of this node",
            "put the cache on a local disk (ext4, xfs): over a network nothing is gained, and locks may not exclude",
        )
    return warning("filesystem", facts, "not known here; see that the checks below pass")


def _version(root: str) -> Finding:
    layout = CacheLayout(root)
    try:
        check_cache_version(layout)
    except FileNotFoundError:
        names = [name for name in os.listdir(root) if not name.startswith(".")] if os.access(root, os.R_OK) else []
        return good("layout", f"no cache yet; {format_count(len(names))} other files there stay untouched")
    except UnsupportedEnvironmentError as error:
        return failed("layout", str(error), "upgrade shardferry here, or give another --cache-dir", EXIT_UNSUPPORTED)
    except OSError as error:
        return failed("layout", f"{layout.version_path}: {error.strerror}", "see the owner above", EXIT_NOT_WRITABLE)
    return good("layout", "a cache of a version that this release knows")


def _would_be_made(root: str, place: str) -> Finding:
    if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
        return good("write", f"{root} will be made in {place}")
    return failed(
        "write",
        f"{root} is not there and cannot be made: {place} is not writable for uid {os.geteuid()}",
        f"an administrator can run: install -d -m 0755 -o {os.geteuid()} -g {os.getegid()} {root}",
        EXIT_NOT_WRITABLE,
    )


def _writable(root: str) -> Finding:
    """Write, sync, link, rename and remove a file, as staging does."""
    names = [os.path.join(root, f".doctor.{secrets.token_hex(8)}.{number}") for number in range(3)]
    try:
        with explain_not_writable(root):
            fd = os.open(names[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, b"x")
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(names[0], names[1])
            os.link(names[1], names[2])
    except CacheNotWritableError as error:
        return failed("write", str(error), "see the command above", EXIT_NOT_WRITABLE)
    except OSError as error:
        return failed("write", f"{error.strerror}", "check the disk: dmesg, free space, quotas", EXIT_LOCAL_IO)
    finally:
        for name in names:
            with suppress(OSError):
                os.unlink(name)
    return good("write", "a file can be written, synced, renamed, linked and removed")


def _locks(root: str) -> Finding:
    if probe_locking(root):
        return good("locks", "a lock excludes others")
    return failed(
        "locks",
        "a lock does not exclude others",
        "jobs could not share this cache: use a local disk (ext4, xfs); Lustre needs the mount option flock; Kata and "
        "gVisor need a volume of the node's own",
        EXIT_UNSUPPORTED,
    )


def _boot() -> Finding:
    try:
        return good("boot id", f"{read_boot_id()[:8]}…")
    except UnsupportedEnvironmentError as error:
        return failed("boot id", str(error), "mount /proc into the container", EXIT_UNSUPPORTED)


def _space(root: str, place: str, needed_bytes: int | None) -> Iterator[Finding]:
    facts = os.statvfs(place)
    free, total = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
    text = f"{format_bytes(free)} of {format_bytes(total)} free"
    if needed_bytes is None:
        yield good("space", text)
    elif needed_bytes > free:
        yield failed(
            "space",
            f"{text}, the dataset needs {format_bytes(needed_bytes)} more",
            f"free space in {root} (stage gc, stage status), stage a part (--select), or use stage serve --window",
            EXIT_NO_SPACE,
        )
    else:
        yield good("space", f"{text}, the dataset needs {format_bytes(needed_bytes)} more")
    if facts.f_files == 0:
        yield good("inodes", "made as they are needed")
    elif facts.f_favail < _FEW_INODES:
        yield warning("inodes", f"{format_count(facts.f_favail)} free", "remove small files from that disk")
    else:
        yield good("inodes", f"{format_count(facts.f_favail)} of {format_count(facts.f_files)} free")


def _ephemeral(place: str, mount: Mount | None, needed_bytes: int | None) -> Finding | None:
    """Say when the kubelet counts what is staged, and would evict the pod for it."""
    if mount is None:
        return None
    if "kubernetes.io~empty-dir" in mount.root or mount.filesystem == "overlay":
        return warning(
            "ephemeral",
            "what is staged counts as ephemeral storage of the pod",
            "set the emptyDir's sizeLimit and the container's ephemeral-storage limit above the dataset's size, or the "
            "kubelet evicts the pod",
        )
    shares = [path for path in ("/var/lib/kubelet", "/var/lib/containerd", "/") if os.path.isdir(path)]
    if not any(os.stat(path).st_dev == os.stat(place).st_dev for path in shares):
        return None
    facts = os.statvfs(place)
    left = (facts.f_bavail * facts.f_frsize - (needed_bytes or 0)) / max(facts.f_blocks * facts.f_frsize, 1)
    if left >= KUBELET_SHARE:
        return good("shared disk", f"the system's own disk; {left:.0%} of it stay free")
    return warning(
        "shared disk",
        f"the system's own disk, of which {max(left, 0):.0%} would stay free",
        "a kubelet evicts pods below 10 to 15 %: use another disk, or a quota and --min-free-bytes 20%",
    )
