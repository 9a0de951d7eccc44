"""Packing on a Ray cluster of two nodes: the bytes, errors and stops of the local engine, whatever dies on the way."""

import contextlib
import json
import os
import re
import shutil
import signal
import uuid
from pathlib import Path

import pytest

import packer
import shardferry
import shards
from tests.ray.cluster import contents

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    # Ray leaves sockets and processes to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]

SMALL = ("--shard-size", "100000")


def partials(directory):
    return [name for name in os.listdir(directory) if name.endswith(".partial")]


@pytest.mark.parametrize("options", [(), ("--format", "tfrecord"), ("--jobs", "1", "--read-threads", "2")])
def test_bytes_are_those_of_the_local_engine(start, source, expected, tmp_path, options):
    code, stdout, stderr = start(source, tmp_path / "out", *SMALL, *options, "--json").finish()
    assert code == 0, stderr
    assert stderr == ""  # neither Ray's log nor its advice
    local = expected(*SMALL, *options[:2] if "--format" in options else ())
    assert contents(tmp_path / "out") == local
    assert len(local) > 10
    assert json.loads(stdout)["num_shards"] == len(local) // 2


def test_both_nodes_pack_and_few_shards_are_handed_over_at_once(start, nodes, source, slow, expected, tmp_path):
    running = start(source, tmp_path / "out", *SMALL, *slow)
    seen = set()
    most = 0
    while running.process.poll() is None:
        busy = nodes.busy_workers_by_node()
        seen.update(busy)
        most = max(most, sum(map(len, busy.values())))
    code, _, stderr = running.finish()
    assert code == 0, stderr
    assert len(seen) == 2
    assert most == 2  # one processor each
    made = contents(tmp_path / "out")
    del made["manifest.json"]  # names the transform
    assert made == {name: data for name, data in expected(*SMALL).items() if name != "manifest.json"}


def test_transform_that_lies_here_only_is_sent_along(start, nodes, source, tmp_path):
    """The workers' own search path does not have the driver's directory."""
    (tmp_path / "only_here.py").write_text(
        "import os\n\ndef mark(sample):\n    assert os.getcwd() != os.environ.get('DRIVER')\n"
        "    return {**sample, 'place': 'x'}\n"
    )
    code, _, stderr = start(source, tmp_path / "out", "--transform", "only_here:mark").finish()
    assert code == 0, stderr
    code, _, stderr = start(source, tmp_path / "local", "--transform", "only_here:mark", engine="local").finish()
    assert code == 0, stderr
    assert contents(tmp_path / "out") == contents(tmp_path / "local")


def test_killed_workers_cost_only_their_shards(start, nodes, source, slow, expected, tmp_path):
    running = start(source, tmp_path / "out", *SMALL, *slow)
    running.wait_until(lambda: running.num_finished() >= 1)
    for pid in running.wait_until(nodes.busy_workers):
        os.kill(pid, signal.SIGKILL)
    code, _, stderr = running.finish()
    assert code == 0, stderr
    assert {**contents(tmp_path / "out"), "manifest.json": b""} == {**expected(*SMALL), "manifest.json": b""}
    assert not partials(tmp_path / "out")


def test_lost_node_costs_only_its_shards(start, nodes, source, slow, expected, tmp_path):
    node = nodes.add_node()
    running = start(source, tmp_path / "out", *SMALL, *slow)
    (raylet,) = node.all_processes["raylet"]
    running.wait_until(lambda: nodes.busy_workers_by_node().get(raylet.process.pid))
    nodes.kill_node(node)
    code, _, stderr = running.finish()
    assert code == 0, stderr
    assert {**contents(tmp_path / "out"), "manifest.json": b""} == {**expected(*SMALL), "manifest.json": b""}


def test_killed_driver_leaves_whole_shards_and_the_next_run_goes_on(start, nodes, source, slow, tmp_path):
    out = tmp_path / "out"
    running = start(source, out, *SMALL, *slow)
    running.wait_until(lambda: running.num_finished() >= 3)
    running.process.kill()
    running.finish()
    assert not (out / "manifest.json").exists()
    code, stdout, stderr = start(source, out, *SMALL, *slow, "--json").finish()
    assert code == 0, stderr
    assert json.loads(stdout)["num_kept"] >= 3
    code, _, stderr = start(source, tmp_path / "whole", *SMALL, *slow, engine="local").finish()
    assert code == 0, stderr
    assert contents(out) == contents(tmp_path / "whole")
    assert not partials(out)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_all_nodes_cleanly(start, nodes, source, slow, tmp_path, number):
    out = tmp_path / "out"
    running = start(source, out, *SMALL, *slow)
    running.wait_until(lambda: running.num_finished() >= 1 and len(nodes.busy_workers()) == 2)
    running.process.send_signal(number)
    code, _, stderr = running.finish()
    assert code == 128 + number
    assert f"stopped by {number.name}; finished shards are kept" in stderr
    assert "Traceback" not in stderr
    assert not partials(out)
    assert not nodes.busy_workers()
    assert not (out / "manifest.json").exists()


def test_time_budget_stops_cleanly_and_another_run_finishes(start, nodes, source, slow, expected, tmp_path):
    out = tmp_path / "out"
    # one after the other, the samples alone take 6 s
    code, _, stderr = start(source, out, *SMALL, *slow, "--time-budget", "5s", "--jobs", "1").finish()
    assert code == 75, stderr
    assert "time budget is spent" in stderr
    assert not partials(out)
    assert not nodes.busy_workers()
    code, stdout, stderr = start(source, out, *SMALL, *slow, "--json").finish()
    assert code == 0, stderr
    assert json.loads(stdout)["num_shards"] == len(expected(*SMALL)) // 2


def test_errors_are_those_of_the_local_engine(start, source, tmp_path):
    (tmp_path / "failing.py").write_text(
        "def fail(sample):\n    if sample['__key__'].endswith('0300'):\n        raise ValueError('no good')\n"
        "    return sample\n"
    )
    codes, messages = [], []
    for engine in ("local", "ray"):
        options = ("--transform", "failing:fail", "--jobs", "1")
        code, _, stderr = start(source, tmp_path / engine, *SMALL, *options, engine=engine).finish()
        codes.append(code)
        messages.append(stderr.partition(" at /")[0])  # where the module lies, and on which node
    assert codes == [65, 65]
    assert messages[0] == messages[1]
    assert "transform failing:fail of sample c6/0300: ValueError: no good" in messages[0]


def test_changed_source_is_noticed_and_names_the_node(start, nodes, source, slow, tmp_path):
    mine = tmp_path / "mine"
    shutil.copytree(source, mine)
    running = start(mine, tmp_path / "out", *SMALL, *slow)
    running.wait_until(lambda: running.num_finished() >= 1)
    for path in mine.rglob("*.a"):
        path.write_bytes(b"changed")
    code, _, stderr = running.finish()
    assert code == 65
    assert re.search(r"source file \S+ changed while packing: .* on node \S+ \(", stderr), stderr
    assert not nodes.busy_workers()


@pytest.mark.parametrize("is_disturbed", [False, True])
def test_object_store_gets_the_same_bytes(start, nodes, s3_environment, source, expected, is_disturbed):
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
    try:
        running = start(source, f"s3://{bucket}/set", *SMALL)
        if is_disturbed:
            running.wait_until(lambda: client.list_multipart_uploads(Bucket=bucket).get("Uploads"))
            for pid in running.wait_until(nodes.busy_workers):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        code, _, stderr = running.finish()
        assert code == 0, stderr
        found = {
            item["Key"].removeprefix("set/"): client.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
            for item in client.list_objects_v2(Bucket=bucket)["Contents"]
            if "/.pack/" not in item["Key"]
        }
        assert found == expected(*SMALL)
        assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
    finally:
        client.close()


@pytest.mark.parametrize(
    ("hidden", "code", "message"),
    [
        ("place", 66, r"node \S+ \(.*\) does not see the source \S+/place/mine: No such file"),
        ("place/mine", 65, r"found no such file on node \S+ \(.*\(if other nodes see it as planned"),
        ("out", 73, r"node \S+ \(.*\) does not see the destination \S+/out"),
    ],
)
def test_node_that_does_not_see_the_files_is_named(start, odd_node, source, slow, tmp_path, hidden, code, message):
    mine, out = tmp_path / "place/mine", tmp_path / "out"
    shutil.copytree(source, mine)
    odd_node(hidden=tmp_path / hidden)
    found, _, stderr = start(mine, out, *SMALL, *slow).finish()
    assert found == code, stderr
    assert re.search(message, stderr), stderr
    assert "use a file system that all nodes share (NFS, CephFS) or an object store" in stderr
    assert not partials(out)


@pytest.mark.parametrize("has_any", [True, False])
def test_node_with_other_code_or_none_is_named(start, odd_node, source, slow, tmp_path, has_any):
    other = tmp_path / "other"
    if has_any:
        for package in (packer, shards, shardferry):
            shutil.copytree(Path(package.__file__).parent, other / package.__name__)
        with (other / "packer/cut.py").open("a") as file:
            file.write("# edited\n")
    else:
        (other / "packer").mkdir(parents=True)
        (other / "packer/__init__.py").touch()
    odd_node(python_path=other)
    code, _, stderr = start(source, tmp_path / "out", *SMALL, *slow).finish()
    assert code == 78, stderr
    assert re.search(r"node \S+ \(", stderr), stderr
    assert ("has shardferry" if has_any else "cannot import what packs a shard") in stderr
    assert f"install shardferry {shardferry.__version__}" in stderr
    assert not partials(tmp_path / "out")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nothing", "ray://127.0.0.1:10001", "127.0.0.1:99999"])
def test_cluster_that_cannot_be_joined_is_explained(pack_on, source, tmp_path, address):
    done = pack_on(address, source, tmp_path / "out")
    assert done.returncode == 69
    assert address in done.stderr
    assert "--ray-address" in done.stderr
    assert len(done.stderr.splitlines()) == 1
