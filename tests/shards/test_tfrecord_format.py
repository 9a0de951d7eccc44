"""Samples in TFRecord shards: layouts tile, fill to Examples, and scan back to the same members."""

import gzip
import io
import os
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.digests import crc32c, mask_crc
from shards.errors import SampleGroupError, TFRecordFormatError
from shards.example import UNSET, BytesList, encode_example, make_floats, make_integers, parse_example
from shards.formats import FORMATS
from shards.layout import SampleLayout
from shards.tfrecord.format import END_MARKER, layout_sample, scan_samples
from shards.tfrecord.frames import frame_record, read_records

extensions = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda text: text != "__key__")
lower_extensions = st.text("abcdef0123456789._", min_size=1, max_size=6)
keys = st.text(min_size=1, max_size=20)
members_strategy = st.dictionaries(lower_extensions, st.binary(max_size=400), max_size=5)


def _fill(layout: SampleLayout, values: list[bytes]) -> bytes:
    """Encode a sample as a writer does, and check on the way that the parts tile it."""
    assert layout.checksum is not None
    parts = list(layout.literals) + [(offset, value) for (offset, _), value in zip(layout.holes, values, strict=True)]
    assert [size for _, size in layout.holes] == [len(value) for value in values]
    encoded = bytearray()
    for offset, data in sorted(parts, key=lambda part: (part[0], len(part[1]))):
        assert offset == len(encoded)
        encoded += data
    assert (layout.checksum.start, layout.checksum.end) == (12, len(encoded))
    encoded += mask_crc(crc32c(encoded[12:])).to_bytes(4, "little")
    assert len(encoded) == layout.size
    return bytes(encoded)


def _encode(key: str, members: dict[str, bytes]) -> bytes:
    layout = layout_sample(key, [(extension, len(value)) for extension, value in members.items()])
    return _fill(layout, list(members.values()))


@settings(deadline=None)
@given(key=keys, members=st.dictionaries(extensions, st.binary(max_size=400), max_size=5))
def test_a_filled_layout_is_an_example(key: str, members: dict[str, bytes]) -> None:
    (record,) = read_records(io.BytesIO(_encode(key, members)), "s")
    example = parse_example(record.data, name="s", offset=12)
    expected = {"__key__": BytesList((key.encode(),))}
    expected |= {extension: BytesList((value,)) for extension, value in members.items()}
    assert list(example.items()) == list(expected.items())


@pytest.mark.parametrize(
    "size", [0, 1, 113, 117, 118, 119, 121, 122, 123, 125, 126, 127, 128, 129, 16383, 16384, 2097152]
)
@pytest.mark.parametrize("name_size", [1, 100, 127, 128, 300])
def test_lengths_are_right_at_the_edges_of_varints(size: int, name_size: int) -> None:
    blob = _encode("k", {"e" * name_size: bytes(size), "f": b"1"})
    (sample,) = scan_samples(io.BytesIO(blob), "s")
    assert [(member.extension, member.size) for member in sample.members] == [("e" * name_size, size), ("f", 1)]


@settings(deadline=None)
@given(samples=st.dictionaries(keys, members_strategy, max_size=5), is_compressed=st.booleans())
def test_scan_finds_the_members_that_were_written(samples: dict[str, dict[str, bytes]], is_compressed: bool) -> None:
    shard = b"".join(_encode(key, members) for key, members in samples.items()) + END_MARKER
    stored = gzip.compress(shard) if is_compressed else shard
    found = list(scan_samples(io.BytesIO(stored), "s"))
    assert [sample.key for sample in found] == list(samples)
    position = 0
    for sample, members in zip(found, samples.values(), strict=True):
        assert sample.offset == position
        position += layout_sample(sample.key, [(name, len(value)) for name, value in members.items()]).size
        assert [member.extension for member in sample.members] == list(members)
        for member, value in zip(sample.members, members.values(), strict=True):
            assert member.offset is not None
            assert shard[member.offset : member.offset + member.size] == value
            assert member.crc32c == crc32c(value)


def test_a_key_that_is_not_utf8_survives() -> None:
    key = os.fsdecode(b"caf\xe9/\xff")
    (sample,) = scan_samples(io.BytesIO(_encode(key, {"txt": b"1"})), "s")
    assert sample.key == key


@pytest.mark.parametrize(
    ("key", "members", "message"),
    [
        ("", [("a", 1)], "key that is not empty"),
        ("k", [("", 1)], "names no member"),
        ("k", [("__key__", 1)], "names no member"),
        ("k", [("a", 1), ("b", 2), ("a", 3)], "twice"),
        ("k", [("caf\udce9", 1)], "not UTF-8"),
        ("k", [("bin", 2**31)], r"sample k makes a record of 21\d+ bytes.*at most 2147483647.*pack it as tar"),
    ],
)
def test_what_cannot_be_stored_is_refused(key: str, members: list[tuple[str, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layout_sample(key, members)


def test_the_largest_record_is_exactly_the_limit() -> None:
    overhead = layout_sample("k", [("bin", 2**31 - 1000)]).size - (2**31 - 1000) - 16
    assert layout_sample("k", [("bin", 2**31 - 1 - overhead)]).size == 2**31 - 1 + 16
    with pytest.raises(ValueError, match="2147483648 bytes"):
        layout_sample("k", [("bin", 2**31 - overhead)])


def test_foreign_records_are_one_member_named_by_what_they_are() -> None:
    example = encode_example({"label": make_integers([1]), "image": BytesList((b"x",))})
    sequence = b"\n\x00\x12\x00"
    records = [example, sequence, b"no protobuf at all", b"", encode_example({"a": BytesList((b"1",))})]
    shard = b"".join(map(frame_record, records))
    found = list(scan_samples(io.BytesIO(shard), "s"))
    assert [sample.key for sample in found] == [f"{number:08d}" for number in range(5)]
    assert [sample.members[0].extension for sample in found] == [
        "example",
        "sequence_example",
        "record",
        "record",
        "example",
    ]
    for sample, data in zip(found, records, strict=True):
        (member,) = sample.members
        assert member.offset == sample.offset + 12
        assert shard[member.offset : member.offset + member.size] == data
        assert member.crc32c == crc32c(data)


@pytest.mark.parametrize(
    "other",
    [{"n": make_integers([1])}, {"n": UNSET}, {"n": BytesList()}, {"n": BytesList((b"a", b"b"))}, {"n": make_floats()}],
)
def test_a_keyed_example_of_other_features_is_foreign(other: dict) -> None:
    shard = frame_record(encode_example({"__key__": BytesList((b"k",)), **other}))
    (sample,) = scan_samples(io.BytesIO(shard), "s")
    assert (sample.key, sample.members[0].extension) == ("00000000", "example")


def test_feature_order_of_another_writer_is_kept() -> None:
    features = {"Z.JPG": BytesList((b"z",)), "__key__": BytesList((b"k",)), "a": BytesList((b"a",))}
    (sample,) = scan_samples(io.BytesIO(frame_record(encode_example(features))), "s")
    assert (sample.key, [member.extension for member in sample.members]) == ("k", ["z.jpg", "a"])


def test_a_key_that_reappears_is_an_error_naming_both_places() -> None:
    one = _encode("dog/1", {"jpg": b"1"})
    with pytest.raises(
        SampleGroupError, match=r"s-7.*dog/1 re-appears, its first record is at byte offset 0"
    ) as caught:
        list(scan_samples(io.BytesIO(one + _encode("dog/2", {"jpg": b"1"}) + one), "s-7"))
    assert caught.value.offset == 2 * len(one)


@pytest.mark.parametrize("names", [("A", "a", "__key__"), ("__key__", "__KEY__", "__Key__")])
def test_extensions_that_collide_in_lower_case_are_an_error(names: tuple[str, ...]) -> None:
    shard = frame_record(encode_example({name: BytesList((b"1",)) for name in names}))
    with pytest.raises(SampleGroupError, match="twice"):
        list(scan_samples(io.BytesIO(shard), "s"))


def test_an_empty_key_is_an_error() -> None:
    with pytest.raises(SampleGroupError, match="__key__ of the record is empty"):
        list(scan_samples(io.BytesIO(frame_record(encode_example({"__key__": BytesList((b"",))}))), "s"))


def test_every_cut_and_every_flipped_bit_is_an_error() -> None:
    first = _encode("a", {"jpg": b"12", "cls": b"7"})
    shard = first + _encode("b", {"jpg": b"34", "cls": b"8"})
    for length in set(range(1, len(shard))) - {len(first)}:
        with pytest.raises(TFRecordFormatError):
            list(scan_samples(io.BytesIO(shard[:length]), "s"))
    for bit in range(8 * len(shard)):
        damaged = bytearray(shard)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TFRecordFormatError):
            list(scan_samples(io.BytesIO(damaged), "s"))


def test_the_format_table_has_these_functions() -> None:
    entry = FORMATS["tfrecord"]
    assert (entry.layout_sample, entry.scan_samples, entry.end_marker) == (layout_sample, scan_samples, b"")


def test_a_pipe_scans_like_a_file() -> None:
    shard = _encode("a", {"jpg": b"12"}) + _encode("b", {"jpg": b"3"})
    with tempfile.TemporaryFile() as file:
        file.write(shard)
        file.seek(0)
        whole = list(scan_samples(file, "s"))
    reader, writer = os.pipe()
    os.write(writer, shard)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert list(scan_samples(pipe, "s")) == whole
