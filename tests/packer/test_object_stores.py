"""Datasets in object stores: on fsspec's memory store in this process, and on an S3 server (moto) as a user has one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid

import pytest

from packer.stores.objects import MAX_PARTS, PART_BYTES, ObjectStore
from packer.stores.open import open_store
from packer.stores.uploads import list_uploads
from shards.errors import RemoteError, SizeMismatchError

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

START_SECONDS = 30


@pytest.fixture
def memory_url():
    return f"memory://{uuid.uuid4().hex}/set"


def names_in(client, bucket):
    return sorted(found["Key"] for found in client.list_objects_v2(Bucket=bucket).get("Contents", ()))


# the store


def test_nothing_is_seen_before_commit(memory_url):
    store = ObjectStore(memory_url)
    with store.create("a.tar", 10) as file:
        file.write(b"01234")
        assert store.size_of("a.tar") is None
        file.write(bytearray(b"56789"))
        assert store.list_names() == []
        file.commit(10)
    assert store.read_file("a.tar") == b"0123456789"
    assert store.list_names() == ["a.tar"]


def test_abandoned_and_wrong_uploads_leave_nothing(memory_url):
    store = ObjectStore(memory_url)
    with store.create("a.tar", 10) as file:
        file.write(b"01234")
    with store.create("a.tar", 10) as file:
        file.write(b"01234")
        with pytest.raises(SizeMismatchError):
            file.commit(10)
    assert store.size_of("a.tar") is None
    assert store.list_all_names() == []


def test_missing_things_are_file_not_found(memory_url):
    store = ObjectStore(memory_url)
    assert store.size_of("x") is None
    assert store.version_of("x") is None
    assert store.list_names() == []
    assert store.list_leftovers() == []
    store.remove("x")
    for read in (store.read_file, store.open_index, store.open_reader):
        with pytest.raises(FileNotFoundError) as caught:
            read("x")
        assert str(caught.value.filename).endswith("/set/x")


def test_ranges_are_the_same_with_and_without_read_ahead(memory_url):
    store = ObjectStore(memory_url)
    data = bytes(range(256)) * 40
    store.put("a", data)
    for is_sequential in (True, False):
        with store.open_reader("a", is_sequential=is_sequential) as reader:
            for offset, count in [(0, 10), (5, 20), (10_000, 1000), (10_240, 1), (3, 0), (0, 20_000), (100, 7)]:
                assert reader.read_at(count, offset) == data[offset : offset + count]


def test_hidden_objects_and_neighbours_are_not_listed(memory_url):
    store = ObjectStore(memory_url)
    for name in ("b.tar", "a.tar", ".pack/plan.json", "below/c.tar"):
        store.put(name, b"1")
    ObjectStore(f"{memory_url}-extra").put("d.tar", b"1")
    assert store.list_names() == ["a.tar", "b.tar", "below/c.tar"]
    assert ".pack/plan.json" in store.list_all_names()


def test_secrets_of_a_url_are_not_shown():
    store = ObjectStore("memory://user:password@host/set")
    assert "password" not in store.location


def test_unknown_scheme_and_missing_driver_are_explained():
    with pytest.raises(RemoteError, match="Protocol not known"):
        open_store("nonsense://x/y")


def test_parts_grow_with_shards_that_need_more_than_s3_allows(memory_url):
    store = ObjectStore(memory_url)
    with store.create("big", PART_BYTES * MAX_PARTS * 3) as file:
        assert file._part_bytes * MAX_PARTS >= PART_BYTES * MAX_PARTS * 3


# pack, on S3


@pytest.fixture
def small(make_tree, many_files):
    return make_tree(many_files)


def run(pack, environment, *args):
    return pack(*args, "--quiet", env=environment)


def test_dataset_in_s3_has_the_id_of_the_one_in_a_directory(small, tmp_path, pack, pack_here, s3, s3_environment):
    client, bucket = s3
    here, there = str(tmp_path / "out"), f"s3://{bucket}/some/set"
    local = pack_here("build", small, here, "--shard-size", "50KB", "--json", "--quiet")
    remote = run(pack, s3_environment, "build", small, there, "--shard-size", "50KB", "--json", "--jobs", "2")
    assert remote.returncode == 0, remote.stderr
    assert json.loads(remote.stdout)["dataset_id"] == json.loads(local.stdout)["dataset_id"]
    for name in os.listdir(here):
        if name != ".pack":
            body = client.get_object(Bucket=bucket, Key=f"some/set/{name}")["Body"].read()
            assert body == (tmp_path / "out" / name).read_bytes(), name
    done = run(pack, s3_environment, "verify", there, "--deep", "--against", small)
    assert done.returncode == 0, done.stderr
    target = tmp_path / "back"
    assert run(pack, s3_environment, "extract", there, str(target), "class1/img0001").returncode == 0
    assert (target / "class1/img0001.json").read_bytes() == b'{"number": 1}'
    assert pack("cat", there, "class1/img0001.json", env=s3_environment).stdout == '{"number": 1}'
    assert len(pack("ls", there, env=s3_environment).stdout.splitlines()) == 120
    again = run(pack, s3_environment, "build", small, there, "--shard-size", "50KB", "--json")
    assert json.loads(again.stdout)["is_new"] is False
    other = run(pack, s3_environment, "build", small, there, "--shard-size", "60KB")
    assert other.returncode == 73
    assert "shard_size_bytes: was 50000, now 60000" in other.stderr
    anew = run(pack, s3_environment, "build", small, there, "--shard-size", "1MB", "--overwrite", "--json")
    assert json.loads(anew.stdout)["num_shards"] == 1
    tars = [name for name in names_in(client, bucket) if name.endswith(".tar")]
    assert tars == ["some/set/train-000000.tar"]


def test_resume_believes_receipts_and_reads_what_has_none(small, pack, s3, s3_environment):
    client, bucket = s3
    url = f"s3://{bucket}/set"
    command = ("build", small, url, "--shard-size", "50KB", "--json")
    first = json.loads(run(pack, s3_environment, *command).stdout)
    shards = [name for name in names_in(client, bucket) if name.endswith(".tar")]
    assert len(shards) >= 4
    client.delete_object(Bucket=bucket, Key="set/manifest.json")
    client.delete_object(Bucket=bucket, Key="set/.pack/receipts/train-000000.tar.json")
    client.put_object(
        Bucket=bucket, Key=shards[1], Body=bytes(client.head_object(Bucket=bucket, Key=shards[1])["ContentLength"])
    )
    client.delete_object(Bucket=bucket, Key=shards[2])
    again = run(pack, s3_environment, *command)
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout)
    assert result["dataset_id"] == first["dataset_id"]
    assert result["num_kept"] == len(shards) - 2
    assert run(pack, s3_environment, "verify", url, "--deep").returncode == 0


def test_killed_upload_is_aborted_by_the_next_run_and_nothing_else(make_tree, pack, s3, s3_environment, tmp_path):
    client, bucket = s3
    source = make_tree({f"{number:02d}.bin": os.urandom(1_000_000) for number in range(36)})
    url = f"s3://{bucket}/set"
    command = ("build", source, url, "--shard-size", "37MB", "--jobs", "1")
    process = subprocess.Popen(
        [os.path.join(os.path.dirname(sys.executable), "pack"), *command, "--quiet"],
        env={**os.environ, **s3_environment},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + START_SECONDS
    while not any(
        client.list_parts(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]).get("Parts")
        for upload in client.list_multipart_uploads(Bucket=bucket).get("Uploads", ())
    ):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    uploads = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert uploads
    assert not any(name.endswith(".tar") for name in names_in(client, bucket))
    foreign = client.create_multipart_upload(Bucket=bucket, Key="set/something-of-others.zip")["UploadId"]
    neighbour = client.create_multipart_upload(Bucket=bucket, Key="set-extra/train-000000.tar")["UploadId"]
    done = run(pack, s3_environment, *command, "--json")
    assert done.returncode == 0, done.stderr
    left = {upload["UploadId"] for upload in client.list_multipart_uploads(Bucket=bucket).get("Uploads", ())}
    assert left == {foreign, neighbour}
    here = run(pack, {}, "build", source, str(tmp_path / "out"), "--shard-size", "37MB", "--json")
    assert json.loads(here.stdout)["dataset_id"] == json.loads(done.stdout)["dataset_id"]


def test_stopped_run_aborts_its_own_upload(make_tree, s3, s3_environment):
    client, bucket = s3
    source = make_tree({f"{number:02d}.bin": os.urandom(1_000_000) for number in range(36)})
    process = subprocess.Popen(
        [os.path.join(os.path.dirname(sys.executable), "pack"), "build", source, f"s3://{bucket}/set", "--quiet"],
        env={**os.environ, **s3_environment},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + START_SECONDS
    while not client.list_multipart_uploads(Bucket=bucket).get("Uploads"):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
    assert "set/manifest.json" not in names_in(client, bucket)


@pytest.mark.parametrize(
    ("url", "code", "message"),
    [
        ("s3://no-such-bucket-here/set", 66, "does the bucket exist"),
        ("nonsense://bucket/set", 69, "Protocol not known"),
    ],
)
def test_faults_of_the_destination_are_explained(small, pack, s3_environment, url, code, message):
    done = run(pack, s3_environment, "build", small, url)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "very-secret" not in done.stderr


def test_endpoint_that_is_away_is_worth_repeating(small, pack, s3_environment):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = {**s3_environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{closed.getsockname()[1]}"}
        done = run(pack, {**away, "AWS_MAX_ATTEMPTS": "1"}, "verify", "s3://bucket/set")
    assert done.returncode == 69, done.stderr
    assert "Traceback" not in done.stderr


def test_objects_of_others_are_not_packed_over(small, pack, s3, s3_environment):
    client, bucket = s3
    client.put_object(Bucket=bucket, Key="set/notes.txt", Body=b"mine")
    for options in ((), ("--overwrite",)):
        done = run(pack, s3_environment, "build", small, f"s3://{bucket}/set", *options)
        assert done.returncode == 73
        assert "notes.txt" in done.stderr
    assert names_in(client, bucket) == ["set/notes.txt"]


def test_shards_in_s3_are_adopted_in_place(small, tmp_path, pack, pack_here, s3, s3_environment):
    client, bucket = s3
    assert pack_here("build", small, str(tmp_path / "out"), "--shard-size", "100KB", "--quiet").returncode == 0
    for name in os.listdir(tmp_path / "out"):
        if name.endswith(".tar"):
            client.upload_file(str(tmp_path / "out" / name), bucket, f"theirs/{name}")
    done = run(pack, s3_environment, "adopt", f"s3://{bucket}/theirs", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert run(pack, s3_environment, "verify", f"s3://{bucket}/theirs", "--deep").returncode == 0


def test_uploads_are_listed_page_by_page(s3):
    client, bucket = s3
    for number in range(3):
        client.create_multipart_upload(Bucket=bucket, Key=f"set/train-{number:06d}.tar")

    class OnePerPage:
        """The driver, on a server that gives one upload a page."""

        protocol = ("s3",)

        def split_path(self, path):
            bucket, _, key = path.partition("/")
            return bucket, key, None

        def call_s3(self, method, **arguments):
            return getattr(client, method)(**arguments, MaxUploads=1)

    found = [upload.name for upload in list_uploads(OnePerPage(), f"{bucket}/set", "s3://x")]
    assert found == [f"train-{number:06d}.tar" for number in range(3)]


def test_transformed_samples_are_the_same_in_an_object_store(s3, s3_environment, make_tree, pack, tmp_path):
    """Sizes are not known before, so the upload begins without them; a shard may even come to nothing."""
    client, bucket = s3
    (tmp_path / "halve.py").write_text(
        "def halve(sample):\n"
        "    if sample['__key__'] < '10':\n        return None\n"
        "    return {name: value if name == '__key__' else value[::2] for name, value in sample.items()}\n"
    )
    source = make_tree({f"{number:02d}.bin": bytes([number]) * 1000 for number in range(30)})
    paths = ":".join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    environment = {**s3_environment, "PYTHONPATH": paths}
    args = ("--transform", "halve:halve", "--shard-size", "12KB", "--no-shuffle", "--jobs", "1", "--json", "--quiet")
    reports = []
    for destination in (str(tmp_path / "out"), f"s3://{bucket}/set"):
        done = pack("build", source, destination, *args, env=environment)
        assert done.returncode == 0, done.stderr
        reports.append(json.loads(done.stdout))
    assert reports[0]["dataset_id"] == reports[1]["dataset_id"]
    assert reports[1]["num_samples"] == 20
    names = {name.removeprefix("set/") for name in names_in(client, bucket) if "/.pack/" not in name}
    assert names == {name for name in os.listdir(tmp_path / "out") if name != ".pack"}
    again = pack("build", source, f"s3://{bucket}/set", *args, env=environment)
    assert json.loads(again.stdout)["is_new"] is False
