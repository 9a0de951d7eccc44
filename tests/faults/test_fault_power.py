"""Power loss, a clock that jumps and a quota, in a kernel of their own."""

import contextlib

import pytest

from tests.faults.machine import mounted, need_programs, need_root, run
from tests.faults.node import Node
from tests.faults.uml import guest
from tests.stager.conftest import publish

MIB = 1024 * 1024

pytestmark = [pytest.mark.uml, pytest.mark.slow]


@pytest.fixture
def many(tmp_path):
    """Forty small shards: many commits, so that the power fails in the middle of one."""
    return publish(tmp_path / "published", [MIB // 2 + number for number in range(40)], seed=9)


@contextlib.contextmanager
def image(tmp_path, filesystem, size_bytes):
    """A filesystem in a file, and a node whose cache it has once it is mounted here."""
    need_root()
    need_programs(f"mkfs.{filesystem}")
    path = tmp_path / "disk.image"
    with path.open("wb") as file:
        file.truncate(size_bytes)
    run(f"mkfs.{filesystem}", "-q", path)
    yield path
    path.unlink()


@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
@pytest.mark.parametrize("num_shards", [1, 9, 26])
def test_when_the_power_fails_only_whole_shards_have_final_names(many, tmp_path, filesystem, num_shards):
    script = f"stage run {many.path} --cache-dir /mnt/disk/cache --connections 3 -v"
    with image(tmp_path, filesystem, 300 * MIB) as disk:
        with guest(tmp_path, script, disk) as machine:
            machine.wait_for("shard staged", num_shards)
            machine.cut_power()
        with mounted(tmp_path / "disk", "-o", "loop", disk) as point:
            node = Node(tmp_path, point / "cache")
            assert many.wrong_files(node.cache) == []
            # what was called staged was durable by then
            assert len(list(many.staged_in(node.cache).glob("*.tar"))) >= num_shards
            node.check_completes(many, many.path)


def test_a_clock_that_jumps_years_in_mid_run_changes_nothing(many, tmp_path):
    script = f"""
stage run {many.path} --cache-dir /mnt/disk/cache --connections 1 -v &
for year in 2050 1999 2037 2004; do sleep 0.7; date -s "$year-01-01"; done
wait $!; echo "FIRST $?"
date -s 2031-05-05
stage run {many.path} --cache-dir /mnt/disk/cache --json; echo "SECOND $?"
"""
    with image(tmp_path, "ext4", 128 * MIB) as disk:
        with guest(tmp_path, script, disk) as machine:
            said = machine.finish()
        assert "FIRST 0" in said, said[-3000:]
        assert "SECOND 0" in said
        assert '"result": "AlreadyStaged"' in said
        with mounted(tmp_path / "disk", "-o", "loop", disk) as point:
            assert many.is_staged(point / "cache")


def test_a_project_quota_is_exit_79_and_raising_it_lets_the_next_run_complete(many, tmp_path):
    need_programs("xfs_quota")
    script = f"""
umount /mnt/disk; mount -o prjquota /dev/ubda /mnt/disk; mkdir /mnt/disk/cache
xfs_quota -x -c 'project -s -p /mnt/disk/cache 42' -c 'limit -p bhard=10m 42' /mnt/disk > /dev/null
stage run {many.path} --cache-dir /mnt/disk/cache; echo "FIRST $?"
xfs_quota -x -c 'limit -p bhard=100m 42' /mnt/disk
stage run {many.path} --cache-dir /mnt/disk/cache; echo "SECOND $?"
"""
    with image(tmp_path, "xfs", 300 * MIB) as disk:
        with guest(tmp_path, script, disk) as machine:
            said = machine.finish()
        assert "FIRST 79" in said, said[-3000:]
        assert "SECOND 0" in said, said[-3000:]
        with mounted(tmp_path / "disk", "-o", "loop", disk) as point:
            assert many.is_staged(point / "cache")
