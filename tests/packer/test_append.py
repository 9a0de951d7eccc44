import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from packer.share import share_shards
from packer.stores.objects import ObjectStore
from shards.errors import DigestMismatchError
from shards.manifest import Manifest


def build(pack_here, source, destination, *options):
    done = pack_here("build", str(source), str(destination), "--shard-size", "50KB", "--quiet", "--json", *options)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def read_manifest(path):
    return Manifest.from_json(Path(path, "manifest.json").read_bytes(), name="manifest.json")


def add(source, files):
    for name, data in files.items():
        path = Path(source, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


NEW = {f"class{number % 4}/new{number:03d}.{ext}": b"%d" % number for number in range(40) for ext in ("jpg", "json")}


@pytest.fixture
def source(make_tree, many_files):
    return make_tree(many_files)


@pytest.mark.parametrize(
    "options", [(), ("--class-from-dir",), ("--split", "train=0.8,val=0.2"), ("--format", "tfrecord")]
)
def test_new_samples_become_new_shards_and_old_ones_are_shared(source, tmp_path, pack_here, many_files, options):
    old, new = tmp_path / "old", tmp_path / "new"
    assert build(pack_here, source, old, *options)[0] == 0
    before = {name: Path(old, name).read_bytes() for name in os.listdir(old) if name != ".pack"}
    add(source, NEW)
    code, result, error = build(pack_here, source, new, *options, "--append-to", str(old))
    assert code == 0, error
    assert result["num_samples"] == 120 + 40
    first, second = read_manifest(old), read_manifest(new)
    assert result["num_files"] == second.source["num_files"] == len(many_files) + len(NEW)
    assert second.source["size_bytes"] == sum(map(len, [*many_files.values(), *NEW.values()]))
    assert first.dataset_id != second.dataset_id == result["dataset_id"]
    for split in first.splits:
        assert second.split(split.name).shards[: len(split.shards)] == split.shards
        for shard in split.shards:
            assert os.path.samefile(old / shard.name, new / shard.name)
            assert os.path.samefile(old / shard.index_name, new / shard.index_name)
    assert {name: Path(old, name).read_bytes() for name in os.listdir(old) if name != ".pack"} == before
    done = pack_here("verify", str(new), "--deep", "--against", source, "--quiet", "--json")
    assert done.returncode == 0, done.stderr
    assert second.classes[: len(first.classes)] == first.classes
    again = build(pack_here, source, new, *options, "--append-to", str(old))
    assert again[1]["is_new"] is False


def test_datasets_can_be_added_to_again_and_again(source, tmp_path, pack_here):
    assert build(pack_here, source, tmp_path / "0")[0] == 0
    for number in range(1, 4):
        add(source, {f"more{number}/{name:02d}.txt": b"x" * number for name in range(5)})
        code, result, error = build(
            pack_here, source, tmp_path / str(number), "--append-to", str(tmp_path / str(number - 1))
        )
        assert code == 0, error
        assert result["num_samples"] == 120 + 5 * number
    names = [shard.name for _, shard in read_manifest(tmp_path / "3").shards()]
    assert names == [f"train-{number:06d}.tar" for number in range(len(names))]
    assert pack_here("verify", str(tmp_path / "3"), "--against", source, "--quiet").returncode == 0


def test_nothing_new_gives_the_same_dataset(source, tmp_path, pack_here):
    first = build(pack_here, source, tmp_path / "old")[1]
    code, second, error = build(pack_here, source, tmp_path / "new", "--append-to", str(tmp_path / "old"))
    assert code == 0, error
    assert second["dataset_id"] == first["dataset_id"]
    assert pack_here("verify", str(tmp_path / "new"), "--quiet").returncode == 0


def test_changed_and_removed_files_are_listed_and_nothing_is_written(source, tmp_path, pack_here):
    assert build(pack_here, source, tmp_path / "old")[0] == 0
    Path(source, "class1/img0001.jpg").write_bytes(b"longer or shorter")
    same_size = Path(source, "class1/img0004.json")
    same_size.write_bytes(same_size.read_bytes()[::-1])
    os.utime(same_size, ns=(1, 1))
    Path(source, "class1/img0007.json").unlink()
    for name in ("class1/img0010.json", "class1/img0010.jpg"):
        Path(source, name).unlink()
    add(source, {"class1/img0013.png": b"1", "new.txt": b"2"})
    code, _, error = build(pack_here, source, tmp_path / "new", "--append-to", str(tmp_path / "old"))
    assert code == 66
    for name in ("img0001", "img0004.json: was modified", "img0007", "img0010: was removed", "img0013"):
        assert name in error, name
    assert not (tmp_path / "new").exists()


def test_other_options_are_refused_with_the_differences(source, tmp_path, pack_here):
    assert build(pack_here, source, tmp_path / "old")[0] == 0
    code, _, error = build(
        pack_here, source, tmp_path / "new", "--append-to", str(tmp_path / "old"), "--class-from-dir"
    )
    assert code == 73
    assert "option class_from_dir: False there, True here" in error


def test_dataset_is_never_added_to_in_place(source, tmp_path, pack_here):
    old = tmp_path / "old"
    assert build(pack_here, source, old)[0] == 0
    (tmp_path / "alias").symlink_to(old)
    for destination in (old, tmp_path / "alias", f"file://{old}"):
        code, _, error = build(pack_here, source, destination, "--append-to", str(old))
        assert code == 73, destination
        assert "in place" in error


def test_stopped_append_is_resumed_or_replaced(source, tmp_path, pack_here):
    old, new = tmp_path / "old", tmp_path / "new"
    assert build(pack_here, source, old)[0] == 0
    add(source, NEW)
    whole = build(pack_here, source, new, "--append-to", str(old))[1]
    (new / "manifest.json").unlink()
    shared = read_manifest(old).splits[0].shards[0]
    (new / shared.name).unlink()
    [*own] = sorted({name for name in os.listdir(new) if name.endswith(".tar")} - set(os.listdir(old)))
    (new / own[0]).unlink()
    resumed = build(pack_here, source, new, "--append-to", str(old))
    assert resumed[0] == 0, resumed[2]
    assert resumed[1]["dataset_id"] == whole["dataset_id"]
    (new / "manifest.json").unlink()
    replaced = build(pack_here, source, new, "--overwrite")  # the links of a stopped append are ours to remove
    assert replaced[0] == 0, replaced[2]
    assert pack_here("verify", str(old), "--quiet").returncode == 0


def test_shards_are_copied_and_checked_where_links_cannot_be(source, tmp_path, pack_here):
    old = tmp_path / "old"
    assert build(pack_here, source, old)[0] == 0
    manifest = read_manifest(old)
    url = f"memory://{tmp_path.name}/copy"
    copied = share_shards(str(old), url, manifest, lambda: None)
    assert copied > manifest.size_bytes
    assert share_shards(str(old), url, manifest, lambda: None) == 0
    store = ObjectStore(url)
    assert {name: store.read_file(name) for name in store.list_names()} == {
        name: Path(old, name).read_bytes() for name in os.listdir(old) if name not in {".pack", "manifest.json"}
    }
    damaged = tmp_path / "damaged"
    shutil.copytree(old, damaged)
    path = damaged / manifest.splits[0].shards[0].name
    path.chmod(0o644)
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DigestMismatchError):
        share_shards(str(damaged), f"{url}2", manifest, lambda: None)
    assert path.name not in ObjectStore(f"{url}2").list_names()


def write_csv(where, names):
    lines = [f"{name}.jpg,{number}" for number, name in enumerate(names)]
    (where / "table.csv").write_text("\n".join(["path,cls", *lines]) + "\n")
    for name in names:
        path = where / f"{name}.jpg"
        if not path.exists():
            path.write_bytes(name.encode() * 50)
    return where / "table.csv"


def write_parquet(where, names):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for start in range(0, len(names), 10):
        some = names[start : start + 10]
        path = where / f"part-{start:04d}.parquet"
        if not path.exists():
            pq.write_table(pa.table({"id": some, "jpg": [name.encode() * 50 for name in some]}), path)
    return where


def write_tars(where, names):
    for start in range(0, len(names), 10):
        path = where / f"part-{start:04d}.tar"
        if not path.exists():
            with tarfile.open(path, "w") as archive:
                for name in names[start : start + 10]:
                    info = tarfile.TarInfo(f"{name}.jpg")
                    info.size = len(name) * 50
                    archive.addfile(info, io.BytesIO(name.encode() * 50))
    return where


@pytest.mark.parametrize(
    ("write", "options"),
    [
        (write_csv, ()),
        (write_parquet, ("--source-kind", "inline", "--key-column", "id", "--column", "jpg=jpg")),
        (write_tars, ("--source-kind", "archive")),
    ],
)
def test_every_kind_of_source_can_grow(tmp_path, pack_here, write, options):
    where = tmp_path / "source"
    where.mkdir()
    names = [f"k{number:03d}" for number in range(60)]
    code, result, error = build(pack_here, write(where, names[:40]), tmp_path / "old", *options)
    assert code == 0, error
    source = write(where, names)
    code, result, error = build(pack_here, source, tmp_path / "new", *options, "--append-to", str(tmp_path / "old"))
    assert code == 0, error
    assert result["num_samples"] == 60
    old, new = read_manifest(tmp_path / "old"), read_manifest(tmp_path / "new")
    assert new.split("train").shards[: len(old.split("train").shards)] == old.split("train").shards
    done = pack_here("verify", str(tmp_path / "new"), "--deep", "--quiet")
    assert done.returncode == 0, done.stderr
    listed = pack_here("ls", str(tmp_path / "new"))
    assert all(name in listed.stdout for name in names)


def test_objects_that_were_added_are_packed_alone(tmp_path, pack, s3, s3_environment):
    client, bucket = s3

    def put(numbers):
        for number in numbers:
            client.put_object(Bucket=bucket, Key=f"raw/k{number:03d}.jpg", Body=b"%d" % number * 99)

    def build_there(name, *options):
        return pack(
            "build", f"s3://{bucket}/raw", str(tmp_path / name), "--quiet", "--json", *options, env=s3_environment
        )

    put(range(20))
    assert build_there("old").returncode == 0
    put(range(20, 27))
    done = build_there("new", "--append-to", str(tmp_path / "old"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_samples"] == 27
    old, new = read_manifest(tmp_path / "old"), read_manifest(tmp_path / "new")
    assert new.split("train").shards[0] == old.split("train").shards[0]
    assert new.split("train").shards[1].num_samples == 7
    client.put_object(Bucket=bucket, Key="raw/k003.jpg", Body=b"8" * len(b"3" * 99))
    changed = build_there("newer", "--append-to", str(tmp_path / "new"))
    assert changed.returncode != 0
    assert "k003.jpg: was modified since" in changed.stderr


def test_another_kind_of_source_is_refused(tmp_path, pack_here):
    where = tmp_path / "source"
    where.mkdir()
    table = write_csv(where, ["a", "b"])
    assert build(pack_here, table, tmp_path / "old")[0] == 0
    code, _, error = build(pack_here, where, tmp_path / "new", "--append-to", str(tmp_path / "old"))
    assert code == 73
    assert "packed from a source of the kind table, this one is tree" in error
