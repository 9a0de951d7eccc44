"""TensorFlow reads what we write and we read what it writes: same records, same Examples, same bytes."""

import itertools
import os
import warnings
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shards.digests import crc32c, mask_crc
from shards.errors import ExampleFormatError, TFRecordFormatError
from shards.example import (
    UNSET,
    BytesList,
    Example,
    FeatureValue,
    FloatList,
    Int64List,
    classify_record,
    encode_example,
    make_floats,
    make_integers,
    parse_example,
)
from shards.tfrecord.format import layout_sample, scan_samples
from shards.tfrecord.frames import frame_record, read_records

RECORDS = [b"first", b"", b"x" * 100_000, b"\x00\xff" * 50]

KINDS = {BytesList: "bytes_list", FloatList: "float_list", Int64List: "int64_list"}

values = st.one_of(
    st.just(UNSET),
    st.lists(st.binary(max_size=30), max_size=4).map(lambda items: BytesList(tuple(items))),
    st.lists(st.floats(width=32, allow_nan=False), max_size=6).map(make_floats),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6).map(make_integers),
)
examples = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), values, max_size=5)


@pytest.fixture(scope="module")
def tf() -> ModuleType:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        # Its dependencies warn about each other while they load.
        warnings.simplefilter("ignore")
        return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def _to_proto(tf: ModuleType, features: Example) -> object:
    proto = tf.train.Example(features=tf.train.Features())
    for name, value in features.items():
        feature = proto.features.feature[name]
        kind = KINDS.get(type(value))
        if kind is not None:
            getattr(feature, kind).SetInParent()
            getattr(feature, kind).value.extend(value.values)
    proto.features.SetInParent()
    return proto


def _from_proto(proto: object) -> Example:
    features = {}
    for name, feature in proto.features.feature.items():
        value: FeatureValue = UNSET
        match feature.WhichOneof("kind"):
            case "bytes_list":
                value = BytesList(tuple(feature.bytes_list.value))
            case "float_list":
                value = make_floats(feature.float_list.value)
            case "int64_list":
                value = make_integers(feature.int64_list.value)
        features[name] = value
    return features


def _sample_record(key: str, members: dict[str, bytes]) -> bytes:
    layout = layout_sample(key, [(extension, len(value)) for extension, value in members.items()])
    encoded = bytearray(layout.size)
    for offset, literal in layout.literals:
        encoded[offset : offset + len(literal)] = literal
    for (offset, size), value in zip(layout.holes, members.values(), strict=True):
        encoded[offset : offset + size] = value
    assert layout.checksum is not None
    start, end = layout.checksum.start, layout.checksum.end
    encoded[end:] = mask_crc(crc32c(encoded[start:end])).to_bytes(4, "little")
    return bytes(encoded)


def _read(path: Path) -> list[bytes]:
    with path.open("rb") as stream:
        return [record.data for record in read_records(stream, path.name)]


def test_tensorflow_reads_our_records(tf: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "ours.tfrecord"
    path.write_bytes(b"".join(map(frame_record, RECORDS)))
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(path))] == RECORDS


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_we_read_tensorflows_records_whatever_their_compression(
    tf: ModuleType, tmp_path: Path, compression: str
) -> None:
    path = tmp_path / "theirs.tfrecord"
    with tf.io.TFRecordWriter(str(path), options=compression) as writer:
        for record in RECORDS:
            writer.write(record)
    assert _read(path) == RECORDS
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TFRecordFormatError):
        _read(path)


def test_plain_records_are_equal_to_the_byte(tf: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "theirs.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in RECORDS:
            writer.write(record)
    assert path.read_bytes() == b"".join(map(frame_record, RECORDS))


def test_tensorflow_parses_our_samples(tf: ModuleType, tmp_path: Path) -> None:
    samples = {
        "cat/1": {"jpg": b"\xff\xd8" + bytes(70_000), "cls": b"3", "empty": b""},
        "caf\xe9/2": {"jpg": b"x", "cls": b"12", "empty": b""},
    }
    path = tmp_path / "train-000000.tfrecord"
    path.write_bytes(b"".join(_sample_record(key, members) for key, members in samples.items()))
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in ("__key__", "jpg", "cls", "empty")}
    found = {}
    for record in tf.data.TFRecordDataset(str(path)):
        row = tf.io.parse_single_example(record, spec)
        key = row.pop("__key__").numpy().decode()
        found[key] = {name: value.numpy() for name, value in row.items()}
    assert found == samples


def test_a_sample_that_tensorflow_wrote_again_scans_to_the_same_members(tf: ModuleType, tmp_path: Path) -> None:
    members = {"jpg": bytes(300), "cls": b"7"}
    ours = _sample_record("a/1", members)
    path = tmp_path / "theirs.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(tf.train.Example.FromString(ours[12:-4]).SerializeToString(deterministic=True))
    content = path.read_bytes()
    with path.open("rb") as stream:
        (sample,) = scan_samples(stream, path.name)
    assert sample.key == "a/1"
    assert {
        member.extension: content[member.offset : member.offset + member.size]
        for member in sample.members
        if member.offset is not None
    } == members


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(features=examples)
def test_examples_are_equal_to_the_byte(tf: ModuleType, features: Example) -> None:
    theirs = _to_proto(tf, features).SerializeToString(deterministic=True)
    ours = encode_example(features)
    assert len(ours) == len(theirs)
    names = sorted(features)
    if not any(longer.startswith(name) for name, longer in itertools.pairwise(names)):
        # Where one name starts another, one implementation of protobuf puts the longer one first.
        assert ours == theirs
    assert tf.train.Example.FromString(ours) == tf.train.Example.FromString(theirs)
    assert parse_example(theirs, name="s", offset=0) == features
    assert classify_record(theirs) == "example"


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(features=examples, data=st.data())
def test_both_parsers_make_the_same_of_damaged_bytes(tf: ModuleType, features: Example, data: st.DataObject) -> None:
    tf_decode_error = pytest.importorskip("google.protobuf.message").DecodeError
    blob = bytearray(encode_example(features))
    for _ in range(data.draw(st.integers(1, 3))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    record = bytes(blob)
    try:
        theirs: Example | None = _from_proto(tf.train.Example.FromString(record))
    except tf_decode_error:
        theirs = None
    try:
        ours = parse_example(record, name="s", offset=0)
    except ExampleFormatError as error:
        # We refuse what protobuf takes only when nothing of an Example would be left of it.
        assert theirs is None or "read the record as bytes" in error.reason  # noqa: PT017
        return
    assert theirs is not None
    if classify_record(record) == "example":
        # Compared as bytes, so that NaNs are equal to themselves, and after a way through Python's floats on both
        # sides, since it makes signalling NaNs quiet.
        quiet = {k: make_floats(v.values.tolist()) if isinstance(v, FloatList) else v for k, v in ours.items()}
        assert encode_example(quiet) == encode_example(theirs)
    else:
        # One implementation of protobuf leaves out map entries that have unknown fields in them.
        assert set(theirs) <= set(ours)


def test_a_sequence_example_is_recognised(tf: ModuleType) -> None:
    proto = tf.train.SequenceExample()
    proto.context.feature["length"].int64_list.value.append(2)
    for step in (b"a", b"b"):
        proto.feature_lists.feature_list["frames"].feature.add().bytes_list.value.append(step)
    data = proto.SerializeToString()
    assert classify_record(data) == "sequence_example"
    with pytest.raises(ExampleFormatError, match=r"\[length\] and feature lists \[frames\]"):
        parse_example(data, name="s", offset=0)


def test_a_cut_inside_a_header_that_tensorflow_accepts_is_an_error_here(tf: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "cut.tfrecord"
    path.write_bytes(frame_record(b"one") + frame_record(b"two")[:5])
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(path))] == [b"one"]
    with pytest.raises(TFRecordFormatError, match="5 bytes into a 12-byte record header"):
        _read(path)
