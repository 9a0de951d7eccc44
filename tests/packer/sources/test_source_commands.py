"""Every kind of source as a user packs it."""

import json
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

JPG = b"\xff\xd8\xff\xe0"


@pytest.fixture
def sources(tmp_path):
    (tmp_path / "files").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"files/{name}.jpg").write_bytes(JPG + name.encode())
    (tmp_path / "list.csv").write_text("image,label\nfiles/a.jpg,1\nfiles/b.jpg,2\n")
    with zipfile.ZipFile(tmp_path / "files.zip", "w") as archive:
        archive.write(tmp_path / "files/a.jpg", "files/a.jpg")
    pq.write_table(pa.table({"id": ["a"], "image": [JPG], "label": [1]}), tmp_path / "rows.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "kind", "members"),
    [
        (["list.csv", "--column", "label=cls"], "table", {"files/a": {"jpg", "cls"}, "files/b": {"jpg", "cls"}}),
        (["files.zip"], "archive", {"files/a": {"jpg"}}),
        (["rows.parquet", "--key-column", "id"], "inline", {"a": {"jpg", "json"}}),
        (["files", "--exclude", "b.*"], "tree", {"a": {"jpg"}}),
        (["*.zip", "--class-from-dir"], "archive", {"files/a": {"jpg", "cls"}}),
    ],
)
@pytest.mark.parametrize("format_name", ["tar", "tfrecord"])
def test_source_is_told_by_its_name(sources, pack_here, read_dataset, arguments, kind, members, format_name):
    destination = str(sources / "out")
    source, *options = arguments
    command = ["build", str(sources / source), destination, "--format", format_name, *options, "--quiet"]
    done = pack_here(*command)
    assert done.returncode == 0, done.stderr
    dataset = read_dataset(destination)
    assert dataset.manifest.source["kind"] == kind
    assert {key: set(found) for key, found in dataset.samples("train").items()} == members
    assert pack_here("verify", destination, "--deep", "--quiet").returncode == 0
    assert "nothing to do" in pack_here(*command).stdout


def test_what_shapes_the_data_is_recorded(sources, pack_here, read_dataset):
    destination = str(sources / "out")
    assert pack_here("build", str(sources / "files"), destination, "--include", "a.*", "--quiet").returncode == 0
    assert read_dataset(destination).manifest.packer["options"]["include"] == ["a.*"]
    done = pack_here("build", str(sources / "files"), destination, "--quiet")
    assert done.returncode == 73
    assert 'option include: was ["a.*"], now null' in done.stderr


def test_tree_of_archives_is_packed_with_a_warning(sources, pack_here):
    (sources / "archives").mkdir()
    (sources / "files.zip").rename(sources / "archives" / "a.zip")
    done = pack_here("build", str(sources / "archives"), str(sources / "out"), "--dry-run")
    assert done.returncode == 0
    assert "--source-kind archive" in done.stderr
    done = pack_here("build", str(sources / "archives"), str(sources / "out"), "--dry-run", "--source-kind", "archive")
    assert "files/a: jpg" in done.stdout


def test_dry_run_says_what_was_left_out(sources, pack_here):
    done = pack_here("build", str(sources / "files"), str(sources / "out"), "--exclude", "b.jpg", "--dry-run", "--json")
    found = json.loads(done.stdout)
    assert found["num_files"] == 1
    assert found["skipped"] == {"excluded": {"count": 1, "names": ["b.jpg"]}}


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["files", "--column", "label"], 2, "is not of the form COLUMN=EXTENSION"),
        (["files", "--include", "[z-a]"], 2, "is no pattern"),
        (["files", "--key-column", "id"], 66, "--key-column mean"),
        (["s3://bucket/data", "--dry-run"], 66, "lies inside the source s3://bucket/data"),
        (["*.nothing"], 66, "no file matches"),
        (["*"], 66, "files of several kinds"),
        (["files", "--source-kind", "archive"], 66, "holds no file with one of the suffixes"),
    ],
)
def test_mistake_is_said_without_a_traceback(sources, pack_here, arguments, code, part):
    source, *options = arguments
    is_url = source.startswith("s3:")
    paths = (source, f"{source}/packed") if is_url else (str(sources / source), str(sources / "out"))
    done = pack_here("build", *paths, *options)
    assert done.returncode == code
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_packing_a_tree_loads_no_driver():
    code = (
        "import sys, packer.cli, packer.preview, packer.sources.choose;"
        "print(sorted({'pyarrow', 'fsspec', 's3fs'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
