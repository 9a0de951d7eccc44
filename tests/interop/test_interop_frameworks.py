"""What ``pack build`` writes, as users of Megatron-Energon, Hugging Face datasets and NVIDIA DALI read it.

They bring much with them and pin versions, so they live in an environment of their own: ``make test-interop``. Each
reads in a process of its own, since they warn, start threads and change settings when imported.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MUST_RUN = "SHARDFERRY_INTEROP" in os.environ
"""Set by ``make test-interop``: what is not installed there is an error, not a reason to skip."""

NUM_SAMPLES = 60

Digests = dict[str, dict[str, str]]

READ_WITH_ENERGON = """
import hashlib, json, sys
from megatron.energon import Cooker, DefaultTaskEncoder, Sample, WorkerConfig, basic_sample_keys, edataclass
from megatron.energon import get_loader, get_val_dataset, stateless

@edataclass
class Members(Sample):
    members: dict

@stateless
def cook(sample):
    members = {name: value for name, value in sample.items() if not name.startswith("_")}
    return Members(**basic_sample_keys(sample), members=members)

class Encoder(DefaultTaskEncoder):
    cookers = [Cooker(cook)]
    decoder = None

found = {}
for part in ("train", "val"):
    settings = WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = get_val_dataset(
        sys.argv[1], split_part=part, worker_config=settings, batch_size=None, task_encoder=Encoder()
    )
    for sample in get_loader(dataset):
        assert sample.__key__ not in found
        found[sample.__key__] = {name: hashlib.sha256(data).hexdigest() for name, data in sample.members.items()}
print(json.dumps(found))
"""

READ_WITH_DATASETS = """
import glob, hashlib, json, sys
import datasets

datasets.disable_progress_bars()
files = {split: sorted(glob.glob(f"{sys.argv[1]}/{split}-*.tar")) for split in ("train", "val")}
is_streaming = sys.argv[3] == "streaming"
splits = datasets.load_dataset("webdataset", data_files=files, cache_dir=sys.argv[2], streaming=is_streaming)
found = {}
for split in splits:
    for row in splits[split].cast_column("png", datasets.Image(decode=False)):
        assert row["__key__"] not in found
        data = {"png": row["png"]["bytes"], "txt": row["txt"].encode(), "cls": str(row["cls"]).encode()}
        data["json"] = json.dumps(row["json"]).encode()
        found[row["__key__"]] = {name: hashlib.sha256(value).hexdigest() for name, value in data.items()}
print(json.dumps(found))
"""

READ_WITH_DALI = """
import glob, hashlib, json, sys
import numpy
from nvidia.dali import fn, pipeline_def

@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def pipeline(paths, indexes):
    named = {"index_paths": indexes} if indexes else {}
    parts = ["png", "txt", "cls", "json"]
    return tuple(fn.readers.webdataset(paths=paths, ext=parts, missing_component_behavior="error", **named))

paths = sorted(glob.glob(f"{sys.argv[1]}/*.tar"))
indexes = sorted(glob.glob(f"{sys.argv[2]}/*.idx")) if len(sys.argv) > 2 else []
assert not indexes or len(indexes) == len(paths)
reader = pipeline(paths, indexes)
reader.build()
found = []
for _ in range(reader.epoch_size("__Webdataset_0")):
    values = [numpy.array(output[0]).tobytes() for output in reader.run()]
    found.append([hashlib.sha256(value).hexdigest() for value in values])
print(json.dumps(found))
"""

READ_RECORDS_WITH_DALI = """
import glob, hashlib, json, sys
import numpy
from nvidia.dali import fn, pipeline_def
import nvidia.dali.tfrecord as tfrec

@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def pipeline(paths, indexes):
    names = ("png", "txt", "cls", "json")
    features = {name: tfrec.FixedLenFeature((), tfrec.string, "") for name in names}
    outputs = fn.readers.tfrecord(path=paths, index_path=indexes, features=features, name="reader")
    return tuple(outputs[name] for name in names)

paths, indexes = (sorted(glob.glob(pattern)) for pattern in (f"{sys.argv[1]}/*.tfrecord", f"{sys.argv[2]}/*.idx"))
reader = pipeline(paths, indexes)
reader.build()
found = []
for _ in range(reader.epoch_size("reader")):
    values = [numpy.array(output[0]).tobytes() for output in reader.run()]
    found.append([hashlib.sha256(value).hexdigest() for value in values])
print(json.dumps(found))
"""


def need(module: str) -> None:
    """Skip the test when a framework is not installed."""
    try:
        is_there = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there and not MUST_RUN:
        pytest.skip(f"{module} is not installed; make test-interop has it")
    assert is_there, f"{module} is missing in the environment of make test-interop"


def run(command: list[str], tmp_path: Path) -> str:
    """Run a program away from the network; gives its stdout."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_with(code: str, tmp_path: Path, *args: str) -> Digests:
    found: Digests = json.loads(run([sys.executable, "-c", code, *args], tmp_path).splitlines()[-1])
    return found


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with captions and facts in three classes; one name is too long for a plain tar header."""
    image = pytest.importorskip("PIL.Image")
    root = tmp_path_factory.mktemp("source")
    for number in range(NUM_SAMPLES):
        stem = root / f"c{number % 3}" / (f"{number:03d}" if number else "a-long-name-" + "x" * 110)
        stem.parent.mkdir(exist_ok=True)
        image.new("RGB", (8, 8), (number * 4, 255 - number, 7)).save(f"{stem}.png")
        Path(f"{stem}.txt").write_text(f"picture {number}")
        Path(f"{stem}.json").write_text(json.dumps({"number": number}))
    return root


def expected(source: Path) -> Digests:
    samples: Digests = {}
    for path in source.rglob("*.*"):
        key = str(path.relative_to(source).with_suffix(""))
        sample = samples.setdefault(key, {"cls": digest(key[1].encode())})
        sample[path.suffix[1:]] = digest(path.read_bytes())
    return samples


def pack(source: Path, destination: Path, *options: str) -> Path:
    command = [sys.executable, "-m", "packer", "build", str(source), str(destination), "--class-from-dir", "--quiet"]
    split = ("--split", "train=0.8,val=0.2", "--shard-size", "40KiB", "--jobs", "1")
    done = subprocess.run([*command, *split, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return destination


def test_megatron_energon_prepares_and_reads(source: Path, tmp_path: Path) -> None:
    need("megatron.energon")
    dataset = pack(source, tmp_path / "packed")
    program = shutil.which("energon", path=os.path.dirname(sys.executable)) or "energon"
    parts = [part for name in ("train", "val") for part in ("--split-parts", rf"{name}:{name}-.*\.tar")]
    flags = ["--non-interactive", "--no-progress", "--num-workers", "1", "--sample-type", "CrudeWebdataset"]
    run([program, "prepare", str(dataset), *flags, *parts], tmp_path)
    assert read_with(READ_WITH_ENERGON, tmp_path, str(dataset)) == expected(source)


@pytest.mark.parametrize("way", ["prepared", "streaming"])
def test_hugging_face_datasets_read(source: Path, tmp_path: Path, way: str) -> None:
    need("datasets")
    dataset = pack(source, tmp_path / "packed")
    assert read_with(READ_WITH_DATASETS, tmp_path, str(dataset), str(tmp_path / "cache"), way) == expected(source)


def in_order(samples: Digests) -> list[list[str]]:
    return sorted([sample[name] for name in ("png", "txt", "cls", "json")] for sample in samples.values())


def test_dali_reads_shards_that_it_indexes_itself(source: Path, tmp_path: Path) -> None:
    need("nvidia.dali")
    dataset = pack(source, tmp_path / "packed")
    assert sorted(read_with(READ_WITH_DALI, tmp_path, str(dataset))) == in_order(expected(source))


def test_dali_reads_shards_by_the_index_that_we_write(source: Path, tmp_path: Path) -> None:
    need("nvidia.dali")
    dataset = pack(source, tmp_path / "packed")
    indexes = write_dali_index(dataset, tmp_path / "indexes")
    assert sorted(read_with(READ_WITH_DALI, tmp_path, str(dataset), str(indexes))) == in_order(expected(source))


def test_dali_reads_records_by_the_index_that_we_write(source: Path, tmp_path: Path) -> None:
    need("nvidia.dali")
    dataset = pack(source, tmp_path / "packed", "--format", "tfrecord")
    indexes = write_dali_index(dataset, tmp_path / "indexes")
    found = read_with(READ_RECORDS_WITH_DALI, tmp_path, str(dataset), str(indexes))
    assert sorted(found) == in_order(expected(source))


def write_dali_index(dataset: Path, target: Path) -> Path:
    run([sys.executable, "-m", "packer", "dali-index", str(dataset), str(target)], target.parent)
    return target
