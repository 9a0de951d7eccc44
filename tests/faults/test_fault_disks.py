"""The cache's disk fails: full, without inodes, read-only, broken, frozen, without power."""

import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess

import pytest

from tests.faults.machine import disk_image, fault_mount, mounted, need_programs, run, unmount
from tests.faults.node import Node
from tests.stager.conftest import BLOCK_BYTES, publish

MIB = 1024 * 1024
FILESYSTEMS = {"ext4": 64 * MIB, "xfs": 300 * MIB}
"""Smallest size that each is made with."""

SHUTDOWN = 0x8004587D
"""The request that stops a filesystem, the same for ext4 and xfs."""
WITHOUT_LOG = struct.pack("I", 2)
"""What is not in its log on the disk is lost, as when the power fails."""

pytestmark = [pytest.mark.faults, pytest.mark.slow]


@pytest.fixture(params=list(FILESYSTEMS))
def disk(request, tmp_path):
    with disk_image(tmp_path / "disk", request.param, FILESYSTEMS[request.param]) as point:
        yield point


@pytest.fixture
def big(tmp_path):
    """More than fits through the eye of one block: three shards of 3 MiB."""
    return publish(tmp_path / "big", [3 * MIB + 17, 3 * MIB, 3 * MIB - 5], seed=3)


@pytest.fixture
def disk_node(tmp_path, disk, big):
    made = Node(tmp_path, disk / "cache")
    made.plant_foreign_files(big)
    return made


def fill(disk, *, leave_bytes=0):
    """Let somebody else take all space of a disk but this."""
    filler = disk / "filler"
    with filler.open("ab") as file:
        while (room := shutil.disk_usage(disk).free - leave_bytes) > 0:
            try:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), room)
            except OSError:
                if room < 65536:
                    break
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), room // 2)
                except OSError:
                    break
    return filler


@pytest.mark.parametrize("seed", range(4))
def test_a_disk_that_fills_up_at_any_point_is_exit_79_and_the_next_run_goes_on(big, disk, disk_node, tmp_path, seed):
    rng = random.Random(seed)
    with fault_mount(big.path, tmp_path / "mount") as mount:
        name = rng.choice(big.names[::2])
        mount.set({"op": "read", "path": f"*/{name}", "from": rng.randrange(2 * MIB), "hang": True})
        running = disk_node.start(mount.point, "--connections", rng.randint(1, 8))
        mount.wait_for_fault()
        filler = fill(disk, leave_bytes=rng.choice([0, 100_000]))
        mount.set()
        ended = running.finish()
        assert ended.code == 79, ended.stderr
        assert "space" in ended.message
        disk_node.check(big)
        refused = disk_node.stage(mount.point)
        assert refused.code == 79, refused.stderr
        assert refused.seconds < 5
        filler.unlink()
        disk_node.check_completes(big, mount.point)


@pytest.mark.parametrize(("num_free", "said"), [(4, "No space left on device"), (30, "inodes, free")])
def test_a_disk_without_inodes_is_exit_79(big, tmp_path, num_free, said):
    with disk_image(tmp_path / "disk", "ext4", 64 * MIB, "-N", "160") as disk:
        node = Node(tmp_path, disk / "cache")
        node.cache.mkdir()
        fillers = []
        try:
            while True:
                fillers.append(disk / f"filler-{len(fillers)}")
                fillers[-1].touch()
        except OSError:
            fillers.pop()
        for path in fillers[-num_free:]:
            path.unlink()
        ended = node.stage(big.path)
        assert ended.code == 79, ended.stderr
        assert said in ended.message
        assert list(node.cache.rglob("*.tar*")) == []
        node.check(big)
        for path in fillers[:-num_free]:
            path.unlink()
        node.check_completes(big, big.path)


def test_a_disk_that_turns_read_only_under_a_run_is_exit_73(big, tmp_path):
    with disk_image(tmp_path / "disk", "ext4", 64 * MIB, "-e", "remount-ro") as disk:
        node = Node(tmp_path, disk / "cache")
        node.plant_foreign_files(big)
        with fault_mount(big.path, tmp_path / "mount") as mount:
            mount.set({"op": "read", "path": "*/train-000001.tar", "from": MIB, "hang": True})
            running = node.start(mount.point)
            mount.wait_for_fault()
            device = os.path.basename(run("findmnt", "-no", "SOURCE", disk).strip())
            with open(f"/sys/fs/ext4/{device}/trigger_fs_error", "w") as file:
                file.write("found by a test")
            mount.set()
            ended = running.finish()
            assert ended.code in {73, 74}, ended.stderr
            assert str(node.cache) in ended.message
            node.check(big)
            assert node.stage(mount.point).code == 73
            image = disk.with_suffix(".image")
            unmount(disk)
            subprocess.run(["e2fsck", "-fy", image], check=False, capture_output=True)
            run("mount", "-o", "loop", image, disk)
            node.check_completes(big, mount.point)


@pytest.mark.parametrize("seed", range(3))
def test_a_disk_that_goes_away_loses_nothing_that_has_a_final_name(big, disk, disk_node, tmp_path, seed):
    """As when the power fails: what was not made durable is gone when the disk comes back."""
    rng = random.Random(seed)
    with fault_mount(big.path, tmp_path / "mount") as mount:
        mount.set(
            {"op": "read", "path": f"*/{rng.choice(big.names[::2])}", "from": rng.randrange(2 * MIB), "hang": True}
        )
        running = disk_node.start(mount.point, "--connections", rng.randint(1, 4))
        mount.wait_for_fault()
        fd = os.open(disk, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, WITHOUT_LOG)
        finally:
            os.close(fd)
        mount.set()
        ended = running.finish()
        assert ended.code == 74, ended.stderr
        assert "Input/output error" in ended.message or "Structure needs cleaning" in ended.message
        image = disk.with_suffix(".image")
        unmount(disk)
        run("mount", "-o", "loop", image, disk)
        assert big.wrong_files(disk_node.cache) == []
        disk_node.check_completes(big, mount.point)


@pytest.mark.parametrize("filesystem", ["ext4"])
def test_a_disk_that_hangs_does_not_keep_the_program_from_stopping(big, tmp_path, filesystem):
    need_programs("fsfreeze")
    with disk_image(tmp_path / "disk", filesystem, FILESYSTEMS[filesystem]) as disk:
        node = Node(tmp_path, disk / "cache")
        node.plant_foreign_files(big)
        with fault_mount(big.path, tmp_path / "mount") as mount:
            mount.set({"op": "read", "path": "*/train-000001.tar", "from": MIB, "hang": True})
            running = node.start(mount.point)
            mount.wait_for_fault()
            run("fsfreeze", "--freeze", disk)
            try:
                mount.set()
                running.signal(signal.SIGTERM)
                ended = running.finish(20.0)
            finally:
                run("fsfreeze", "--unfreeze", disk)
            assert ended.code == 143, ended.stderr
            assert "stopped by SIGTERM" in ended.message
            node.check(big)
            node.check_completes(big, mount.point)


CALLS = [
    ("pwrite64", "ENOSPC", 79),
    ("pwrite64", "EDQUOT", 79),
    ("pwrite64", "EIO", 74),
    ("fsync", "EIO", 74),
    ("fsync", "ENOSPC", 79),
    ("ftruncate", "ENOSPC", 79),
    ("ftruncate", "EFBIG", 74),
    ("rename", "EIO", 74),
    ("rename", "ENOSPC", 79),
    ("rename", "EXDEV", 74),
    ("fchmod", "EIO", 74),
    ("mkdir", "ENOSPC", 79),
    ("mkdir", "EROFS", 73),
    ("flock", "EINTR", 0),
]


@pytest.mark.parametrize("moment", ["1", "2", "5", "3+4"])
@pytest.mark.parametrize(("call", "error", "code"), CALLS, ids=str)
def test_a_system_call_that_fails_at_any_moment(dataset, node, call, error, code, moment):
    need_programs("strace")
    trace = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}")
    fault = f"inject={call}:error={error}:when={moment}"
    ended = node.stage(dataset.path, prefix=(*trace, "-e", fault))
    # a moment that never came is a good end
    assert ended.code in {0, code}, ended.stderr
    assert "Traceback" not in ended.stderr
    node.check(dataset)
    assert ended.code != 0 or dataset.is_staged(node.cache)
    node.check_completes(dataset, dataset.path)


def test_a_write_that_never_happened_is_found_by_full_verification(dataset, tmp_path):
    """The kernel says that it wrote, and did not: nobody can know before the file is read."""
    need_programs("strace")
    node = Node(tmp_path, tmp_path / "cache")
    trace = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64")
    # what is read again on the way, as an index is, may show it at once
    assert node.stage(dataset.path, prefix=(*trace, "-e", "inject=pwrite64:retval=1000:when=2")).code in {0, 65}
    assert dataset.wrong_files(node.cache) != [] or not dataset.is_staged(node.cache)
    assert node.stage(dataset.path, "--verify", "full").code == 0
    node.check_completes(dataset, dataset.path)


def test_a_quota_of_the_filesystem_is_space_as_well(dataset, tmp_path):
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=1m,nr_inodes=4096", "tmpfs") as small:
        node = Node(tmp_path, small / "cache")
        big = publish(tmp_path / "big", [40 * BLOCK_BYTES] * 2)
        ended = node.stage(big.path)
        assert ended.code == 79
        assert list(node.cache.rglob("*.tar*")) == []
        node.check_completes(dataset, dataset.path)
