"""Shards that others made, opened as they are."""

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from loaders import open_dataset
from loaders.foreign.find import is_foreign
from loaders.foreign.patterns import expand_braces
from loaders.foreign.records import Record, place_of, stamp_of
from shards.errors import (
    DamagedShardsError,
    DigestMismatchError,
    ForeignShardsError,
    LoadError,
    NotStagedError,
)

SAMPLES = [
    (f"{number:04d}", {"txt": f"text {number}".encode(), "cls": str(number % 3).encode()}) for number in range(20)
]


def write_tar(path, samples, *, compress=lambda data: data):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for key, members in samples:
            for extension, data in members.items():
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    path.write_bytes(compress(buffer.getvalue()))
    return path


def write_tfrecord(path, payloads):
    tensorflow = pytest.importorskip("tensorflow")
    with tensorflow.io.TFRecordWriter(str(path)) as writer:
        for payload in payloads:
            writer.write(payload)
    return path


@pytest.fixture
def index_dir(tmp_path, monkeypatch):
    path = tmp_path / "indexes"
    monkeypatch.setenv("LOAD_INDEX_DIR", str(path))
    return path


@pytest.fixture
def shards(tmp_path, index_dir):
    """Four tars of five samples."""
    directory = tmp_path / "wds"
    directory.mkdir()
    return [write_tar(directory / f"train-{place:02d}.tar", SAMPLES[5 * place : 5 * place + 5]) for place in range(4)]


def contents(dataset):
    return [(sample.key, dict(sample)) for sample in dataset]


@pytest.mark.parametrize("name", ["list", "glob", "braces", "directory", "one of each"])
def test_however_they_are_named_all_samples_come_in_order(shards, name):
    directory = shards[0].parent
    source = {
        "list": shards,
        "glob": str(directory / "train-*.tar"),
        "braces": str(directory / "train-{00..03}.tar"),
        "directory": directory,
        "one of each": [shards[0], str(directory / "train-{01..02}.tar"), str(directory / "*3.tar")],
    }[name]
    with open_dataset(source) as dataset:
        assert contents(dataset) == SAMPLES
        assert dataset[7]["txt"] == b"text 7"
        assert dataset.find("0013") == 13
        assert dataset.extensions == ("cls", "txt")


def test_one_file_is_a_dataset(shards):
    with open_dataset(shards[2]) as dataset:
        assert contents(dataset) == SAMPLES[10:15]


def test_the_second_opening_reads_no_shard(shards, index_dir):
    open_dataset(shards).close()
    records = {path: path.stat().st_mtime_ns for path in index_dir.iterdir()}
    assert len(records) == 2 * len(shards)
    for shard in shards:  # same size and time, other bytes: whoever read them would meet a damaged header
        stamp = shard.stat()
        shard.write_bytes(b"?" * stamp.st_size)
        os.utime(shard, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert len(open_dataset(shards)) == 20
    assert {path: path.stat().st_mtime_ns for path in index_dir.iterdir()} == records


@pytest.mark.parametrize("change", ["size", "time"])
def test_a_changed_shard_is_indexed_again(shards, change):
    first = open_dataset(shards).dataset_id
    if change == "size":
        write_tar(shards[1], [("new", {"txt": b"new"})])
    else:
        write_tar(shards[1], [(key.replace("0", "1"), members) for key, members in SAMPLES[5:10]])
        os.utime(shards[1], ns=(0, 1))
    with open_dataset(shards) as dataset:
        assert dataset.dataset_id != first
        assert dataset[5].key in {"new", "1115"}


def test_a_damaged_record_or_index_is_made_again(shards, index_dir):
    open_dataset(shards).close()
    for path in sorted(index_dir.iterdir()):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-3])
    assert contents(open_dataset(shards)) == SAMPLES


def test_an_index_with_flipped_bits_is_no_silent_damage(shards, index_dir):
    open_dataset(shards).close()
    index = Path(place_of(str(index_dir), str(shards[0])).index_path)
    data = bytearray(index.read_bytes())
    data[len(data) // 2] ^= 1
    index.chmod(0o644)
    index.write_bytes(data)
    with open_dataset(shards) as dataset, pytest.raises(DigestMismatchError):
        dataset[0]["txt"]


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar", "a.tgz"])
def test_compressed_shards_are_read_whatever_their_name(tmp_path, index_dir, name):
    path = write_tar(tmp_path / name, SAMPLES, compress=gzip.compress)
    assert contents(open_dataset(path)) == SAMPLES


def test_compressed_shards_in_a_directory(tmp_path, index_dir):
    directory = tmp_path / "wds"
    directory.mkdir()
    for place in range(2):
        write_tar(directory / f"{place:05d}.tar.gz", SAMPLES[10 * place : 10 * place + 10], compress=gzip.compress)
    assert contents(open_dataset(directory)) == SAMPLES


def test_a_cut_compressed_shard_is_an_error(tmp_path, index_dir):
    path = write_tar(tmp_path / "a.tar.gz", SAMPLES, compress=gzip.compress)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamagedShardsError, match=r"a\.tar\.gz.*cut"):
        open_dataset(path)


def test_tfrecords_of_others(tmp_path, index_dir):
    paths = [
        write_tfrecord(tmp_path / f"val-{place:05d}-of-00002", [b"%d-%d" % (place, number) for number in range(3)])
        for place in range(2)
    ]
    with open_dataset(paths) as dataset:
        assert [sample["record"] for sample in dataset] == [b"0-0", b"0-1", b"0-2", b"1-0", b"1-1", b"1-2"]


def test_splits_of_a_directory(tmp_path, index_dir):
    directory = tmp_path / "wds"
    directory.mkdir()
    write_tar(directory / "train-0.tar", SAMPLES[:3])
    write_tar(directory / "val-0.tar", SAMPLES[3:5])
    assert contents(open_dataset(directory, split="val")) == SAMPLES[3:5]
    with pytest.raises(LoadError, match="train, val"):
        open_dataset(directory)
    with pytest.raises(LoadError, match=r"no split test.*train, val"):
        open_dataset(directory, split="test")


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (
            ["{directory}/train-00.tar", "{directory}/no.tar"],
            NotStagedError,
            r"1 of 2 shards are not there:\n.*no\.tar",
        ),
        ("{directory}/train-{{00..06}}.tar", NotStagedError, r"3 of 7 .*\n.*train-04\.tar\n.*05\.tar\n.*06\.tar"),
        ("{directory}/*.zip", NotStagedError, r"no file matches .*\*\.zip"),
        ("{directory}/{{00..}}.tar", LoadError, "neither a range"),
        ("{directory}/{{00.tar", LoadError, "pairs"),
        ([], LoadError, "empty list"),
        (["{directory}/train-00.tar", "{directory}/../wds/train-00.tar"], LoadError, r"named twice:\n.*train-00\.tar"),
    ],
)
def test_what_cannot_be_meant_is_refused(shards, source, error, message):
    directory = shards[0].parent
    source = (
        [one.format(directory=directory) for one in source]
        if isinstance(source, list)
        else source.format(directory=directory)
    )
    with pytest.raises(error, match=message):
        open_dataset(source)


def test_shards_of_two_formats_are_refused(shards, tmp_path):
    record = write_tfrecord(tmp_path / "a.tfrecord", [b"x"])
    with pytest.raises(LoadError, match="two formats"):
        open_dataset([*shards, record])


def test_an_incomplete_set_in_a_directory_is_refused(tmp_path, index_dir):
    directory = tmp_path / "wds"
    directory.mkdir()
    for place in (0, 2):
        write_tfrecord(directory / f"train.tfrecord-0000{place}-of-00003", [b"x"])
    with pytest.raises(ForeignShardsError, match="missing: 1"):
        open_dataset(directory)


def test_all_damaged_shards_are_named_with_offsets(shards):
    for shard in shards[1:3]:
        data = bytearray(shard.read_bytes())
        data[512 * 2 + 100] ^= 0xFF
        shard.write_bytes(data)
    with pytest.raises(DamagedShardsError) as caught:
        open_dataset(shards)
    assert len(caught.value.faults) == 2
    assert all("at byte offset 1024" in fault for fault in caught.value.faults)
    assert "2 of 4 shard(s)" in str(caught.value)


def test_members_are_checked_when_asked_for(shards):
    data = bytearray(shards[0].read_bytes())
    data[512] ^= 1  # in the first member's bytes: a walk over the headers does not meet it
    with open_dataset(shards, verify="crc") as dataset:
        assert dataset[0]["txt"] == b"text 0"
        stamp = shards[0].stat()
        shards[0].write_bytes(data)
        os.utime(shards[0], ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with open_dataset(shards, verify="crc") as dataset, pytest.raises(DigestMismatchError):
        dataset[0]["txt"]
    with pytest.raises(DigestMismatchError):
        open_dataset(shards, check="full")


def test_an_unfinished_dataset_of_ours_is_not_somebody_elses(shards):
    directory = shards[0].parent
    assert is_foreign(directory)
    (directory / ".pack").mkdir()
    assert not is_foreign(directory)
    with pytest.raises(NotStagedError, match="has no manifest"):
        open_dataset(directory)


def test_several_workers_index_and_a_damaged_shard_does_not_stop_them(shards, monkeypatch):
    monkeypatch.setattr("loaders.foreign.workers.WORTH_BYTES", 0)
    monkeypatch.setattr("loaders.foreign.workers.usable_cpus", lambda: 2)
    shards[1].write_bytes(shards[1].read_bytes()[:700])
    with pytest.raises(DamagedShardsError, match=r"1 of 4 .*\n.*train-01\.tar"):
        open_dataset(shards)
    write_tar(shards[1], SAMPLES[5:10])
    assert contents(open_dataset(shards)) == SAMPLES


def test_a_worker_that_dies_is_an_error_with_advice(shards, monkeypatch):
    monkeypatch.setattr("loaders.foreign.workers.WORTH_BYTES", 0)
    monkeypatch.setattr("loaders.foreign.workers.usable_cpus", lambda: 2)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(LoadError, match="exit code 1"):
        open_dataset(shards)


def test_many_processes_that_open_at_once_agree(shards):
    program = f"from loaders import open_dataset; print(open_dataset({[str(path) for path in shards]!r}).dataset_id)"
    several = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {process.communicate(timeout=60)[0] for process in several}
    assert len(answers) == 1
    assert answers.pop().startswith("blake3:")


def test_an_index_directory_that_cannot_be_written_is_an_error_with_advice(shards, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LoadError, match="LOAD_INDEX_DIR"):
        open_dataset(shards, index_dir=tmp_path / "file")


def test_the_id_depends_on_content_and_not_on_the_place(shards, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    copies = [other / shard.name for shard in shards]
    for shard, copy in zip(shards, copies, strict=True):
        copy.write_bytes(shard.read_bytes())
    assert open_dataset(shards).dataset_id == open_dataset(copies).dataset_id
    assert open_dataset(shards).dataset_id != open_dataset(shards[::-1]).dataset_id


def test_records_survive_a_round_trip(tmp_path, shards):
    record = Record(
        stamp=stamp_of(str(shards[0])), format_name="tar", is_compressed=True, size_bytes=7, digest="", num_samples=2,
        index_size_bytes=5, index_digest="blake3:00", extensions={"jpg": (2, 5), "\udcff": (1, 2)}, num_keyless=3,
    )  # fmt: skip
    assert Record.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a", ["a"]),
        ("a-{8..11}", ["a-8", "a-9", "a-10", "a-11"]),
        ("a-{08..11}", ["a-08", "a-09", "a-10", "a-11"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{a,b}-{0..1}", ["a-0", "a-1", "b-0", "b-1"]),
        ("{0..0}", ["0"]),
    ],
)
def test_braces(pattern, names):
    assert expand_braces(pattern) == names
