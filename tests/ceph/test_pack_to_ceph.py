"""Packing into a real Ceph RGW: the same bytes as into a directory, whatever happens on the way."""

import json
import os
import random
import time
from pathlib import Path

import pytest

from packer.sink import BUFFER_BYTES, NUM_BUFFERS
from packer.stores.objects import PART_BYTES

pytestmark = [pytest.mark.ceph, pytest.mark.slow]

MIB = 1024 * 1024
NUM_KILLS = 8
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": str(MIB)}
"""glibc otherwise keeps a freed part for the next one, which hides what is held at the same time."""
SLACK_BYTES = 8 * MIB
"""Peaks of equal runs differ by some MiB."""
SMALL_BYTES, NUM_SMALL = 200_000, 120
BIG_BYTES, NUM_BIG = 4 * MIB, 64


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """120 files of 200 kB: 4 shards of several parts each need more than one upload."""
    root = tmp_path_factory.mktemp("source")
    generator = random.Random(1)
    for number in range(NUM_SMALL):
        (root / f"{number:04d}.bin").write_bytes(generator.randbytes(SMALL_BYTES))
        (root / f"{number:04d}.txt").write_bytes(b"%d" % number)
    return root


def build(start_pack, environment, source, url, *options):
    return start_pack(environment, "build", str(source), url, "--shard-size", "8MB", "--json", *options)


def finish(running):
    done = running.finish()
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)


def keys_in(rgw):
    pages = rgw.client.get_paginator("list_objects_v2").paginate(Bucket=rgw.bucket)
    return sorted(found["Key"] for page in pages for found in page.get("Contents", ()))


def uploads_in(rgw):
    return rgw.client.list_multipart_uploads(Bucket=rgw.bucket).get("Uploads", [])


def wait_until(running, is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert running.process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_dataset_in_ceph_is_the_one_in_a_directory(rgw, start_pack, source, tmp_path, jobs):
    url = f"s3://{rgw.bucket}/set"
    local = finish(build(start_pack, {}, source, str(tmp_path / "out")))
    remote = finish(build(start_pack, rgw.environment, source, url, "--jobs", jobs))
    assert remote["dataset_id"] == local["dataset_id"]
    for name in os.listdir(tmp_path / "out"):
        if name != ".pack":
            body = rgw.client.get_object(Bucket=rgw.bucket, Key=f"set/{name}")["Body"].read()
            assert body == Path(tmp_path, "out", name).read_bytes(), name
    done = start_pack(rgw.environment, "verify", url, "--deep", "--against", str(source)).finish()
    assert done.code == 0, done.stderr
    assert not uploads_in(rgw)


def test_killed_again_and_again_it_ends_with_the_same_bytes(rgw, start_pack, source, tmp_path):
    url = f"s3://{rgw.bucket}/set"
    local = finish(build(start_pack, {}, source, str(tmp_path / "out")))
    generator = random.Random(2)
    num_uploads_seen = 0
    for _ in range(NUM_KILLS):
        running = build(start_pack, rgw.environment, source, url, "--jobs", "2")
        before = {upload["UploadId"] for upload in uploads_in(rgw)}
        try:
            wait_until(running, lambda known=before: {u["UploadId"] for u in uploads_in(rgw)} - known)
        except AssertionError:
            assert running.process.returncode == 0  # it was quicker than we looked
        time.sleep(generator.uniform(0, 0.2))
        if running.process.poll() is None:
            running.kill()
        num_uploads_seen += len(uploads_in(rgw))
        assert "set/manifest.json" not in keys_in(rgw) or not uploads_in(rgw)
    assert num_uploads_seen
    resumed = finish(build(start_pack, rgw.environment, source, url, "--jobs", "2"))
    assert resumed["dataset_id"] == local["dataset_id"]
    assert not uploads_in(rgw)
    names = {name for name in keys_in(rgw) if "/.pack/" not in name}
    assert names == {f"set/{name}" for name in os.listdir(tmp_path / "out") if name != ".pack"}
    assert start_pack(rgw.environment, "verify", url, "--deep").finish().code == 0


def test_finished_shards_are_kept_without_being_read_again(rgw, start_pack, source):
    url = f"s3://{rgw.bucket}/set"
    first = finish(build(start_pack, rgw.environment, source, url))
    rgw.client.delete_object(Bucket=rgw.bucket, Key="set/manifest.json")
    again = finish(build(start_pack, rgw.environment, source, url))
    assert again["num_kept"] == first["num_shards"]
    assert again["dataset_id"] == first["dataset_id"]


def test_gateway_that_dies_is_an_error_worth_repeating(rgw, start_pack, source):
    url = f"s3://{rgw.bucket}/set"
    running = build(start_pack, rgw.environment, source, url, "--jobs", "1")
    wait_until(running, lambda: bool(uploads_in(rgw)))
    rgw.cluster.kill_rgw()
    try:
        done = running.finish()
        assert done.code == 69, done.stderr
        assert "Traceback" not in done.stderr
    finally:
        rgw.cluster.start_rgw()
    assert finish(build(start_pack, rgw.environment, source, url))["is_new"]
    assert not uploads_in(rgw)


def test_upload_takes_at_most_two_parts_of_memory(rgw, start_pack, tmp_path):
    """What a big shard needs more than a tiny one: the buffers that it is made in, and two parts on their way."""
    peaks = {}
    for name, sizes in {"tiny": [4096], "big": [BIG_BYTES] * NUM_BIG}.items():
        (tmp_path / name).mkdir()
        for number, size in enumerate(sizes):
            (tmp_path / name / f"{number:03d}.bin").write_bytes(os.urandom(size))
        options = ("--shard-size", "1GB", "--jobs", "1")
        url = f"s3://{rgw.bucket}/{name}"
        done = start_pack(rgw.environment | GIVES_BACK, "build", str(tmp_path / name), url, *options).finish()
        assert done.code == 0, done.stderr
        peaks[name] = done.peak_bytes
    print({name: f"{peak / MIB:.0f} MiB" for name, peak in peaks.items()})
    assert peaks["big"] - peaks["tiny"] <= NUM_BUFFERS * BUFFER_BYTES + 2 * PART_BYTES + SLACK_BYTES


def test_dataset_in_ceph_is_added_to_there(rgw, start_pack, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for number in range(20):
        (source / f"{number:02d}.bin").write_bytes(os.urandom(SMALL_BYTES))
    old, new = (f"s3://{rgw.bucket}/{name}" for name in ("old", "new"))
    finish(build(start_pack, rgw.environment, source, old))
    (source / "new.bin").write_bytes(b"new")
    result = finish(build(start_pack, rgw.environment, source, new, "--append-to", old))
    assert result["num_samples"] == 21
    assert start_pack(rgw.environment, "verify", new, "--deep", "--against", str(source)).finish().code == 0


def test_gateway_behind_tls_needs_its_authority_and_nothing_else(rgw, start_pack, source):
    url = f"s3://{rgw.bucket}/set"
    secure = rgw.environment | {"AWS_ENDPOINT_URL": f"https://127.0.0.1:{rgw.cluster.tls_port}"}
    refused = build(start_pack, secure, source, url).finish()
    assert refused.code == 69
    assert "AWS_CA_BUNDLE" in refused.stderr
    assert "Traceback" not in refused.stderr
    trusting = secure | {"AWS_CA_BUNDLE": str(rgw.cluster.root / "ca.pem")}
    finish(build(start_pack, trusting, source, url))
    done = start_pack(trusting, "verify", url, "--deep").finish()
    assert done.code == 0, done.stderr
