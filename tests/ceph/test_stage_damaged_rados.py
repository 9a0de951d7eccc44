"""Objects that change or vanish inside of a Ceph whose gateway goes on to answer 200."""

import json
import os
import random
import signal

import pytest

pytestmark = [pytest.mark.ceph, pytest.mark.slow]

MIB = 1024 * 1024
POOL = "default.rgw.buckets.data"
SHARD = "train-000001.tar"
IMPATIENT = ("--stall-timeout", "2s", "--retry-for", "4s")


@pytest.fixture
def published(rgw, start_pack, tmp_path):
    """A dataset in the gateway, and the same in a directory."""
    source = tmp_path / "source"
    source.mkdir()
    generator = random.Random(2)
    for number in range(24):
        (source / f"{number:04d}.bin").write_bytes(generator.randbytes(MIB))
    url, local = f"s3://{rgw.bucket}/set", tmp_path / "local"
    for environment, place in (({}, str(local)), (rgw.environment, url)):
        done = start_pack(environment, "build", str(source), place, "--shard-size", "10MB").finish()
        assert done.code == 0, done.stderr
    return url, local


@pytest.fixture
def piece(rgw, published, tmp_path):
    """A piece of the second shard, but not the one by which the gateway finds it: its name, and what it holds."""
    names = [name for name in rgw.cluster.run("rados", "-p", POOL, "ls").decode().splitlines() if SHARD in name]
    bucket_id = json.loads(
        rgw.cluster.run("radosgw-admin", "-n", "client.rgw", "bucket", "stats", f"--bucket={rgw.bucket}")
    )["id"]
    path = tmp_path / "piece"
    for name in sorted(name for name in names if name.startswith(bucket_id) and "shadow" in name):
        rgw.cluster.run("rados", "-p", POOL, "get", name, str(path))
        if path.stat().st_size > MIB:
            return name, path
    raise AssertionError(f"no piece of {SHARD} in {names}")


def stage(rgw, start_stage, published, tmp_path, driver, *options):
    place = str(tmp_path / "cache")
    running = start_stage(
        rgw.environment, "run", published[0], "--cache-dir", place, "--s3-driver", driver, "--json", *options
    )
    return running.finish()


def wrong_files(published, tmp_path):
    """Files under final names that are not what was published."""
    local, found = published[1], list((tmp_path / "cache" / "datasets").rglob("train-*"))
    return [
        path.name
        for path in found
        if ".stage" not in path.parts and path.read_bytes() != (local / path.name).read_bytes()
    ]


def check_completes(rgw, start_stage, published, tmp_path, driver):
    assert wrong_files(published, tmp_path) == []
    done = stage(rgw, start_stage, published, tmp_path, driver)
    assert done.code == 0, done.stderr
    path = json.loads(done.stdout)["path"]
    for name in os.listdir(published[1]):
        if not name.startswith("."):
            with open(os.path.join(path, name), "rb") as file:
                assert file.read() == (published[1] / name).read_bytes()


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
def test_bytes_that_changed_at_rest_are_exit_65_and_never_committed(
    rgw, start_stage, published, piece, tmp_path, driver
):
    name, path = piece
    content = path.read_bytes()
    path.write_bytes(content[:1000] + bytes([content[1000] ^ 1]) + content[1001:])
    rgw.cluster.run("rados", "-p", POOL, "put", name, str(path))
    done = stage(rgw, start_stage, published, tmp_path, driver)
    assert done.code == 65, done.stderr
    assert f"{SHARD} block" in done.stderr
    path.write_bytes(content)
    rgw.cluster.run("rados", "-p", POOL, "put", name, str(path))
    check_completes(rgw, start_stage, published, tmp_path, driver)


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
def test_a_piece_that_is_lost_ends_the_run_in_time_and_names_the_shard(
    rgw, start_stage, published, piece, tmp_path, driver
):
    name, path = piece
    rgw.cluster.run("rados", "-p", POOL, "rm", name)
    done = stage(rgw, start_stage, published, tmp_path, driver, *IMPATIENT)
    # a range that begins before the lost piece is answered 200 and stalls, one that begins in it is answered 404
    assert done.code in {66, 69}, done.stderr
    assert SHARD in done.stderr
    rgw.cluster.run("rados", "-p", POOL, "put", name, str(path))
    check_completes(rgw, start_stage, published, tmp_path, driver)


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
def test_a_store_that_is_frozen_for_a_while_costs_repeats_only(rgw, start_stage, published, tmp_path, driver):
    osd = rgw.cluster.processes["osd"]
    options = ("--s3-driver", driver, "--stall-timeout", "1s", "--connections", "1")
    running = start_stage(rgw.environment, "run", published[0], "--cache-dir", str(tmp_path / "cache"), *options)
    osd.send_signal(signal.SIGSTOP)
    try:
        rgw.cluster.wait_for("a repeat", lambda: "trying again" in running.stderr)
    finally:
        osd.send_signal(signal.SIGCONT)
    done = running.finish()
    assert done.code == 0, done.stderr
    check_completes(rgw, start_stage, published, tmp_path, driver)
