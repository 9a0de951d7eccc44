"""kill -9 at random moments, for every kind of source and destination: ``--kills N`` says how often for each.

``make test-slow ARGS="-k kill_rounds --kills 20"`` kills 240 builds.
"""

import csv
import os
import random
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.packer.killing import Bucket, Build, Directory, kill_again_and_again

pytestmark = pytest.mark.slow

NUM_SAMPLES = 400
SHARD = ("--shard-size", "25000")
TRANSFORM = """
def drop_some(sample):
    if int(sample["__key__"].rpartition("/")[2]) % 3 == 0:
        return None
    return {name: value if name == "__key__" else value * 2 for name, value in sample.items()}
"""


def contents():
    """Two members a sample, 0 to 2 kB each: about 30 shards."""
    dice = random.Random(5)
    return {
        f"c{number % 7}/{number:04d}.{extension}": dice.randbytes(number * 5 % 2000)
        for number in range(NUM_SAMPLES)
        for extension in ("bin", "txt")
    }


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    for name, data in contents().items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture
def num_kills(request):
    return request.config.getoption("--kills")


def check(build, place, num_kills, seed, capsys):
    moments = kill_again_and_again(build, place, num_kills, random.Random(seed))
    with capsys.disabled():
        print(f" {dict(moments)} ", end="")
    assert num_kills < 8 or moments["between"], "the kills came too early or too late to mean anything"


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (1, ("--jobs", "1")),
        (2, ("--jobs", "2")),
        (3, ("--jobs", "2", "--format", "tfrecord", "--class-from-dir", "--split", "a=0.5,b=0.5")),
        (4, ("--jobs", "1", "--read-threads", "4", "--transform", "drop_some:drop_some")),
    ],
)
def test_kill_rounds_of_trees(tree, tmp_path, num_kills, seed, options, capsys):
    (tmp_path / "drop_some.py").write_text(TRANSFORM)
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(":")]
    build = Build(str(tree), (*SHARD, *options), {"PYTHONPATH": ":".join(filter(None, paths))})
    check(build, Directory(tmp_path / "out"), num_kills, seed, capsys)


def test_kill_rounds_of_adding(tree, tmp_path, num_kills, capsys):
    base = Directory(tmp_path / "base")
    added = tmp_path / "source"
    added.mkdir()
    for directory in tree.iterdir():
        (added / directory.name).symlink_to(directory)
    before = Build(str(added), (*SHARD, "--jobs", "1")).finish(base)
    (added / "new").mkdir()
    for number in range(200):
        (added / f"new/{number}.bin").write_bytes(bytes([number]) * 1000)
    build = Build(str(added), (*SHARD, "--jobs", "1", "--append-to", base.location))
    check(build, Directory(tmp_path / "out"), num_kills, 11, capsys)
    assert {name: base.read(name) for name in base.names()} == before


def make_container(kind, tree: Path, path: Path):
    files = contents()
    if kind == "table":
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["path", "number"])
            writer.writerows([name, number] for number, name in enumerate(files) if name.endswith("bin"))
        return ("--root", str(tree))
    if kind == "parquet":
        rows = [(name.removesuffix(".bin"), data) for name, data in files.items() if name.endswith("bin")]
        table = pa.table({"key": [key for key, _ in rows], "data": [data for _, data in rows]})
        pq.write_table(table, path, row_group_size=50)
        return ("--key-column", "key", "--column", "data=bin")
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in files:
                archive.write(tree / name, name)
        return ()
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name in files:
            archive.add(tree / name, name)
    return ()


@pytest.mark.parametrize(
    ("seed", "kind", "name"),
    [
        (21, "table", "list.csv"),
        (22, "parquet", "rows.parquet"),
        (23, "tar", "all.tar"),
        (24, "compressed tar", "all.tar.gz"),
        (25, "zip", "all.zip"),
    ],
)
def test_kill_rounds_of_other_sources(tree, tmp_path, num_kills, seed, kind, name, capsys):
    options = make_container(kind, tree, tmp_path / name)
    build = Build(str(tmp_path / name), (*SHARD, "--jobs", "1", *options))
    check(build, Directory(tmp_path / "out"), num_kills, seed, capsys)


def test_kill_rounds_from_an_object_store(s3, s3_environment, tmp_path, num_kills, capsys):
    client, bucket = s3
    for name, data in list(contents().items())[:200]:
        client.put_object(Bucket=bucket, Key=f"data/{name}", Body=data)
    build = Build(f"s3://{bucket}/data", ("--shard-size", "15000", "--jobs", "1"), s3_environment)
    check(build, Directory(tmp_path / "out"), num_kills, 31, capsys)


def test_kill_rounds_to_an_object_store(s3, s3_environment, tree, num_kills, capsys):
    client, bucket = s3
    build = Build(str(tree), ("--shard-size", "60000", "--jobs", "2"), s3_environment)
    check(build, Bucket(client, bucket), num_kills, 32, capsys)
