"""A dataset on NFS through the kernel's own client: the server is killed, frozen, cut off; a file is replaced."""

import contextlib
from dataclasses import dataclass

import pytest

from tests.faults.machine import mounted, need_programs, run
from tests.faults.nfs import NfsServer, nfs_server
from tests.faults.node import Node
from tests.faults.uml import HOST, Guest, Network, guest
from tests.stager.conftest import Published, publish

MIB = 1024 * 1024
SOFT = "soft,timeo=30,retrans=2"
MOUNT = (
    "modprobe nfsv4; mount -i -t nfs4 -o vers=4.2,proto=tcp,{options},rsize=1048576,addr={host},clientaddr=10.9.9.2 "
    "{host}:/data /mnt/net || echo NO MOUNT"
)
STAGE = "stage run /mnt/net --cache-dir /mnt/disk/cache --connections 1 --json -v"

pytestmark = [pytest.mark.nfs, pytest.mark.slow]


@dataclass(frozen=True)
class Nfs:
    """A server, the wire, what it serves, and the disk of the guest that reads it."""

    server: NfsServer
    network: Network
    dataset: Published
    disk: object
    place: object

    @contextlib.contextmanager
    def guest(self, script: str, options: str = SOFT):
        """Boot the client; when it is off, what it has staged is checked, and a run on the host completes it."""
        mount = MOUNT.format(options=options, host=HOST)
        with guest(self.place, f"{mount}\n{script}", self.disk, self.network) as machine:
            yield machine
        with mounted(self.place / "disk", "-o", "loop", self.disk) as point:
            node = Node(self.place, point / "cache")
            node.check(self.dataset)
            node.check_completes(self.dataset, self.dataset.path)


@pytest.fixture
def nfs(tmp_path):
    need_programs("linux.uml", "ganesha.nfsd", "mkfs.ext4", "ip")
    dataset = publish(tmp_path / "published", [MIB + number for number in range(40)], seed=4)
    disk = tmp_path / "disk.image"
    with disk.open("wb") as file:
        file.truncate(128 * MIB)
    run("mkfs.ext4", "-q", disk)
    network = Network()
    try:
        with nfs_server(dataset.path, HOST, prefix=network.inside) as server:
            yield Nfs(server, network, dataset, disk, tmp_path)
    finally:
        network.close()


def reach_the_middle(machine: Guest) -> None:
    machine.wait_for("shard staged", 5)


def test_a_server_that_is_started_anew_costs_repeats_only(nfs):
    with nfs.guest(f"{STAGE}; echo CODE $?") as machine:
        reach_the_middle(machine)
        nfs.server.kill()
        nfs.server.start()
        assert "CODE 0" in machine.finish(), machine.said[-3000:]


def test_a_server_that_stays_away_is_exit_69(nfs):
    with nfs.guest(f"{STAGE} --retry-for 1s; echo CODE $?") as machine:
        reach_the_middle(machine)
        nfs.server.kill()
        assert "CODE 69" in machine.finish(), machine.said[-3000:]


def test_a_frozen_server_on_a_hard_mount_does_not_keep_the_deadline_from_being_kept(nfs):
    script = f"{STAGE} --deadline 20s; echo CODE $?; cut -d' ' -f1 /proc/uptime"
    with nfs.guest(script, "hard") as machine:
        reach_the_middle(machine)
        nfs.server.freeze()
        machine.wait_for("CODE 75")
        assert "deadline" in machine.said
        nfs.server.thaw()
        machine.finish()


def test_packets_that_vanish_and_come_back_cost_repeats_only(nfs):
    with nfs.guest(f"{STAGE}; echo CODE $?") as machine:
        reach_the_middle(machine)
        nfs.network.cut()
        machine.wait_for("source failed, trying again")
        nfs.network.mend()
        assert "CODE 0" in machine.finish(), machine.said[-3000:]


def test_a_file_replaced_while_the_server_is_frozen_is_never_mixed(nfs):
    name = "train-000039.tar"
    content = (nfs.dataset.path / name).read_bytes()
    with nfs.guest(f"{STAGE} --retry-for 1s; echo CODE $?") as machine:
        reach_the_middle(machine)
        nfs.server.freeze()
        new = nfs.dataset.path / "new"
        new.write_bytes(content[::-1])
        new.replace(nfs.dataset.path / name)
        nfs.server.thaw()
        assert "CODE 65" in machine.finish(), machine.said[-3000:]
        (nfs.dataset.path / name).write_bytes(content)
