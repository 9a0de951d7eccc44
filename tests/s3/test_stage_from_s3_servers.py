"""Staging from S3 servers of others: SeaweedFS, and rclone's, which answers 200 to ranges and ignores If-Match."""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.s3, pytest.mark.slow]

ACCESS_KEY, SECRET_KEY = "AKSHARDFERRYTESTS000", "shardferry-tests-secret-shardferry-tests"
BUCKET = "datasets"
START_SECONDS = 60
BIN = Path(sys.executable).parent


def free_ports(count):
    first = random.Random(os.getpid()).randrange(21_000, 32_000 - count)
    return list(range(first, first + count))


@contextlib.contextmanager
def serving(port, *command):
    if not (BIN / command[0]).exists():
        pytest.skip(f"{command[0]} is not installed")
    server = subprocess.Popen([BIN / command[0], *command[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert server.poll() is None, f"{command[0]} ended with {server.returncode}"
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def rclone(directory):
    (directory / "root").mkdir()
    (port,) = free_ports(1)
    keys = ("--auth-key", f"{ACCESS_KEY},{SECRET_KEY}")
    with serving(port, "rclone", "serve", "s3", "--addr", f"127.0.0.1:{port}", *keys, str(directory / "root")) as url:
        yield url


@contextlib.contextmanager
def seaweedfs(directory):
    identity = {
        "name": "test",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (directory / "data").mkdir()
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    ports = free_ports(len(names) + 2)
    options = [f"-{name}={port}" for name, port in zip(names, ports, strict=False)]
    places = [
        f"-filer.localSocket={directory}/f.sock",
        f"-s3.localSocket={directory}/s3.sock",
        f"-dir={directory}/data",
    ]
    s3 = [f"-s3.port={ports[-1]}", f"-s3.port.grpc={ports[-2]}", f"-s3.config={directory}/s3.json"]
    s3 += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    rest = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-master.telemetry=false"]
    with serving(ports[-1], "weed", "server", *rest, *options, *places, *s3) as url:
        yield url


@pytest.fixture(scope="module", params=[rclone, seaweedfs])
def published(request, tmp_path_factory):
    """A dataset that was packed into the server, the same one in a directory, and the variables that lead there."""
    boto3 = pytest.importorskip("boto3")
    directory = tmp_path_factory.mktemp("s3")
    source, local = directory / "source", directory / "local"
    source.mkdir()
    generator = random.Random(1)
    for number in range(24):
        (source / f"{number:04d}.bin").write_bytes(generator.randbytes(2 * 2**20))
    with request.param(directory) as url:
        environment = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        names = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY, "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=url, **names)
        run(["pack", "build", str(source), str(local), "--shard-size", "20MB", "--quiet"], {})
        deadline = time.monotonic() + START_SECONDS
        while True:  # the port is open a moment before the service behind it is up
            with contextlib.suppress(Exception):
                client.create_bucket(Bucket=BUCKET)
                break
            assert time.monotonic() < deadline
            time.sleep(0.2)
        for name in [name for name in os.listdir(local) if not name.startswith(".")]:
            client.put_object(Bucket=BUCKET, Key=f"set/{name}", Body=(local / name).read_bytes())
        client.close()
        yield environment, local


def run(command, environment, code=0):
    done = subprocess.run(
        [BIN / command[0], *command[1:]], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("driver", ["auto", "s3fs"])
@pytest.mark.parametrize("options", [[], ["--without-manifest"]])
def test_staged_bytes_are_those_that_were_packed(published, tmp_path, driver, options):
    environment, local = published
    command = [
        "stage",
        "run",
        f"s3://{BUCKET}/set",
        "--cache-dir",
        str(tmp_path),
        "--s3-driver",
        driver,
        "--json",
        "-q",
    ]
    report = json.loads(run([*command, *options], environment).stdout)
    for name in [name for name in os.listdir(local) if name.endswith(".tar")]:
        assert Path(report["path"], name).read_bytes() == (local / name).read_bytes()
    again = json.loads(run([*command, *options], environment).stdout)
    assert again["fetched_bytes"] == 0


@pytest.mark.parametrize("driver", ["auto", "s3fs"])
@pytest.mark.parametrize(
    ("variables", "place", "code", "advice"),
    [
        ({}, "s3://no-such-bucket/set", 66, "no such bucket"),
        ({}, f"s3://{BUCKET}/nothing", 66, "no such object"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, f"s3://{BUCKET}/set", 77, "AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, f"s3://{BUCKET}/set", 77, "does not know this access key"),
    ],
)
def test_refusals_are_told_apart(published, tmp_path, driver, variables, place, code, advice):
    environment, _ = published
    command = ["stage", "run", place, "--cache-dir", str(tmp_path), "--s3-driver", driver, "-q"]
    assert advice in run(command, environment | variables, code).stderr
