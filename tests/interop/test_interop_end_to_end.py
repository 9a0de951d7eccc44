"""What ``pack build`` writes, foreign readers read: same keys, members and bytes, for real and for awkward names."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

Samples = dict[str, dict[str, bytes]]

FILES: dict[str, bytes] = {
    "cats/0001.jpg": b"\xff\xd8 a cat" * 1000,
    "cats/0001.txt": b"eine Katze",
    "cats/0002.jpg": b"\xff\xd8 another",
    "cats/0002.txt": b"",
    "dogs/0001.jpg": b"\xff\xd8 a dog \x00\x00" * 1000,
    "dogs/0001.txt": b"a dog",
    "dogs/very-long-name-" + "x" * 120 + ".jpg": b"\xff\xd8" + bytes(range(256)) * 40,
    "dogs/very-long-name-" + "x" * 120 + ".txt": b"long",
    "möwen/säge.jpg": b"\xff\xd8 bird",
    "möwen/säge.txt": b"bird",
}


def expected_samples() -> Samples:
    samples: Samples = {}
    for path, content in FILES.items():
        key, _, extension = path.rpartition(".")
        samples.setdefault(key, {})[extension] = content
    return samples


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source")
    for path, content in FILES.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return root


def pack(source: Path, destination: Path, *options: str) -> Path:
    command = [sys.executable, "-m", "packer", "build", str(source), str(destination), "--jobs", "1", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return destination


def shards_of(dataset: Path, suffix: str) -> list[str]:
    return sorted(str(path) for path in dataset.iterdir() if path.name.endswith(suffix))


def read_with_webdataset(paths: list[str]) -> Samples:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import webdataset

        found: Samples = {}
        for sample in webdataset.WebDataset(paths, shardshuffle=False):
            members = {name: value for name, value in sample.items() if not name.startswith("__")}
            assert sample["__key__"] not in found
            found[sample["__key__"]] = members
    return found


def test_webdataset_reads_what_pack_writes(source: Path, tmp_path: Path) -> None:
    dataset = pack(source, tmp_path / "packed")
    assert read_with_webdataset(shards_of(dataset, ".tar")) == expected_samples()


def test_webdataset_reads_all_shards_of_a_split_and_the_class(source: Path, tmp_path: Path) -> None:
    dataset = pack(source, tmp_path / "packed", "--shard-size", "18KiB", "--class-from-dir", "--shuffle", "3")
    shards = shards_of(dataset, ".tar")
    assert len(shards) > 1
    classes = ["cats", "dogs", "möwen"]
    expected = {
        key: {**members, "cls": str(classes.index(key.partition("/")[0])).encode()}
        for key, members in expected_samples().items()
    }
    assert read_with_webdataset(shards) == expected


@pytest.mark.parametrize("program", ["tar", "bsdtar"])
def test_tar_programs_extract_what_pack_writes(source: Path, tmp_path: Path, program: str) -> None:
    dataset = pack(source, tmp_path / "packed")
    target = tmp_path / "extracted"
    target.mkdir()
    for shard in shards_of(dataset, ".tar"):
        try:
            done = subprocess.run(
                [program, "-xf", shard, "-C", str(target)],
                capture_output=True,
                text=True,
                check=False,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            )
        except FileNotFoundError:
            pytest.skip(f"{program} is not installed")
        assert (done.returncode, done.stderr) == (0, "")
    found = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert found == FILES


def read_with_tensorflow(paths: list[str], extensions: list[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
    tensorflow = pytest.importorskip("tensorflow")
    features = {name: tensorflow.io.FixedLenFeature([], tensorflow.string) for name in ("__key__", *extensions)}
    for record in tensorflow.data.TFRecordDataset(paths):
        example = tensorflow.io.parse_single_example(record, features)
        yield example["__key__"].numpy().decode(), {name: example[name].numpy() for name in extensions}


def test_tensorflow_reads_what_pack_writes(source: Path, tmp_path: Path) -> None:
    dataset = pack(source, tmp_path / "packed", "--format", "tfrecord", "--shard-size", "18KiB")
    shards = shards_of(dataset, ".tfrecord")
    assert len(shards) > 1
    assert dict(read_with_tensorflow(shards, ["jpg", "txt"])) == expected_samples()
