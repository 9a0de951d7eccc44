"""An NFS server of the tests' own, nfs-ganesha: NFSv4 over TCP, no portmapper, no part of the host's kernel."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.faults.machine import need_programs, need_root
from tests.faults.node import wait_until

CONFIG = """
NFS_CORE_PARAM {{ NFS_Port = {port}; MNT_Port = {mnt_port}; Bind_addr = {address}; NFS_Protocols = 4;
  Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; Plugins_Dir = "{plugins}/"; }}
NFSv4 {{ Graceless = true; Lease_Lifetime = 10; Grace_Period = 5; RecoveryBackend = fs; RecoveryRoot = "{state}";
  Delegations = false; Minor_Versions = 0,1,2; Only_Numeric_Owners = true; }}
NFS_KRB5 {{ Active_krb5 = false; }}
EXPORT {{ Export_Id = 1; Path = {path}; Pseudo = /data; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
  Transports = TCP; Protocols = 4; PrivilegedPort = false; FSAL {{ Name = VFS; }}
  CLIENT {{ Clients = *; Access_Type = RW; }} }}
LOG {{ Default_Log_Level = EVENT; }}
"""


class NfsServer:
    """Exports a directory as ``/data``.

    Args:
        path: the directory.
        address: where to listen.
        port: the same.
        prefix: what the server is started with, such as a network namespace.
    """

    def __init__(self, path: Path, address: str = "127.0.0.1", port: int = 2049, prefix: Sequence[str] = ()) -> None:
        need_root()
        need_programs("ganesha.nfsd")
        plugins = next(iter(Path("/usr/lib").glob("*/ganesha")), None)
        if plugins is None:
            pytest.skip("not installed: nfs-ganesha-vfs")
        self._place = Path(tempfile.mkdtemp(prefix="sf-nfs-", dir="/tmp"))
        state = self._place / "recovery"
        state.mkdir()
        self._config = self._place / "ganesha.conf"
        self._config.write_text(
            CONFIG.format(
                port=port, mnt_port=port + 1, address=address, plugins=plugins, state=state, path=path.resolve()
            )
        )
        self._prefix = prefix
        self._address = (address, port)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start, also again, and wait until it listens."""
        log = self._place / "log"
        command = [*self._prefix, "ganesha.nfsd", "-F", "-f", self._config, "-L", log, "-p", self._place / "pid"]
        with (self._place / "out").open("ab") as out:
            self._process = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        wait_until(lambda: self._listens() or self._process.poll() is not None, "the NFS server listens")
        assert self._process.poll() is None, log.read_text()[-2000:]

    def kill(self) -> None:
        """Let it die without a word."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def freeze(self) -> None:
        """Let it stop answering while its connections stay."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._place)

    def _listens(self) -> bool:
        if self._prefix:  # another network namespace
            host, port = self._address
            probe = f"exec 3<>/dev/tcp/{host}/{port}"
            done = subprocess.run([*self._prefix, "bash", "-c", probe], check=False, capture_output=True)
            return done.returncode == 0
        with contextlib.suppress(OSError), socket.create_connection(self._address, timeout=1):
            return True
        return False


@contextlib.contextmanager
def nfs_server(
    path: Path, address: str = "127.0.0.1", port: int = 2049, prefix: Sequence[str] = ()
) -> Iterator[NfsServer]:
    """Run a server for the length of a ``with`` block."""
    os.chmod(path, 0o755)
    server = NfsServer(path, address, port, prefix)
    try:
        yield server
    finally:
        server.close()
