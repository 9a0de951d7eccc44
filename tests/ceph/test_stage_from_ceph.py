"""Staging from a real Ceph RGW: over HTTP and TLS, with both drivers, and when the gateway dies amid it."""

import json
import os
import random

import pytest

pytestmark = [pytest.mark.ceph, pytest.mark.slow]

MIB = 1024 * 1024
NUM_FILES, FILE_BYTES = 48, 3 * MIB
MEMORY_BYTES = 256 * MIB


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = tmp_path_factory.mktemp("source")
    generator = random.Random(1)
    for number in range(NUM_FILES):
        (root / f"{number:04d}.bin").write_bytes(generator.randbytes(FILE_BYTES))
    return root


@pytest.fixture
def published(rgw, start_pack, source, tmp_path):
    """A dataset in the gateway, and the same in a directory."""
    url, local = f"s3://{rgw.bucket}/data set", tmp_path / "local"
    for environment, place in (({}, str(local)), (rgw.environment, url)):
        done = start_pack(environment, "build", str(source), place, "--shard-size", "40MB").finish()
        assert done.code == 0, done.stderr
    return url, local


def names_in(directory):
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def check_staged(report, local):
    """Compare byte by byte."""
    assert names_in(report["path"]) == names_in(local)
    for name in names_in(local):
        with open(os.path.join(report["path"], name), "rb") as staged:
            assert staged.read() == (local / name).read_bytes()


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
@pytest.mark.parametrize("is_secure", [False, True])
def test_staged_bytes_are_those_that_were_packed(rgw, start_stage, published, tmp_path, driver, is_secure):
    url, local = published
    environment, options = dict(rgw.environment), ["--s3-driver", driver]
    if is_secure:
        environment["AWS_ENDPOINT_URL"] = f"https://127.0.0.1:{rgw.cluster.tls_port}"
        options += ["--ca-bundle", str(rgw.cluster.root / "ca.pem")]
    done = start_stage(environment, "run", url, "--cache-dir", str(tmp_path / "c"), "--json", *options).finish()
    assert done.code == 0, done.stderr
    report = json.loads(done.stdout)
    check_staged(report, local)
    assert report["fetched_bytes"] == report["total_bytes"]
    assert done.peak_bytes < MEMORY_BYTES
    again = start_stage(environment, "run", url, "--cache-dir", str(tmp_path / "c"), "--json", *options).finish()
    assert json.loads(again.stdout)["fetched_bytes"] == 0


REFUSALS = [
    ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "", 77, "AWS_SECRET_ACCESS_KEY"),
    ({"AWS_ACCESS_KEY_ID": "NOBODY"}, "", 77, "does not know this access key"),
    ({}, "s3://no-such-bucket/set", 66, "no such bucket"),
    ({}, "s3://{bucket}/nothing", 66, "no such object"),
    ({"AWS_ENDPOINT_URL": "https://127.0.0.1:{tls_port}"}, "", 69, "--ca-bundle"),
    ({"AWS_ENDPOINT_URL": "https://127.0.0.1:{rgw_port}"}, "", 69, "http://"),
    ({"STAGE_ANONYMOUS": "1"}, "", 77, "s3:GetObject"),
]


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
@pytest.mark.parametrize(("variables", "place", "code", "advice"), REFUSALS)
def test_refusals_of_a_real_gateway_are_told_apart(rgw, start_stage, tmp_path, variables, place, code, advice, driver):
    facts = {"bucket": rgw.bucket, "tls_port": rgw.cluster.tls_port, "rgw_port": rgw.cluster.rgw_port}
    environment = dict(rgw.environment) | {name: value.format(**facts) for name, value in variables.items()}
    place = place.format(**facts) or f"s3://{rgw.bucket}/set"
    rgw.client.put_object(Bucket=rgw.bucket, Key="set/manifest.json", Body=b"{}")
    cache = str(tmp_path / "c")
    done = start_stage(environment, "run", place, "--cache-dir", cache, "--s3-driver", driver).finish()
    assert done.code == code, done.stderr
    assert advice in done.stderr
    assert "Traceback" not in done.stderr
    assert rgw.environment["AWS_SECRET_ACCESS_KEY"] not in done.stderr


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
def test_a_gateway_that_dies_and_comes_back_costs_repeats_only(rgw, start_stage, published, tmp_path, driver):
    url, local = published
    environment = dict(rgw.environment) | {"STAGE_S3_DRIVER": driver}
    rgw.cluster.wait_for("S3", lambda: True)
    running = start_stage(environment, "run", url, "--cache-dir", str(tmp_path / "c"), "--json", "--connections", "1")
    try:
        rgw.cluster.wait_for("the first shard", lambda: list((tmp_path / "c").rglob("train-000000.tar")))
        rgw.cluster.kill_rgw()
    finally:
        rgw.cluster.start_rgw()
    done = running.finish()
    assert done.code == 0, done.stderr
    check_staged(json.loads(done.stdout), local)
