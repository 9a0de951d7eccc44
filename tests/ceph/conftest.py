"""A real Ceph on this machine: a monitor, an OSD in memory and an RGW, on loopback, in a directory of their own.

The daemons are those of the distribution (Debian, Ubuntu: ceph-mon ceph-osd radosgw ceph-mgr), started in the
foreground as children of the tests and killed at the end; nothing of an installed Ceph is read or written.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "monmaptool", "ceph-authtool", "openssl")
ACCESS_KEY, SECRET_KEY = "AKSHARDFERRYTESTS000", "shardferry-tests-secret-shardferry-tests"
START_SECONDS = 60
STORE_BYTES = 4 * 1024**3
FIRST_PORT, LAST_PORT = 21_000, 32_000
"""Below the ports that the kernel hands out to outgoing connections."""

CONFIG = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon_port}/0]
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
keyring = {root}/keyring
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind msgr1 = false
ms bind port min = {osd_port}
ms bind port max = {osd_port_end}
run dir = {root}
admin socket = {root}/$name.asok
log file = {root}/$name.log
mon cluster log file = {root}/cluster.log
crash dir = {root}
err to stderr = false
mon data avail crit = 1
mon data avail warn = 2
# each pool waits for a round of consensus; with the default of a second the start takes a minute
paxos propose interval = 0.05
paxos min wait = 0.02
mon tick interval = 1
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 1000
osd max pg per osd hard ratio = 30
mon osd full ratio = .97
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
[mon]
mon data = {root}/mon
[osd]
osd data = {root}/osd
osd objectstore = memstore
memstore device bytes = {store_bytes}
memstore page set = false
osd max object name len = 256
osd max object namespace len = 64
osd class load list = *
osd class default list = *
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{rgw_port} tcp_nodelay=1 ssl_endpoint=127.0.0.1:{tls_port} \
    ssl_certificate={root}/server.pem ssl_private_key={root}/server.key
rgw dynamic resharding = false
rgw s3 auth use keystone = false
rgw multipart min part size = 5242880
"""

CAPABILITIES = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *", "mds": "allow *", "mgr": "allow *"},
    "osd.0": {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"},
    "client.rgw": {"mon": "allow rw", "osd": "allow rwx", "mgr": "allow rw"},
}


class Cluster:
    """The daemons; :meth:`stop` ends them and removes their directory."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="sf-ceph-", dir="/tmp"))  # sockets need a short path
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        base = _free_ports(24)
        self.rgw_port, self.tls_port = base + 1, base + 2
        text = CONFIG.format(
            fsid=uuid.uuid4(),
            root=self.root,
            mon_port=base,
            rgw_port=self.rgw_port,
            tls_port=self.tls_port,
            osd_port=base + 3,
            osd_port_end=base + 23,
            store_bytes=STORE_BYTES,
        )
        self.config = self.root / "ceph.conf"
        self.config.write_text(text)
        self.mon_port = base
        for name in ("mon", "osd"):
            (self.root / name).mkdir()

    def start(self) -> None:
        """Start everything and wait until S3 answers."""
        self._write_keyring()
        self._make_certificates()
        fsid = next(line.split()[-1] for line in self.config.read_text().splitlines() if line.startswith("fsid"))
        monmap = str(self.root / "monmap")
        address = f"[v2:127.0.0.1:{self.mon_port}]"
        self.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, "--clobber", monmap)
        self.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", str(self.root / "keyring"))
        self.spawn("mon", "ceph-mon", "-f", "-i", "a")
        osd_id = str(uuid.uuid4())
        self.run("ceph", "--connect-timeout", "30", "osd", "new", osd_id)
        self.run("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", osd_id)
        self.run("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=h")
        self.spawn("osd", "ceph-osd", "-f", "-i", "0")
        self.wait_for("the OSD", lambda: b"1 up" in self.run("ceph", "osd", "stat"))
        self.start_rgw()
        user = ("user", "create", "--uid=test", "--display-name=test")
        keys = (f"--access-key={ACCESS_KEY}", f"--secret-key={SECRET_KEY}")
        self.run("radosgw-admin", "-n", "client.rgw", *user, *keys)

    def start_rgw(self) -> None:
        """Start the gateway and wait until it listens."""
        self.spawn("rgw", "radosgw", "-f", "-n", "client.rgw")
        self.wait_for("the RGW", lambda: _listens(self.rgw_port))

    def kill_rgw(self) -> None:
        """Let the gateway die."""
        process = self.processes.pop("rgw")
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all daemons; their data is thrown away."""
        for process in reversed(self.processes.values()):
            process.kill()
        for process in self.processes.values():
            process.wait()
        shutil.rmtree(self.root)

    def run(self, *command: str) -> bytes:
        """Run one of Ceph's tools on this cluster."""
        done = subprocess.run(
            [*command, "-c", str(self.config)] if command[0] != "monmaptool" else command,
            capture_output=True,
            check=False,
            timeout=START_SECONDS,
        )
        assert done.returncode == 0, f"{command}: {done.stderr.decode(errors='replace')}"
        return done.stdout

    def spawn(self, name: str, *command: str) -> None:
        """Start a daemon."""
        with open(self.root / f"{name}.out", "ab") as output:
            self.processes[name] = subprocess.Popen(
                [*command, "-c", str(self.config)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def wait_for(self, what: str, is_there: Callable[[], bool]) -> None:
        """Wait for something, as long as no daemon has died."""
        deadline = time.monotonic() + START_SECONDS
        while not is_there():
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} died: {(self.root / f'{name}.out').read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"{what} is not up after {START_SECONDS} s"
            time.sleep(0.1)

    def _make_certificates(self) -> None:
        """An authority of our own, and a certificate of it for the gateway."""
        make = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
        authority = ("-subj", "/CN=tests", "-keyout", str(self.root / "ca.key"), "-out", str(self.root / "ca.pem"))
        subprocess.run([*make, *authority], capture_output=True, check=True)
        signed = ("-CA", str(self.root / "ca.pem"), "-CAkey", str(self.root / "ca.key"))
        names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
        files = ("-keyout", str(self.root / "server.key"), "-out", str(self.root / "server.pem"))
        plain = ("-addext", "basicConstraints=critical,CA:FALSE")
        subprocess.run([*make, *signed, *names, *plain, *files], capture_output=True, check=True)

    def _write_keyring(self) -> None:
        lines = []
        for name, capabilities in CAPABILITIES.items():
            key = subprocess.run(
                ["ceph-authtool", "--gen-print-key"], capture_output=True, check=True, text=True
            ).stdout
            lines += [f"[{name}]", f"\tkey = {key.strip()}"]
            lines += [f'\tcaps {daemon} = "{allowed}"' for daemon, allowed in capabilities.items()]
        keyring = self.root / "keyring"
        keyring.touch(0o600)
        keyring.write_text("\n".join(lines) + "\n")


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _free_ports(count: int) -> int:
    """First of several consecutive ports on which nothing listens."""
    for _ in range(100):
        first = random.randrange(FIRST_PORT, LAST_PORT - count)
        if not any(_listens(port) for port in range(first, first + count)):
            return first
    raise AssertionError("no free ports")


@dataclass(frozen=True)
class Rgw:
    """How to reach the gateway, and a bucket of the test's own."""

    cluster: Cluster
    bucket: str
    environment: Mapping[str, str]
    client: object


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.skip(f"Ceph is not installed: {', '.join(missing)}")
    started = Cluster()
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def rgw(cluster: Cluster) -> Iterator[Rgw]:
    boto3 = pytest.importorskip("boto3")
    from botocore.config import Config

    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{cluster.rgw_port}",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 10}),
    )
    bucket = f"test-{uuid.uuid4().hex}"
    cluster.wait_for("S3", lambda: _make_bucket(client, bucket))
    yield Rgw(cluster, bucket, environment, client)
    client.close()


def _make_bucket(client: object, bucket: str) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client.create_bucket(Bucket=bucket)
    except (BotoCoreError, ClientError):
        return False
    return True


@dataclass(frozen=True)
class Finished:
    """A program that has ended."""

    code: int
    stdout: str
    stderr: str
    peak_bytes: int
    """Most memory it had resident."""


class Running:
    """A program at work, in a process group of its own."""

    def __init__(
        self, args: tuple[str, ...], environment: Mapping[str, str], directory: Path, name: str = "pack"
    ) -> None:
        token = uuid.uuid4().hex
        self._paths = directory / f"{token}.out", directory / f"{token}.err"
        program = os.path.join(os.path.dirname(sys.executable), name)
        with open(self._paths[0], "wb") as out, open(self._paths[1], "wb") as err:
            self.process = subprocess.Popen(
                [program, *args], env={**os.environ, **environment}, stdout=out, stderr=err, start_new_session=True
            )

    @property
    def stderr(self) -> str:
        """What it has said so far."""
        return self._paths[1].read_text(errors="replace")

    def kill(self) -> None:
        """Kill it and its workers as the out-of-memory killer would: without a word."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def finish(self) -> Finished:
        """Wait for its end."""
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        out, err = (path.read_text(errors="replace") for path in self._paths)
        return Finished(self.process.returncode, out, err, usage.ru_maxrss * 1024)


@pytest.fixture
def start_pack(tmp_path: Path) -> Callable[..., Running]:
    """Start the installed program."""

    def start(environment: Mapping[str, str], *args: str) -> Running:
        return Running((*args, "--quiet"), environment, tmp_path)

    return start


@pytest.fixture
def start_stage(tmp_path: Path) -> Callable[..., Running]:
    """Start the installed program."""

    def start(environment: Mapping[str, str], *args: str) -> Running:
        return Running((*args, "--quiet"), environment, tmp_path, "stage")

    return start
