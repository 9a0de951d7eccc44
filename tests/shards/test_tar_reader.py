import bz2
import gzip
import io
import lzma
import os
import tarfile
import threading
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import TarFormatError
from shards.tar import MemberKind, TarLimits, TarMember, read_files, read_members
from shards.tar.header import BLOCK_BYTES


class Drip(io.RawIOBase):
    """A pipe that gives as many bytes at a time as a list of numbers says, over and over."""

    def __init__(self, data: bytes, counts: list[int]) -> None:
        self._data = data
        self._counts = counts
        self._at = 0
        self._turn = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        count = min(self._counts[self._turn % len(self._counts)], len(buffer), len(self._data) - self._at)
        self._turn += 1
        buffer[:count] = self._data[self._at : self._at + count]
        self._at += count
        return count


class SeekableDrip(Drip):
    """The same, but it can seek."""

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, len(self._data))[whence])
        return self._at

    def tell(self) -> int:
        return self._at


def header(name: bytes, size: int, typeflag: bytes = b"0", link: bytes = b"", **fields: bytes) -> bytes:
    """A header block made by hand; ``fields`` are named after their offset: ``at345=b"prefix"``."""
    block = bytearray(512)
    block[: len(name)] = name
    block[124:136] = b"%011o\0" % size
    block[156:157] = typeflag
    block[157 : 157 + len(link)] = link
    block[257:265] = b"ustar\x0000"
    for place, value in fields.items():
        offset = int(place.removeprefix("at"))
        block[offset : offset + len(value)] = value
    block[148:156] = b"%06o\0 " % sum(block[:148] + b" " * 8 + block[156:])
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK_BYTES)


def file(name: bytes, data: bytes) -> bytes:
    return header(name, len(data)) + padded(data)


def pax(records: bytes, typeflag: bytes = b"x") -> bytes:
    return header(b"PaxHeader", len(records), typeflag) + padded(records)


END = bytes(1024)


def files_of(data: bytes, limits: TarLimits | None = None) -> list[tuple[str, bytes]]:
    limits = TarLimits() if limits is None else limits
    return [(member.name, content) for member, content in read_files(io.BytesIO(data), "s.tar", limits=limits)]


def members_of(data: bytes) -> list[TarMember]:
    return list(read_members(io.BytesIO(data), "s.tar"))


MIXED = b"".join(
    [
        file(b"a.txt", b"alpha"),
        header(b"dir/", 0, b"5"),
        pax(b"18 path=dir/b.txt\n"),
        file(b"x", b"beta" * 400),
        header(b"empty.txt", 0),
        header(b"././@LongLink", 130, b"L") + padded(b"n" * 129 + b"\0"),
        file(b"n" * 100, b"gamma"),
        header(b"hole.bin", 512, b"S", at386=b"00000001000\x0000000001000\0", at483=b"00000004000\0") + b"h" * 512,
        header(b"big.bin", 30_000) + padded(b"big" * 10_000),
        file(b"z.txt", b"omega"),
        END,
    ]
)
MIXED_FILES = [
    ("a.txt", b"alpha"),
    ("dir/b.txt", b"beta" * 400),
    ("empty.txt", b""),
    ("n" * 129, b"gamma"),
    ("hole.bin", bytes(512) + b"h" * 512 + bytes(1024)),
    ("big.bin", b"big" * 10_000),
    ("z.txt", b"omega"),
]


def test_mixed_archive_is_read() -> None:
    assert files_of(MIXED) == MIXED_FILES
    members = members_of(MIXED)
    assert [member.kind for member in members].count(MemberKind.DIRECTORY) == 1
    for member in members:
        if member.kind is MemberKind.FILE and not member.extents:
            assert MIXED[member.offset : member.offset + member.size] == dict(MIXED_FILES)[member.name]
    sparse = next(member for member in members if member.extents)
    assert sparse.extents == ((512, 512, sparse.offset),)
    assert (sparse.size, sparse.stored_size) == (2048, 512)
    # A member starts where its first extended header does, and the members tile the shard.
    assert members[2].header_offset == members[1].offset
    assert members[2].offset == members[2].header_offset + 3 * BLOCK_BYTES


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 2000), min_size=1, max_size=8), st.booleans())
def test_every_way_of_cutting_the_input_gives_the_same(counts: list[int], can_seek: bool) -> None:
    drip = SeekableDrip if can_seek else Drip
    got = [(member.name, data) for member, data in read_files(drip(MIXED, counts), "s.tar")]  # type: ignore[arg-type]
    assert got == MIXED_FILES
    walked = list(read_members(drip(MIXED, counts), "s.tar"))  # type: ignore[arg-type]
    assert walked == members_of(MIXED)


@pytest.mark.parametrize("buffering", [0, -1, 100_000])
def test_real_file_is_read_the_same_and_from_where_it_stands(tmp_path: Path, buffering: int) -> None:
    path = tmp_path / "s.tar"
    path.write_bytes(b"skip me" + MIXED)
    with path.open("rb", buffering) as stream:
        stream.seek(7)
        assert list(read_members(stream, "s.tar")) == members_of(MIXED)
        stream.seek(7)
        assert [(member.name, data) for member, data in read_files(stream, "s.tar")] == MIXED_FILES


def test_pipe_is_read_the_same() -> None:
    reader, writer = os.pipe()

    def feed() -> None:
        with open(writer, "wb") as pipe:
            pipe.write(MIXED)

    thread = threading.Thread(target=feed)
    thread.start()
    with open(reader, "rb") as pipe:
        assert [(member.name, data) for member, data in read_files(pipe, "s.tar")] == MIXED_FILES
    thread.join()


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_shard_is_read_the_same_with_offsets_of_the_content(compress: object) -> None:
    data = compress(MIXED)  # type: ignore[operator]
    assert files_of(data) == MIXED_FILES
    assert members_of(data) == members_of(MIXED)


@pytest.mark.parametrize("name", [b"BZh91AY.txt", b"PK\x03\x04.txt", b"\x1f\x8b\x08.bin", b"(\xb5/\xfd.bin"])
def test_first_name_that_looks_compressed_is_only_a_name(name: bytes) -> None:
    assert files_of(file(name, b"x") + END) == [(name.decode("utf-8", "surrogateescape"), b"x")]


@pytest.mark.parametrize("can_seek", [True, False])
def test_every_cut_is_an_error_and_gives_only_whole_files(can_seek: bool) -> None:
    whole = MIXED[: -len(END)]
    drip = SeekableDrip if can_seek else Drip
    cuts = [*range(0, len(whole), 97), *range(0, len(whole) + 1, BLOCK_BYTES)]
    for cut in cuts:
        got: list[tuple[TarMember, bytes]] = []
        with pytest.raises(TarFormatError) as caught:
            got.extend(read_files(drip(whole[:cut], [4096]), "s.tar"))  # type: ignore[arg-type]
        assert [(member.name, data) for member, data in got] == MIXED_FILES[: len(got)]
        assert caught.value.offset is not None
        assert caught.value.offset <= cut
        assert "s.tar at byte offset" in str(caught.value)


def test_cut_at_a_member_edge_may_be_allowed_and_no_other() -> None:
    data = file(b"a.txt", b"x") * 2
    allowed = read_files(io.BytesIO(data), "s.tar", require_end_marker=False)
    assert [member.name for member, _ in allowed] == ["a.txt", "a.txt"]
    with pytest.raises(TarFormatError, match="no end-of-archive marker"):
        files_of(data)
    for cut in (1, 511, 513, 1023):
        with pytest.raises(TarFormatError, match="truncated"):
            list(read_files(io.BytesIO(data[:-cut]), "s.tar", require_end_marker=False))


def test_empty_file_is_no_empty_archive() -> None:
    with pytest.raises(TarFormatError, match="the file is empty"):
        files_of(b"")
    assert files_of(END) == []
    assert files_of(bytes(512)) == []


@pytest.mark.parametrize("gap", [0, 1, 5, 700])
def test_member_after_the_end_marker_is_an_error(gap: int) -> None:
    data = file(b"a.txt", b"x") + bytes(512 * (1 + gap)) + file(b"b.txt", b"y") + END
    with pytest.raises(TarFormatError, match="data after the end-of-archive marker at 1024: another member") as caught:
        files_of(data)
    assert caught.value.offset == 1024 + 512 * (1 + gap)


@pytest.mark.parametrize("tail", [b"x", bytes(100) + b"x", bytes(300_000) + b"garbage" * 100])
def test_other_bytes_after_the_end_marker_are_an_error(tail: bytes) -> None:
    with pytest.raises(TarFormatError, match="data after the end-of-archive marker"):
        files_of(MIXED + tail)


def test_zeros_after_the_end_marker_are_taken() -> None:
    assert files_of(MIXED + bytes(300_001)) == MIXED_FILES


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (pax(b"12 size=512\n", b"g"), "global header sets size"),
        (pax(b"9 path=a\n") + pax(b"9 path=b\n"), "two extended headers"),
        (pax(b"9 path=a\n") + header(b"././@LongLink", 2, b"L") + padded(b"b\0"), "two values for path"),
        (pax(b"12 path=a\0b\n"), "zero byte in the name"),
        (pax(b"11 size=-1\n"), "bad number in PAX size"),
        (header(b"x", 1 << 30, b"x"), "metadata of 1073741824 bytes is over the limit"),
        (header(b"x", 1 << 20, b"L"), "metadata of 1048576 bytes is over the limit"),
        (pax(b"22 GNU.sparse.major=2\n"), "unknown version"),
        (header(b"a", 3, b"Z"), "unknown typeflag"),
        (header(b"a", 3, b"M"), "continued from another volume"),
        (header(b"a/", 3, b"0"), "a directory with 3 bytes"),
        (header(b"a", 512, b"S", at386=b"00000000000\x0000000001000\0"), "bad sparse map"),
        (header(b"a", 512, b"S", at482=b"\1"), "truncated|bad sparse map|checksum"),
    ],
)
def test_ambiguous_or_hostile_header_is_refused(entry: bytes, reason: str) -> None:
    with pytest.raises(TarFormatError, match=reason):
        files_of(entry + file(b"a.txt", b"x") + END)


@pytest.mark.parametrize("before", [pax(b"9 path=a\n"), header(b"././@LongLink", 2, b"L") + padded(b"b\0")])
def test_extended_header_without_a_member_is_refused(before: bytes) -> None:
    for after in (b"", END):
        with pytest.raises(TarFormatError, match="extended header without a member") as caught:
            files_of(file(b"a.txt", b"x") + before + after)
        assert caught.value.offset == 1024


def test_name_over_the_limit_is_refused_with_its_length() -> None:
    data = pax(b"117 path=" + b"n" * 107 + b"\n") + file(b"a", b"x") + END
    assert files_of(data, TarLimits(max_name_bytes=107))[0][0] == "n" * 107
    with pytest.raises(TarFormatError, match="name of 107 bytes is over the limit of 106"):
        files_of(data, TarLimits(max_name_bytes=106))


def test_lying_size_costs_no_memory() -> None:
    for size in (1 << 30, 1 << 32, (8**11) - 1):
        data = header(b"a.bin", size) + b"x" * 512
        for can_seek in (SeekableDrip, Drip):
            with pytest.raises(TarFormatError, match="truncated member data"):
                list(read_files(can_seek(data, [512]), "s.tar"))  # type: ignore[arg-type]


def test_member_over_the_limits_is_named() -> None:
    with pytest.raises(TarFormatError, match=r"member big\.bin of 30000 bytes is over the limit of 29999"):
        files_of(MIXED, TarLimits(max_member_bytes=29_999))
    with pytest.raises(TarFormatError, match=r"member hole\.bin of 2048 bytes has 1536 bytes of holes"):
        files_of(MIXED, TarLimits(max_hole_bytes=1535))
    with pytest.raises(ValueError, match="max_hole_bytes must be positive"):
        TarLimits(max_hole_bytes=0)


def test_all_hole_member_is_zeros() -> None:
    data = header(b"hole", 0, b"S", at483=b"00000004000\0") + file(b"b", b"x") + END
    assert members_of(data)[0].extents == ((2048, 0, 512),)
    assert files_of(data) == [("hole", bytes(2048)), ("b", b"x")]


def test_star_keeps_times_behind_a_shorter_prefix() -> None:
    block = header(b"n", 1, at345=b"p".ljust(131, b"\0") + b"00000000001 ", at508=b"tar\0")
    assert members_of(block + padded(b"x") + END)[0].name == "p/n"


class TestHardLinks:
    def test_link_gives_the_earlier_file(self) -> None:
        data = (
            file(b"./a.txt", b"first")
            + header(b"b.txt", 0, b"1", b"a.txt")
            + header(b"c.txt", 0, b"1", b"b.txt")
            + file(b"a.txt", b"second")
            + header(b"d.txt", 0, b"1", b"/a.txt")
            + header(b"e.txt", 0, b"1", b"c.txt")
            + END
        )
        assert [content for _, content in files_of(data)] == [b"first"] * 3 + [b"second"] * 2 + [b"first"]

    def test_link_to_a_sparse_file_fills_its_holes(self) -> None:
        data = MIXED[:-1024] + header(b"link", 0, b"1", b"hole.bin") + END
        assert files_of(data)[-1] == ("link", dict(MIXED_FILES)["hole.bin"])

    @pytest.mark.parametrize("target", [b"later.txt", b"", b"b.txt", b"dir", b"gone.txt", b"../a.txt"])
    def test_link_to_no_earlier_file_is_refused(self, target: bytes) -> None:
        data = (
            file(b"a.txt", b"x")
            + header(b"dir", 0, b"5")
            + file(b"gone.txt", b"x")
            + header(b"gone.txt", 0, b"2", b"a.txt")
            + header(b"b.txt", 0, b"1", target)
            + file(b"later.txt", b"x")
            + END
        )
        with pytest.raises(TarFormatError, match=r"hard link b\.txt to .* does not name an earlier file") as caught:
            files_of(data)
        assert caught.value.offset == 1024 + 512 + 1024 + 512

    @pytest.mark.parametrize("wrap", [gzip.compress, None])
    def test_link_in_a_stream_is_refused(self, wrap: object) -> None:
        data = file(b"a.txt", b"x") + header(b"b.txt", 0, b"1", b"a.txt") + END
        stream: BinaryIO = io.BytesIO(gzip.compress(data)) if wrap else Drip(data, [512])  # type: ignore[assignment]
        with pytest.raises(TarFormatError, match="cannot be resolved in a pipe or a compressed stream"):
            list(read_files(stream, "s.tar"))


def test_entries_without_data_are_members_but_no_files() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"000001.{kind.decode()}")
            info.type = kind
            info.linkname = "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            archive.addfile(info)
    members = members_of(buffer.getvalue())
    assert [member.kind for member in members] == [
        MemberKind.SYMLINK,
        MemberKind.DIRECTORY,
        MemberKind.CHARACTER_DEVICE,
        MemberKind.BLOCK_DEVICE,
        MemberKind.FIFO,
    ]
    assert members[0].link_name == "/etc/passwd"
    assert files_of(buffer.getvalue()) == []


def test_reading_leaves_the_stream_open(tmp_path: Path) -> None:
    path = tmp_path / "s.tar"
    path.write_bytes(MIXED)
    with path.open("rb") as stream:
        list(read_members(stream, "s.tar"))
        assert not stream.closed


def test_error_of_reading_itself_is_no_format_error() -> None:
    class Broken(Drip):
        def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
            if self._at > 3000:
                raise OSError(5, "Input/output error")
            return super().readinto(buffer)

    with pytest.raises(OSError, match="Input/output error"):
        list(read_files(Broken(MIXED, [512]), "s.tar"))  # type: ignore[arg-type]


def test_extended_header_that_says_nothing_of_use_changes_nothing() -> None:
    times = pax(b"20 mtime=1700000.50\n")
    data = times + file(b"a.txt", b"alpha") + times + pax(b"9 path=b\n") + file(b"x", b"beta") + END
    assert files_of(data) == [("a.txt", b"alpha"), ("b", b"beta")]
    assert [(member.header_offset, member.offset) for member in members_of(data)] == [(0, 1536), (2048, 4608)]
