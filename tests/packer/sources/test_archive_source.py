"""What only archives can get wrong."""

import gzip
import io
import os
import struct
import tarfile
import zipfile

import pytest

from packer.cut import plan_shards
from packer.group import CaseCollisions, DottedNames, GroupOptions, KeylessNames, group_files
from packer.labels import split_samples
from packer.plan import PlanContent, PlanOptions
from packer.sources.archive_read import ArchiveReader
from packer.sources.chunks import CHUNK_BYTES
from packer.splits import OneSplit
from shards.errors import DuplicateKeyError, FormatError, SourceError, TarFormatError
from shards.formats import FORMATS
from shards.keys import FIRST_DOT


def scan(source):
    return source.scan(lambda: None)


def read(found, name):
    files = found.files
    number = files.paths.index(name.encode())
    reader = found.origin.open_reader()
    try:
        return b"".join(reader.pieces(files.locators[number], files.sizes[number], files.stamps[number]))
    finally:
        reader.close()


def write_tar(path, members, mode="w"):
    """(name, data) pairs, or TarInfo for what has no data."""
    with tarfile.open(path, mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            name, data = member
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def link(name, target, kind):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def counts(found):
    return {reason.value: count for reason, count in found.skips.counts.items()}


def test_hard_link_gives_the_data_and_symbolic_link_is_counted(tmp_path, source_of):
    path = write_tar(
        tmp_path / "a.tar",
        [
            ("./d/a.jpg", b"data"),
            link("d/b.jpg", "d/a.jpg", tarfile.LNKTYPE),
            link("d/c.jpg", "a.jpg", tarfile.SYMTYPE),
            link("d/fifo.jpg", "", tarfile.FIFOTYPE),
        ],
    )
    found = scan(source_of(path))
    assert found.files.paths == [b"d/a.jpg", b"d/b.jpg"]
    assert read(found, "d/b.jpg") == b"data"
    assert counts(found) == {"symlink": 1, "special-file": 1}


def test_holes_of_a_sparse_member_are_zeros(tmp_path, source_of):
    data = tmp_path / "hole.bin"
    with open(data, "wb") as file:
        file.write(b"head")
        file.truncate(3_000_000)
        file.seek(2_500_000)
        file.write(b"tail")
    status = os.system(f"cd {tmp_path} && tar --sparse -cf s.tar hole.bin")
    assert status == 0
    assert (tmp_path / "s.tar").stat().st_size < 1_000_000, "this filesystem keeps no holes"
    assert read(scan(source_of(tmp_path / "s.tar")), "hole.bin") == data.read_bytes()


@pytest.mark.parametrize("name", ["../../etc/x.jpg", "a/../b.jpg", "a//b.jpg"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_name_that_leads_elsewhere_is_refused(tmp_path, source_of, kind, name):
    path = tmp_path / f"a.{kind}"
    if kind == "tar":
        write_tar(path, [(name, b"1"), ("good.jpg", b"2")])
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, b"1")
    with pytest.raises(SourceError, match="components"):
        scan(source_of(path))


def test_same_name_twice_is_an_error_that_names_the_archives(tmp_path, source_of):
    write_tar(tmp_path / "a.tar", [("x.jpg", b"1"), ("y.jpg", b"1"), ("y.jpg", b"2")])
    write_tar(tmp_path / "b.tar", [("x.jpg", b"3")])
    with pytest.raises(DuplicateKeyError, match=r"x\.jpg: in .*a\.tar and in .*b\.tar\n.*y\.jpg: twice in .*a\.tar"):
        scan(source_of(tmp_path / "*.tar"))


def test_content_says_what_an_archive_is(tmp_path, source_of):
    path = tmp_path / "zip-inside.tar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.jpg", b"1")
    assert read(scan(source_of(path)), "a.jpg") == b"1"
    (tmp_path / "a.tar").write_bytes(gzip.compress(write_tar(tmp_path / "p.tar", [("a.jpg", b"2")]).read_bytes()))
    assert read(scan(source_of(tmp_path / "a.tar")), "a.jpg") == b"2"


def test_cut_archive_is_an_error(tmp_path, source_of):
    path = write_tar(tmp_path / "a.tar", [("a.jpg", b"1" * 5000), ("b.jpg", b"2")])
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(TarFormatError):
        scan(source_of(path))
    path.write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(FormatError, match="no zip that can be read"):
        scan(source_of(path))


def encrypted(data: bytes) -> bytes:
    patched = bytearray(data)
    patched[6] |= 1
    patched[patched.index(b"PK\x01\x02") + 8] |= 1
    return bytes(patched)


def claiming(data: bytes, size: int) -> bytes:
    patched = bytearray(data)
    struct.pack_into("<I", patched, patched.index(b"PK\x01\x02") + 24, size)
    return bytes(patched)


def overlapping(data: bytes) -> bytes:
    patched = bytearray(data)
    second = patched.index(b"PK\x01\x02", patched.index(b"PK\x01\x02") + 1)
    struct.pack_into("<I", patched, second + 42, 0)
    return bytes(patched)


@pytest.fixture
def zipped(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jpg", bytes(100_000))
        archive.writestr("b.jpg", b"some bytes")
    return path


@pytest.mark.parametrize(
    ("spoil", "error", "part"),
    [
        (encrypted, SourceError, "encrypted"),
        (lambda data: claiming(data, 4_000_000_000), FormatError, "claims to hold 4000000000 bytes"),
        (overlapping, FormatError, "overlaps"),
        (lambda data: data.replace(b"\x08\0", b"\x63\0"), SourceError, "method 99"),
    ],
    ids=["encrypted", "ratio", "overlap", "method"],
)
def test_hostile_zip_is_refused_before_anything_is_written(zipped, source_of, spoil, error, part):
    zipped.write_bytes(spoil(zipped.read_bytes()))
    with pytest.raises(error, match=part):
        scan(source_of(zipped))


def test_zip_member_with_other_data_than_promised_is_never_packed(zipped, source_of):
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("a.jpg", b"0123456789")
    zipped.write_bytes(zipped.read_bytes().replace(b"0123456789", b"0123456780"))
    with pytest.raises(FormatError, match="CRC-32"):
        read(scan(source_of(zipped)), "a.jpg")


@pytest.mark.parametrize("size", [5, 99_999, 100_001], ids=["much longer", "longer", "shorter"])
def test_zip_member_with_another_size_than_promised_is_never_packed(zipped, source_of, size):
    zipped.write_bytes(claiming(zipped.read_bytes(), size))
    with pytest.raises(FormatError, match=r"is longer|ends 1 bytes early"):
        read(scan(source_of(zipped)), "a.jpg")


def test_zip_names_without_the_flag_are_utf8_when_they_can_be(tmp_path, source_of):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("caf\u00e9.jpg", b"1")
    flagged = path.read_bytes()
    path.write_bytes(flagged.replace(b"\0\x08\0\0", b"\0\0\0\0").replace(b"\x08\0\0\0", b"\0\0\0\0"))
    with zipfile.ZipFile(path) as archive:
        flags = archive.infolist()[0].flag_bits
    found = scan(source_of(path))
    assert found.files.paths == ["café.jpg".encode()], flags


def big_tar(path, *, order):
    """Some 40 MiB in 20 samples of two members, compressed; order is a sort key of names."""
    names = [f"{number:04d}.{ext}" for number in range(20) for ext in ("bin", "txt")]
    data = {name: bytes([int(name[:4])]) * (2_000_000 if name.endswith("bin") else 10) for name in names}
    plain = write_tar(path.with_suffix(""), [(name, data[name]) for name in sorted(names, key=order)])
    path.write_bytes(gzip.compress(plain.read_bytes(), 1))
    plain.unlink()
    return data


def shard_order(source):
    found = scan(source)
    options = GroupOptions(
        key_rule=FIRST_DOT,
        dotted=DottedNames.ERROR,
        keyless=KeylessNames.ERROR,
        case_collisions=CaseCollisions.ERROR,
    )
    samples, _ = group_files(found.files, options)
    content = PlanContent(found.files, samples, split_samples(samples, found.files, OneSplit("train")))
    plan_options = PlanOptions(
        format_name="tar", suffix=".tar", end_marker_bytes=1024, shard_size_bytes=6_000_000, shuffle_seed=0
    )
    return found, plan_shards(content, plan_options, FORMATS["tar"])


def test_compressed_tar_is_streamed_once(tmp_path, source_of):
    data = big_tar(tmp_path / "a.tar.gz", order=lambda name: name)
    found, plan = shard_order(source_of(tmp_path / "a.tar.gz"))
    assert len(plan.shards) > 5
    reader = found.origin.open_reader()
    assert isinstance(reader, ArchiveReader)
    for number in range(len(plan.shards)):
        shard = plan.shard_plan(number)
        keys = [key for key, count in zip(shard.keys, shard.num_members, strict=True) for _ in range(count)]
        for key, extension, locator, size, stamp in zip(
            keys, shard.extensions, shard.sources, shard.sizes, shard.stamps, strict=True
        ):
            assert b"".join(reader.pieces(locator, size, stamp)) == data[f"{key}.{extension}"]
    assert reader.num_stream_starts == 1
    reader.close()


def test_sample_that_is_scattered_over_a_compressed_tar_is_refused(tmp_path, source_of, monkeypatch):
    monkeypatch.setattr("packer.windows.WINDOW_BYTES", 4 * CHUNK_BYTES)
    big_tar(tmp_path / "a.tar.gz", order=lambda name: name[::-1])
    with pytest.raises(SourceError, match=r"11 sample.*far apart"):
        shard_order(source_of(tmp_path / "a.tar.gz"))


def test_directory_of_archives_has_to_be_called_one(tmp_path, source_of):
    write_tar(tmp_path / "a.tar", [("a.jpg", b"1")])
    write_tar(tmp_path / "b.tar", [("b.jpg", b"2")])
    (tmp_path / "notes.md").write_text("not an archive")
    assert source_of(tmp_path).kind == "tree"
    found = scan(source_of(tmp_path, kind="archive"))
    assert found.files.paths == [b"a.jpg", b"b.jpg"]
