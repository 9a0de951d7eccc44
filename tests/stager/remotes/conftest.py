"""Places of every kind that a remote can read from, with real servers in processes of their own."""

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stager.remotes.base import Remote
from stager.remotes.open import open_remote
from stager.remotes.options import AddressingStyle, RemoteOptions, S3Driver
from tests.stager.remotes.scripted_s3 import scripted_s3

START_SECONDS = 30
ACCESS_KEY, SECRET_KEY = "id", "very-secret"


class Place:
    """Where files are put for a remote to find them."""

    def __init__(self, url: str, put: Callable[[str, bytes], None], options: RemoteOptions) -> None:
        self.url = url
        self.put = put
        self.options = options

    def run(self, work: Callable[[Remote], Awaitable[Any]]) -> Any:
        """Open the remote, without repeats, and let some work be done with it."""

        async def run() -> Any:
            remote = open_remote(self.url, self.options, 4)
            try:
                return await work(remote)
            finally:
                await remote.close()

        return asyncio.run(run())


OpenPlace = Callable[..., Place]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def serving(port: int, *command: str, **variables: str) -> Iterator[None]:
    """Run a server until the end of the block; it listens when the block begins."""
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **variables}
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            assert time.monotonic() < deadline
            assert server.poll() is None, f"{command[0]} ended with {server.returncode}"
            time.sleep(0.05)
        yield
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """An S3 server with the right semantics, which takes every secret."""
    pytest.importorskip("moto.server")
    port = free_port()
    with serving(port, sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def aws(monkeypatch, tmp_path):
    """Credentials in the environment, and nothing else of the machine's."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    return monkeypatch


def s3_client(endpoint_url: str, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY) -> Any:
    boto3 = pytest.importorskip("boto3")
    return boto3.client(
        "s3",
        endpoint_url=endpoint_url,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name="us-east-1",
    )


def s3_options(endpoint_url: str, options: dict[str, Any]) -> RemoteOptions:
    """Give options as a command line does, without repeats."""
    values = {"endpoint_url": endpoint_url, "retry_seconds": 0.0, "s3_driver": "auto", "addressing_style": "auto"}
    values |= options
    values["s3_driver"] = S3Driver(values["s3_driver"])
    values["addressing_style"] = AddressingStyle(values["addressing_style"])
    return RemoteOptions(**values)


@pytest.fixture
def bucket(moto, aws):
    """An empty bucket of moto's, and a client for it."""
    client = s3_client(moto)
    name = f"bucket-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    yield client, name
    client.close()


@pytest.fixture
def s3_place(moto, bucket) -> OpenPlace:
    """A prefix in a bucket, read with options."""
    client, name = bucket

    def put(path: str, data: bytes) -> None:
        client.put_object(Bucket=name, Key=f"data set/{path}", Body=data)

    def open_place(**options: Any) -> Place:
        return Place(f"s3://{name}/data set", put, s3_options(moto, options))

    return open_place


def into_directory(root: Path) -> Callable[[str, bytes], None]:
    """Give what puts files into a directory, as somebody does who replaces them in one step."""

    def put(path: str, data: bytes) -> None:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.parent / f".{target.name}.new"
        new.write_bytes(data)
        new.rename(target)

    return put


@pytest.fixture
def directory_place(tmp_path) -> Place:
    root = tmp_path / "published"
    root.mkdir()
    return Place(str(root), into_directory(root), RemoteOptions(retry_seconds=0.0))


@pytest.fixture(scope="session")
def http_root(tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """A web server that knows ranges and conditions, and the directory that it serves."""
    pytest.importorskip("aiohttp")
    root, port = tmp_path_factory.mktemp("http"), free_port()
    program = Path(__file__).with_name("file_server.py")
    with serving(port, sys.executable, str(program), str(port), str(root)):
        yield f"http://127.0.0.1:{port}", root


@pytest.fixture
def http_place(http_root) -> Place:
    url, root = http_root
    name = uuid.uuid4().hex
    (root / name).mkdir()
    return Place(f"{url}/{name}", into_directory(root / name), RemoteOptions(retry_seconds=0.0))


@pytest.fixture(scope="session")
def sftp_root(tmp_path_factory) -> Iterator[tuple[int, Path]]:
    """An SSH server, and the directory that it serves."""
    pytest.importorskip("paramiko")
    pytest.importorskip("asyncssh")
    root, port = tmp_path_factory.mktemp("sftp"), free_port()
    program = Path(__file__).with_name("sftp_server.py")
    with serving(port, sys.executable, str(program), str(port), str(root)):
        yield port, root


@pytest.fixture
def sftp_place(sftp_root, monkeypatch) -> Place:
    import fsspec

    # what FSSPEC_SFTP_PASSWORD=… does when fsspec is imported
    monkeypatch.setitem(fsspec.config.conf, "sftp", {"password": "open sesame", "look_for_keys": False})
    port, root = sftp_root
    name = uuid.uuid4().hex
    (root / name).mkdir()
    url = f"sftp://anybody@127.0.0.1:{port}/{name}"
    put_file, seconds = into_directory(root / name), itertools.count(10**9)

    def put(path: str, data: bytes) -> None:
        put_file(path, data)
        # this protocol tells whole seconds, and replaced files are not replaced twice in one
        os.utime(root / name / path, (second := next(seconds), second))

    return Place(url, put, RemoteOptions(retry_seconds=0.0))


@pytest.fixture
def memory_place() -> Place:
    import fsspec

    root = f"/{uuid.uuid4().hex}"
    memory = fsspec.filesystem("memory")
    memory.makedirs(root)

    def put(path: str, data: bytes) -> None:
        memory.pipe_file(f"{root}/{path}", data)

    return Place(f"memory:/{root}", put, RemoteOptions(retry_seconds=0.0))


@pytest.fixture
def scripted(aws) -> Iterator[Any]:
    """An S3 server that answers as the test says."""
    with scripted_s3() as server:
        yield server


@pytest.fixture
def scripted_place(scripted) -> OpenPlace:
    def open_place(**options: Any) -> Place:
        return Place("s3://bucket/set", lambda path, data: None, s3_options(scripted.url, options))

    return open_place
