"""Small source trees, and `pack` as a user runs it."""

import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packer.cli import cli
from packer.cut import plan_shards
from packer.group import CaseCollisions, DottedNames, GroupOptions, KeylessNames, group_files
from packer.labels import classify_samples, split_samples
from packer.plan import PackPlan, PlanContent, PlanOptions
from packer.sources.files import SourceFiles
from packer.splits import OneSplit, SplitByDirectory, SplitByShare
from shardferry.console import run_command
from shards.formats import FORMATS
from shards.index import ShardIndex
from shards.keys import FIRST_DOT
from shards.manifest import Manifest

MakePlan = Callable[..., PackPlan]
PACK = os.path.join(os.path.dirname(sys.executable), "pack")

_START_SECONDS = 30
"""For an S3 server."""

MakeTree = Callable[..., str]
RunPack = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Dataset:
    """A finished dataset, read back through its indexes."""

    path: str
    manifest: Manifest

    def samples(self, split: str) -> dict[str, dict[str, bytes]]:
        found = {}
        for entry in self.manifest.split(split).shards:
            data = Path(self.path, entry.name).read_bytes()
            with ShardIndex.open(os.path.join(self.path, entry.index_name)) as index:
                for number in range(index.num_samples):
                    members = index.members(number)
                    found[index.key(number)] = {m.extension: data[m.offset : m.offset + m.size] for m in members}
        return found

    def file_bytes(self) -> dict[str, bytes]:
        """Every file of the dataset, without the packer's own state."""
        return {name: Path(self.path, name).read_bytes() for name in sorted(os.listdir(self.path)) if name != ".pack"}

    def shard_bytes(self) -> dict[str, bytes]:
        """Shards and indexes, whose bytes must never depend on where and how the work was done."""
        return {name: data for name, data in self.file_bytes().items() if name != "manifest.json"}


GROUPING = GroupOptions(
    key_rule=FIRST_DOT, dotted=DottedNames.ERROR, keyless=KeylessNames.ERROR, case_collisions=CaseCollisions.ERROR
)


def make_plan(
    sizes: Mapping[str, int],
    *,
    format_name: str = "tar",
    shard_size_bytes: int = 10_000,
    seed: int | None = 0,
    split: OneSplit | SplitByDirectory | SplitByShare | None = None,
    has_classes: bool = False,
) -> PackPlan:
    """Plan files of these sizes."""
    files = SourceFiles()
    for path in sorted(sizes):
        files.append(path.encode(), sizes[path], 1)
    samples, _ = group_files(files, GROUPING)
    rule = split or OneSplit("train")
    classes = classify_samples(samples, files, rule) if has_classes else None
    content = PlanContent(files, samples, split_samples(samples, files, rule), classes)
    shard_format = FORMATS[format_name]
    options = PlanOptions(
        format_name=format_name,
        suffix=shard_format.suffix,
        end_marker_bytes=len(shard_format.end_marker),
        shard_size_bytes=shard_size_bytes,
        shuffle_seed=seed,
    )
    return plan_shards(content, options, shard_format)


@pytest.fixture(scope="session")
def plan_of() -> MakePlan:
    """Plan files of the sizes given, without any on disk."""
    return make_plan


@pytest.fixture
def make_tree(tmp_path: Path) -> MakeTree:
    """Write files below a directory; names may be bytes."""

    def make(files: Mapping[str | bytes, bytes], name: str = "source") -> str:
        root = os.fsencode(tmp_path / name)
        for path, data in files.items():
            full = os.path.join(root, os.fsencode(path))
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as file:
                file.write(data)
        return os.fsdecode(root)

    return make


@pytest.fixture
def pack() -> RunPack:
    """Run the installed program; stdout and stderr as text."""

    def run(*args: str, env: Mapping[str, str] | None = None, umask: int = -1) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PACK, *args],
            capture_output=True,
            text=True,
            errors="surrogateescape",
            env={**os.environ, **(env or {})},
            umask=umask,
            check=False,
            timeout=60,
        )

    return run


@pytest.fixture
def pack_here(capsys: pytest.CaptureFixture[str]) -> Iterator[RunPack]:
    """Run the program's code in this process, which saves the start; for what ends before any work."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        code = run_command(cli, "pack", args)
        stdout, stderr = capsys.readouterr()
        return subprocess.CompletedProcess(args, code, stdout, stderr)

    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield run
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def read_dataset() -> Callable[[str], Dataset]:
    """Open a finished dataset."""

    def read(path: str) -> Dataset:
        data = Path(path, "manifest.json").read_bytes()
        return Dataset(str(path), Manifest.from_json(data, name="manifest.json"))

    return read


@pytest.fixture
def many_files() -> dict[str, bytes]:
    """120 samples of two members in three directories, some empty, of differing sizes."""
    files = {}
    for number in range(120):
        stem = f"class{number % 3}/img{number:04d}"
        files[f"{stem}.jpg"] = bytes((number * 7 + i) % 251 for i in range(number * 53 % 4000))
        files[f"{stem}.json"] = b'{"number": %d}' % number
    return files


@pytest.fixture(scope="module")
def s3_environment() -> Iterator[dict[str, str]]:
    """An S3 server on loopback, and the variables by which any S3 client finds it."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            assert time.monotonic() < deadline
            assert server.poll() is None
            time.sleep(0.05)
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "very-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def s3(s3_environment: Mapping[str, str]) -> Iterator[tuple[Any, str]]:
    """A client and an empty bucket."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=s3_environment["AWS_ENDPOINT_URL"],
        aws_access_key_id="id",
        aws_secret_access_key="very-secret",
        region_name="us-east-1",
    )
    bucket = uuid.uuid4().hex
    client.create_bucket(Bucket=bucket)
    yield client, bucket
    client.close()
