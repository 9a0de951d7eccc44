"""What only bytes in columns can get wrong."""

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packer.sources.inline_read import InlineReader
from packer.sources.media import guess_extension
from packer.windows import order_in_windows
from shards.errors import DuplicateKeyError, FormatError, SourceError

JPG, PNG = b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n"


def scan(source):
    return source.scan(lambda: None)


def read_all(found):
    reader = found.origin.open_reader()
    files = found.files
    try:
        return {
            file.path.decode(): b"".join(reader.pieces(locator, file.size_bytes, file.stamp))
            for file, locator in zip(files, files.locators, strict=True)
        }
    finally:
        reader.close()


def write(path, rows, **options):
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def test_hugging_face_images_take_the_extension_of_their_path_or_content(tmp_path, source_of):
    rows = [
        {"image": {"bytes": JPG + b"1", "path": "x/y.JPEG"}, "label": 3},
        {"image": {"bytes": PNG + b"2", "path": None}, "label": None},
    ]
    found = scan(source_of(write(tmp_path / "train-00000-of-00001.parquet", rows)))
    assert read_all(found) == {
        "train-00000-of-00001-00000000.jpeg": JPG + b"1",
        "train-00000-of-00001-00000000.json": b'{"label": 3}',
        "train-00000-of-00001-00000001.png": PNG + b"2",
        "train-00000-of-00001-00000001.json": b'{"label": null}',
    }


def test_types_of_other_columns_are_kept(tmp_path, source_of):
    row = {
        "image": JPG,
        "when": dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC),
        "nan": float("nan"),
        "boxes": [[1, 2], [3, 4]],
        "tag": "x",
        "flag": True,
    }
    data = read_all(scan(source_of(write(tmp_path / "a.parquet", [row]))))
    assert json.loads(data["a-00000000.json"]) == {
        "when": "2026-01-02T03:04:00+00:00",
        "nan": None,
        "boxes": [[1, 2], [3, 4]],
        "tag": "x",
        "flag": True,
    }


def test_keys_come_from_a_column(tmp_path, source_of):
    path = write(tmp_path / "a.parquet", [{"id": 7, "image": JPG}, {"id": 5, "image": PNG}])
    assert read_all(scan(source_of(path, key_column="id"))) == {"7.jpg": JPG, "5.png": PNG}
    with pytest.raises(SourceError, match="has no column name; it has: id, image"):
        scan(source_of(path, key_column="name"))


@pytest.mark.parametrize(
    ("rows", "error", "part"),
    [
        ([{"id": "a", "image": JPG}, {"id": "a", "image": JPG}], DuplicateKeyError, "row 0, column image and .*row 1"),
        ([{"id": "a", "image": JPG, "mask": JPG}], DuplicateKeyError, "column image and .*column mask"),
        ([{"id": None, "image": JPG}], SourceError, "have no key in id"),
        ([{"id": "../a", "image": JPG}], SourceError, "components"),
        ([{"id": "a", "image": b"what is this"}], SourceError, "image: row 0 begins with b'what is this'"),
        ([{"id": "a", "image": {"bytes": None, "path": "x.jpg"}}], SourceError, "a path and no bytes"),
    ],
)
def test_what_cannot_be_packed_is_said(tmp_path, source_of, rows, error, part):
    schema = None
    if isinstance(rows[0]["image"], dict):
        image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        schema = pa.schema({"id": pa.string(), "image": image})
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "a.parquet")
    with pytest.raises(error, match=part):
        scan(source_of(tmp_path / "a.parquet", key_column="id", kind="inline"))


def test_extension_can_be_given(tmp_path, source_of):
    rows = [{"id": "a", "image": JPG, "mask": b"\1\2", "caption": "hi", "n": 1}]
    columns = (("mask", "bin"), ("caption", "txt"))
    found = scan(source_of(write(tmp_path / "a.parquet", rows), key_column="id", columns=columns))
    assert read_all(found) == {"a.jpg": JPG, "a.bin": b"\1\2", "a.txt": b"hi", "a.json": b'{"n": 1}'}


def test_missing_values_make_no_member_and_empty_rows_are_counted(tmp_path, source_of):
    rows = [{"image": JPG, "sound": None}, {"image": None, "sound": b"fLaC1"}, {"image": None, "sound": None}]
    found = scan(source_of(write(tmp_path / "a.parquet", rows)))
    assert read_all(found) == {"a-00000000.jpg": JPG, "a-00000001.flac": b"fLaC1"}
    assert found.skips.counts == {"no-value": 1}


def test_several_files_are_one_source(tmp_path, source_of):
    for split in ("train", "val"):
        (tmp_path / "d" / split).mkdir(parents=True)
        write(tmp_path / "d" / split / "0.parquet", [{"image": JPG + split.encode()}])
    expected = {"train/0-00000000.jpg": JPG + b"train", "val/0-00000000.jpg": JPG + b"val"}
    assert read_all(scan(source_of(tmp_path / "d/*/*.parquet"))) == expected
    assert read_all(scan(source_of(tmp_path / "d", kind="inline"))) == expected
    write(tmp_path / "d/val/1.parquet", [{"picture": JPG}])
    with pytest.raises(SourceError, match=r"1\.parquet has no column image, which .*train/0\.parquet has"):
        scan(source_of(tmp_path / "d", kind="inline"))


def test_damaged_file_is_said(tmp_path, source_of):
    (tmp_path / "a.arrow").write_bytes(b"nothing of the kind")
    with pytest.raises(FormatError, match="no Parquet or Arrow file"):
        scan(source_of(tmp_path / "a.arrow"))
    path = write(tmp_path / "b.parquet", [{"image": JPG}])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FormatError, match="Parquet"):
        scan(source_of(path))


@pytest.mark.parametrize("container", ["file", "stream"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_arrow_files_and_streams_are_read(tmp_path, source_of, container, compression):
    table = pa.Table.from_pylist([{"image": JPG + b"%d" % number} for number in range(10)])
    options = pa.ipc.IpcWriteOptions(compression=compression)
    make = pa.ipc.new_file if container == "file" else pa.ipc.new_stream
    with make(str(tmp_path / "a.arrow"), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=3)
    data = read_all(scan(source_of(tmp_path / "a.arrow")))
    assert data == {f"a-{number:08d}.jpg": JPG + b"%d" % number for number in range(10)}


def test_row_groups_are_read_about_once_in_shuffled_order(tmp_path, source_of, monkeypatch):
    for module in ("packer.windows", "packer.sources.inline_read"):
        monkeypatch.setattr(f"{module}.WINDOW_BYTES", 40_000)
    monkeypatch.setattr("packer.sources.inline_read._KEPT_BYTES", 80_000)
    rows = [{"image": JPG + bytes([number % 256]) * 1000} for number in range(400)]
    found = scan(source_of(write(tmp_path / "a.parquet", rows, row_group_size=10)))
    files = found.files
    assert len(files.parts) == 40
    samples = _one_member_samples(files)
    order = order_in_windows(range(400), samples, files, 0)
    assert sorted(order) == list(range(400))
    assert order != sorted(order)
    assert order_in_windows(range(400), samples, files, 0) == order
    assert order_in_windows(range(400), samples, files, 1) != order
    assert order_in_windows(range(400), samples, files, None) == list(range(400))
    assert len({files.batches[number] for number in order[:40]}) >= 3, "a window mixes several row groups"
    reader = found.origin.open_reader()
    assert isinstance(reader, InlineReader)
    for number in order:
        data = b"".join(reader.pieces(files.locators[number], files.sizes[number], files.stamps[number]))
        assert data == rows[number]["image"]
    assert reader.num_groups_read == 40
    reader.close()


def _one_member_samples(files):
    from array import array

    from packer.group import Samples

    count = len(files)
    return Samples(
        keys=[path.decode().rpartition(".")[0] for path in files.paths],
        first_member=array("Q", range(count + 1)),
        file_numbers=array("Q", range(count)),
        extension_codes=array("L", bytes(8 * count)),
        extensions=("jpg",),
    )


@pytest.mark.parametrize(
    ("head", "path", "extension"),
    [
        (b"RIFF....WEBPVP8 ", None, "webp"),
        (b"RIFF....WAVEfmt ", None, "wav"),
        (b"ID3\4", None, "mp3"),
        (b"\xff\xfb\x90", None, "mp3"),
        (b"GIF89a", None, "gif"),
        (b"\0\0\0 ftypisom", None, "mp4"),
        (b"\0\0\0 ftypavif", None, "avif"),
        (b"anything", "a/b.Opus", "opus"),
        (JPG, "no-suffix", "jpg"),
        (JPG, "a.b/c", "jpg"),
        (b"", None, None),
        (b"plain text", None, None),
    ],
)
def test_extension_is_told_by_path_or_content(head, path, extension):
    assert guess_extension(head, path) == extension
