"""A second, real kernel on this machine: User-Mode Linux, booted on the host's own root directory.

It has what the host's kernel may lack: clients of NFS and CephFS, quotas, a clock of its own; and its power can be cut.
Debian, Ubuntu: apt-get install user-mode-linux kmod iproute2 gcc libc6-dev.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults.machine import ROOT, need_programs, need_root, run
from tests.faults.node import wait_until

MODULES = Path("/usr/lib/uml/modules")
BOOT_SECONDS = 120.0
HOST, GUEST = "10.9.9.1", "10.9.9.2"

INIT = """#!/bin/bash
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/mnt TMPDIR=/mnt
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs run /run; mount -t tmpfs mnt /mnt
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm
echo {modprobe} > /proc/sys/kernel/modprobe
modprobe() {{ {modprobe} "$@"; }}
mkdir /mnt/disk /mnt/net
[ ! -b /dev/ubda ] || mount /dev/ubda /mnt/disk || echo "NO DISK"
ip link set lo up
[ ! -e /sys/class/net/vec0 ] || {{ ip link set vec0 up; ip addr add {guest}/30 dev vec0; }}
export PYTHONPATH={root} PYTHONDONTWRITEBYTECODE=1
stage() {{ {python} -m stager "$@"; }}
cd /mnt
ulimit -c 0
{script}
echo "SCRIPT ENDED $?"
cd /; umount /mnt/disk; sync; echo o > /proc/sysrq-trigger; sleep 9
"""


class Network:
    """A network namespace with a wire to the guest; the host's end has the address :data:`HOST`."""

    def __init__(self) -> None:
        need_root()
        need_programs("ip")
        self.name = f"uml-{os.getpid()}"
        run("ip", "netns", "add", self.name)
        self.inside: Sequence[str] = ("ip", "netns", "exec", self.name)
        for command in (
            "ip link set lo up",
            "ip tuntap add tap0 mode tap",
            f"ip addr add {HOST}/30 dev tap0",
            "ip link set tap0 up",
        ):
            run(*self.inside, *command.split())

    def cut(self) -> None:
        """Let every packet to the guest vanish."""
        run(*self.inside, "ip", "route", "add", "blackhole", f"{GUEST}/32")

    def mend(self) -> None:
        """Let packets pass again."""
        run(*self.inside, "ip", "route", "del", "blackhole", f"{GUEST}/32")

    def close(self) -> None:
        """Take the namespace away."""
        run("ip", "netns", "del", self.name)


class Guest:
    """A running guest.

    Args:
        directory: for its files.
        script: what it does, in bash; ``stage`` is the program, ``/mnt/disk`` the disk.
        disk: image of an ext4 or xfs filesystem; None for no disk.
        network: what it is wired to; None for nothing.
    """

    def __init__(self, directory: Path, script: str, disk: Path | None = None, network: Network | None = None) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="sf-uml-", dir="/tmp"))  # its socket needs a short path
        modules = self._directory / "lib"
        modules.mkdir()
        (modules / "modules").symlink_to(MODULES)
        modprobe = self._directory / "modprobe"
        modprobe.write_text(
            f'#!/bin/sh\nexec {shutil.which("modprobe") or "/sbin/modprobe"} -d {self._directory} "$@"\n'
        )
        init = self._directory / "init"
        init.write_text(
            INIT.format(
                modprobe=modprobe,
                guest=GUEST,
                root=shlex.quote(str(ROOT)),
                python=shlex.quote(sys.executable),
                script=script,
            )
        )
        init.chmod(0o755)
        modprobe.chmod(0o755)
        command = [
            *(network.inside if network else ()),
            "linux.uml",
            "mem=512M",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            f"init={init}",
            "con0=fd:0,fd:1",
            "con=null",
            "umid=guest",
            f"uml_dir={self._directory}/",
            "quiet",
            *([f"ubd0={disk}"] if disk else []),
            *(["vec0:transport=tap,ifname=tap0,depth=128,gro=1"] if network else []),
        ]
        shim = self._directory / "umlptrace.so"
        run("cc", "-shared", "-fPIC", "-O1", "-o", shim, Path(__file__).with_name("umlptrace.c"))
        self._console = directory / f"console-{self._directory.name}"
        with self._console.open("wb") as console:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, "LD_PRELOAD": str(shim)},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """All that was said on the console so far."""
        return self._console.read_text(errors="replace").replace("\r", "")

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until something was said, so many times."""
        wait_until(
            lambda: self.said.count(text) >= times or self.process.poll() is not None,
            f"the guest said {text}",
            BOOT_SECONDS,
        )
        assert self.said.count(text) >= times, self.said[-3000:]

    def finish(self) -> str:
        """Wait until the script has ended and the guest is off; gives what was said."""
        self.wait_for("SCRIPT ENDED")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.cut_power()
        return self.said

    def cut_power(self) -> None:
        """End the guest between two instructions; what its kernel had not written is lost."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


@contextlib.contextmanager
def guest(directory: Path, script: str, disk: Path | None = None, network: Network | None = None) -> Iterator[Guest]:
    """Boot a guest for the length of a ``with`` block."""
    need_root()
    need_programs("linux.uml", "modprobe", "cc")
    booted = Guest(directory, script, disk, network)
    try:
        yield booted
    finally:
        booted.cut_power()
