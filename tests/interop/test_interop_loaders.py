"""Our loader and foreign readers give the same samples of a dataset, and we load shards that foreign writers made."""

import importlib
import importlib.util
import io
import os
import tarfile
import warnings

import pytest

import loaders
from shards.digests import BlockHasher, hash_bytes
from shards.example import encode_example, make_floats
from shards.files import write_file
from shards.formats import FORMATS
from shards.index import IndexBuilder
from shards.manifest import ExtensionEntry, Manifest, ShardEntry, SplitEntry
from shards.tfrecord.frames import frame_record

SAMPLES = [
    ("cats/0001", {"jpg": b"\xff\xd8 a cat", "txt": b"eine Katze", "seg.png": bytes(range(256)) * 9}),
    ("cats/0002", {"jpg": b"\xff\xd8 another", "txt": b""}),
    ("dogs/" + "x" * 60 + "/" + "y" * 70, {"jpg": b"\0\0", "txt": b"long name\0"}),
    ("möwen/säge", {"txt": b"bird"}),
]


@pytest.fixture(scope="module")
def build():
    """The dataset builder of the loaders' own tests."""
    path = os.path.join(os.path.dirname(__file__), "..", "loaders", "conftest.py")
    spec = importlib.util.spec_from_file_location("loaders_conftest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.build_dataset


@pytest.fixture(scope="module")
def webdataset():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("webdataset")


@pytest.fixture(scope="module")
def tf():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensorflow = pytest.importorskip("tensorflow")
        list(tensorflow.data.Dataset.range(1))
    return tensorflow


def load(path):
    with loaders.open_dataset(path, check="full", verify="crc") as dataset:
        return [(sample.key, dict(sample)) for sample in dataset]


def publish(path, shards, format_name):
    """Index foreign shards by scanning them and write a manifest over them: name → content."""
    entries, sizes = [], {}
    for name, content in shards.items():
        builder, num_samples = IndexBuilder(), 0
        for sample in FORMATS[format_name].scan_samples(io.BytesIO(content), name):
            builder.add(sample.key, sample.offset, [(m.extension, m.offset, m.size, m.crc32c) for m in sample.members])
            num_samples += 1
            for member in sample.members:
                sizes.setdefault(member.extension, []).append(member.size)
        hasher = BlockHasher()
        hasher.update(content)
        blocks = hasher.finish()
        index = builder.finish(shard_name=name, format_name=format_name, blocks=blocks)
        write_file(os.path.join(path, name), content)
        write_file(os.path.join(path, f"{name}.index.arrow"), index)
        entries.append(
            ShardEntry(
                name=name,
                size_bytes=len(content),
                digest=blocks.shard_digest,
                num_samples=num_samples,
                index_name=f"{name}.index.arrow",
                index_size_bytes=len(index),
                index_digest=hash_bytes(index),
            )
        )
    total = sum(entry.num_samples for entry in entries)
    split = SplitEntry(
        name="all",
        num_samples=total,
        size_bytes=sum(entry.size_bytes for entry in entries),
        shards=tuple(entries),
        extensions={
            extension: ExtensionEntry(num_present=len(found), num_missing=total - len(found), size_bytes=sum(found))
            for extension, found in sizes.items()
        },
    )
    manifest = Manifest(shard_format=format_name, block_bytes=8 * 1024 * 1024, splits=(split,))
    write_file(os.path.join(path, "manifest.json"), manifest.to_json())


def test_webdataset_gives_what_the_loader_gives(webdataset, build, tmp_path):
    built = build(tmp_path / "dataset", {"train": SAMPLES}, shard_samples=2)
    urls = [built.shard_path(number) for number in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = [
            (sample["__key__"], {name: data for name, data in sample.items() if not name.startswith("__")})
            for sample in webdataset.WebDataset(urls, shardshuffle=False)
        ]
    assert load(built.path) == theirs == SAMPLES


def test_tarfile_gives_what_the_loader_gives(build, tmp_path):
    built = build(tmp_path / "dataset", {"train": SAMPLES}, shard_samples=9)
    with tarfile.open(built.shard_path(0)) as archive:
        theirs = [(member.name, archive.extractfile(member).read()) for member in archive]
    assert theirs == [
        (f"{key}.{extension}", data) for key, members in load(built.path) for extension, data in members.items()
    ]


def test_tensorflow_by_the_documented_recipe_gives_what_the_loader_gives(tf, build, tmp_path):
    built = build(tmp_path / "dataset", {"train": SAMPLES[:2]}, format_name="tfrecord", shard_samples=1)
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in ("__key__", "jpg", "txt")}
    paths = [built.shard_path(number) for number in range(2)]
    theirs = tf.data.TFRecordDataset(paths).map(lambda record: tf.io.parse_single_example(record, features))
    for (key, members), element in zip(load(built.path), theirs.as_numpy_iterator(), strict=True):
        assert element == {"__key__": key.encode(), "jpg": members["jpg"], "txt": members["txt"]}


def test_shards_of_the_webdataset_writer_load(webdataset, tmp_path):
    contents = {}
    for number, part in enumerate((SAMPLES[:2], SAMPLES[2:])):
        stream = io.BytesIO()
        with webdataset.TarWriter(stream) as writer:
            for key, members in part:
                writer.write({"__key__": key, **members})
        contents[f"foreign-{number}.tar"] = stream.getvalue()
    publish(tmp_path, contents, "tar")
    # that writer sorts the members of a sample by name
    assert load(tmp_path) == SAMPLES


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_shards_of_tarfile_load(tmp_path, tar_format):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tar_format) as archive:
        for key, members in SAMPLES:
            for extension, data in members.items():
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    publish(tmp_path, {"foreign.tar": stream.getvalue()}, "tar")
    assert load(tmp_path) == SAMPLES


def test_records_of_the_tensorflow_writer_load_whole(tf, tmp_path):
    path = tmp_path / "foreign"
    records = [
        tf.train.Example(
            features=tf.train.Features(
                feature={"x": tf.train.Feature(int64_list=tf.train.Int64List(value=[number, 7]))}
            )
        ).SerializeToString()
        for number in range(3)
    ]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    publish(tmp_path, {"foreign.tfrecord": path.read_bytes()}, "tfrecord")
    assert load(tmp_path) == [(f"{number:08d}", {"example": record}) for number, record in enumerate(records)]


def test_records_of_others_come_whole_through_tf_data(tmp_path, tf):
    records = [encode_example({"weight": make_floats([number, 0.5])}) for number in range(3)]
    publish(tmp_path, {"foreign.tfrecord": b"".join(map(frame_record, records))}, "tfrecord")
    framework = importlib.import_module("loaders.tensorflow")
    found = list(framework.dataset(str(tmp_path)).as_numpy_iterator())
    assert [element["example"] for element in found] == records
    assert [element["__key__"] for element in found] == [b"00000000", b"00000001", b"00000002"]
    weights = tf.io.parse_single_example(found[2]["example"], {"weight": tf.io.FixedLenFeature([2], tf.float32)})
    assert weights["weight"].numpy().tolist() == [2.0, 0.5]
