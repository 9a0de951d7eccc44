import io
import logging

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.errors import SampleGroupError, TarFormatError
from shards.keys import LAST_DOT
from shards.layout import SampleLayout, ScannedMember, ScannedSample
from shards.samples import SampleGrouper
from shards.tar import read_files, read_members
from shards.tar.format import END_MARKER, layout_sample, scan_samples

PARTS = st.binary(min_size=1, max_size=40).filter(lambda part: not set(b"\0/.") & set(part))
KEYS = st.lists(PARTS, min_size=1, max_size=5).map(lambda parts: b"/".join(parts).decode("utf-8", "surrogateescape"))
EXTENSIONS = st.sampled_from(["jpg", "seg.png", "json", "cls", "txt", "long" * 30])
MEMBERS = st.dictionaries(EXTENSIONS, st.binary(max_size=1500), min_size=1)
SAMPLES = st.dictionaries(KEYS, MEMBERS, max_size=4)


def fill(layout: SampleLayout, contents: list[bytes]) -> bytes:
    """Write a layout the slow way, and check that it leaves no byte out and writes none twice."""
    data = bytearray(layout.size)
    written = [0] * layout.size
    pieces = [*layout.literals, *((offset, data) for (offset, _), data in zip(layout.holes, contents, strict=True))]
    for offset, piece in pieces:
        data[offset : offset + len(piece)] = piece
        for place in range(offset, offset + len(piece)):
            written[place] += 1
    assert set(written) <= {1}
    return bytes(data)


def encode(samples: dict[str, dict[str, bytes]]) -> bytes:
    return (
        b"".join(
            fill(layout_sample(key, [(name, len(data)) for name, data in members.items()]), list(members.values()))
            for key, members in samples.items()
        )
        + END_MARKER
    )


@given(SAMPLES)
def test_what_is_laid_out_is_read_back(samples: dict[str, dict[str, bytes]]) -> None:
    data = encode(samples)
    assert len(data) % 512 == 0
    named = [(f"{key}.{name}", content) for key, members in samples.items() for name, content in members.items()]
    assert [(member.name, content) for member, content in read_files(io.BytesIO(data), "s.tar")] == named
    scanned = list(scan_samples(io.BytesIO(data), "s.tar"))
    assert [sample.key for sample in scanned] == list(samples)
    offset = 0
    for sample in scanned:
        assert sample.offset == offset
        members = samples[sample.key]
        assert [member.extension for member in sample.members] == list(members)
        for member in sample.members:
            assert member.offset is not None
            content = data[member.offset : member.offset + member.size]
            assert content == members[member.extension]
            assert member.crc32c == google_crc32c.value(content)
        offset += layout_sample(sample.key, [(name, len(content)) for name, content in members.items()]).size


def test_bytes_of_a_shard_never_change() -> None:
    """A change here changes the digest of every dataset."""
    data = encode({"a/b": {"jpg": b"x" * 600, "cls": b"7"}})
    assert data[:600] == (
        b"a/b.jpg".ljust(100, b"\0")
        + b"0000444\0"
        + b"0000000\0" * 2
        + b"00000001130\0"
        + b"00000000000\0"
        + b"007101\x00 "
        + b"0"
        + bytes(100)
        + b"ustar\x0000"
        + bytes(247)
        + b"x" * 88
    )
    assert data[512 + 1024 :][:7] == b"a/b.cls"
    assert len(data) == 512 + 1024 + 512 + 512 + 1024


def test_holes_come_in_the_order_of_the_members_also_empty_ones() -> None:
    layout = layout_sample("k", [("b", 0), ("a", 1), ("c", 0)])
    assert [size for _, size in layout.holes] == [0, 1, 0]
    assert layout.size == 4 * 512


@pytest.mark.parametrize(
    ("key", "members"),
    [
        ("", [("jpg", 1)]),
        ("/a", [("jpg", 1)]),
        ("a/", [("jpg", 1)]),
        ("a//b", [("jpg", 1)]),
        ("a/../b", [("jpg", 1)]),
        ("..", [("jpg", 1)]),
        ("./a", [("jpg", 1)]),
        ("a\0", [("jpg", 1)]),
        ("a", [("", 1)]),
        ("a", [("jpg/", 1)]),
        ("a", [("x/y", 1)]),
        ("a", [("j\0g", 1)]),
        ("a", []),
        ("a", [("jpg", 1), ("JPG", 1)]),
        ("a", [("jpg", -1)]),
        ("a", [("jpg", 1 << 63)]),
        ("a" * 4100, [("jpg", 1)]),
        ("\ud800", [("jpg", 1)]),
        ("a", [("\ud800", 1)]),
    ],
)
def test_names_and_sizes_that_cannot_be_stored_are_refused(key: str, members: list[tuple[str, int]]) -> None:
    with pytest.raises(ValueError):
        layout_sample(key, members)


def test_layout_of_a_large_member_needs_no_data() -> None:
    layout = layout_sample("big", [("bin", 1 << 40), ("cls", 1)])
    assert layout.size == 512 + (1 << 40) + 512 + 512
    assert layout.holes == ((512, 1 << 40), (1024 + (1 << 40), 1))


@given(SAMPLES.filter(bool), st.data())
def test_flipped_bit_is_an_error_or_changes_only_data(
    samples: dict[str, dict[str, bytes]], data: st.DataObject
) -> None:
    whole = encode(samples)
    before = list(scan_samples(io.BytesIO(whole), "s.tar"))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    broken = bytearray(whole)
    broken[bit // 8] ^= 1 << bit % 8
    try:
        after = list(scan_samples(io.BytesIO(bytes(broken)), "s.tar"))
    except TarFormatError:
        return
    except SampleGroupError:
        assert is_in_long_name(whole, bit // 8)
        return
    if is_in_long_name(whole, bit // 8):
        # No checksum covers the data of a long-name entry, just like other data; a digest does.
        return
    assert [strip_crc(sample) for sample in after] == [strip_crc(sample) for sample in before]
    changed = [
        (mine, theirs)
        for old, new in zip(before, after, strict=True)
        for mine, theirs in zip(old.members, new.members, strict=True)
        if mine != theirs
    ]
    in_data = any(
        member.offset is not None and member.offset <= bit // 8 < member.offset + member.size
        for sample in before
        for member in sample.members
    )
    # The member's CRC-32C, which an index holds, tells every change of its data.
    assert len(changed) == in_data


def is_in_long_name(shard: bytes, offset: int) -> bool:
    return any(
        member.header_offset + 512 <= offset < member.offset - 512
        for member in read_members(io.BytesIO(shard), "s.tar")
    )


def strip_crc(sample: ScannedSample) -> tuple[str, int, list[tuple[str, int | None, int]]]:
    return sample.key, sample.offset, [(member.extension, member.offset, member.size) for member in sample.members]


@given(SAMPLES.filter(bool), st.data())
def test_cut_shard_is_an_error_and_gives_only_whole_samples(
    samples: dict[str, dict[str, bytes]], data: st.DataObject
) -> None:
    whole = encode(samples)
    cut = data.draw(st.integers(0, len(whole) - len(END_MARKER)))
    got: list[ScannedSample] = []
    with pytest.raises(TarFormatError):
        got.extend(scan_samples(io.BytesIO(whole[:cut]), "s.tar"))
    for sample in got:
        assert [member.extension for member in sample.members] == list(samples[sample.key])
    assert len(got) < len(samples)


def test_last_sample_is_not_given_before_the_end_marker() -> None:
    whole = encode({"a": {"txt": b"x", "cls": b"y"}})
    with pytest.raises(TarFormatError, match="no end-of-archive marker"):
        next(scan_samples(io.BytesIO(whole[:-1024]), "s.tar"))


def test_keyless_members_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    whole = encode({".hidden": {"txt": b"x"}, "a": {"txt": b"x"}, "._b": {"txt": b"x"}})
    grouper: SampleGrouper[tuple[int | None, int, int]] = SampleGrouper("s.tar")
    with caplog.at_level(logging.WARNING):
        assert [sample.key for sample in scan_samples(io.BytesIO(whole), "s.tar", grouper)] == ["a"]
    assert grouper.num_keyless == 2
    assert [record.message for record in caplog.records] == ["members without a key belong to no sample"]


def test_shard_of_keyless_members_only_is_an_error() -> None:
    whole = encode({".hidden": {"txt": b"x"}})
    with pytest.raises(SampleGroupError, match=r"members but no sample \(1 hidden\)"):
        list(scan_samples(io.BytesIO(whole), "s.tar"))


def test_another_key_rule_can_be_asked_for() -> None:
    whole = encode({"a": {"seg.png": b"x", "txt": b"y"}})
    grouper: SampleGrouper[tuple[int | None, int, int]] = SampleGrouper("s.tar", LAST_DOT)
    assert [sample.key for sample in scan_samples(io.BytesIO(whole), "s.tar", grouper)] == ["a.seg", "a"]


def test_empty_shard_has_no_samples() -> None:
    assert list(scan_samples(io.BytesIO(END_MARKER), "s.tar")) == []


def test_sparse_member_has_no_offset_but_a_crc_over_its_zeros() -> None:
    block = bytearray(512)
    block[:5] = b"a.bin"
    block[124:136] = b"00000000001\0"
    block[156:157] = b"S"
    block[257:265] = b"ustar  \0"
    block[386:410] = b"00000000000\x0000000000001\0"
    block[483:495] = b"00000001000\0"
    block[148:156] = b"%06o\0 " % sum(block[:148] + b" " * 8 + block[156:])
    data = bytes(block) + b"x".ljust(512, b"\0") + END_MARKER
    crc = google_crc32c.value(b"x".ljust(512, b"\0"))
    assert list(scan_samples(io.BytesIO(data), "s.tar")) == [
        ScannedSample("a", 0, (ScannedMember("bin", None, 512, crc),))
    ]
