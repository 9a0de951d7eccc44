"""Looks whether the head of a Ray cluster listens at an address, within seconds.

Ray itself tries for many minutes, and fills the terminal, when something else listens there or nothing does.
"""

import os
import socket

from shards.errors import EngineError, printable

CONNECT_SECONDS = 10.0

_CLIENT_PORT = "10001"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How a client of gRPC greets: the preface of HTTP/2 and empty settings (RFC 9113, section 3.4)."""

_SETTINGS = 4
"""Type, at offset 3 of the frame, of what an HTTP/2 server must answer first."""


def check_head(address: str | None) -> None:
    """Check the address of a cluster before Ray is asked to join it.

    Args:
        address: ``host:port``; None stands for the one that Ray would find: in ``RAY_ADDRESS``, or of the cluster that
            was last started on this machine.

    Raises:
        EngineError: it is no such address, nothing listens there, or what does is no head of a cluster.
    """
    address = address or os.environ.get("RAY_ADDRESS") or _last_started()
    if address is None:
        raise EngineError(
            "no Ray cluster is known here: RAY_ADDRESS is not set, and none was started on this machine; give the "
            "address of its head with --ray-address host:6379, or run this on the cluster, by `ray job submit`"
        )
    shown = printable(address)
    host, colon, port = address.rpartition(":")
    if "://" in address or port == _CLIENT_PORT:
        raise EngineError(
            f"{shown} is an address for Ray's client, whose work ends with its connection; run this command on a node "
            "of the cluster, for instance by `ray job submit`, and give --ray-address host:6379"
        )
    if not colon or not host or not port.isdigit():
        raise EngineError(f"{shown} is no address of a Ray cluster; give --ray-address host:port, such as head:6379")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":  # Ray greets in another way then
                return
            connection.sendall(_PREFACE)
            answer = connection.recv(4)
    except (OSError, OverflowError) as error:
        raise EngineError(
            f"there is no Ray cluster at {shown}: {error}; check --ray-address, and on its machine `ray status`"
        ) from error
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise EngineError(
            f"what listens at {shown} is not the head of a Ray cluster, whose port is 6379 unless another was chosen "
            "(8265 is the dashboard)"
        )


def _last_started() -> str | None:
    """What ``ray start`` wrote down on this machine."""
    path = os.path.join(os.environ.get("RAY_TMPDIR") or "/tmp", "ray/ray_current_cluster")  # noqa: S108 (Ray's place)
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip() or None
    except FileNotFoundError:
        return None
