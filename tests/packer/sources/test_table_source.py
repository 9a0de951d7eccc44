"""What only tables of paths can get wrong."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packer.sources.files import INLINE
from shards.errors import DuplicateKeyError, FormatError, SourceError


@pytest.fixture
def root(tmp_path):
    for name in ("a.jpg", "b.jpg", "deep/c.jpg"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff\xd8\xff" + name.encode())
    (tmp_path / "other.jpg").write_bytes(b"not part of it")
    return tmp_path / "data"


def scan(source):
    return source.scan(lambda: None)


def inline(found):
    files = found.files
    return {
        file.path.decode(): locator for file, locator in zip(files, files.locators, strict=True) if file.stamp == INLINE
    }


def write(root, name, text):
    path = root / name
    path.write_text(text, encoding="utf-8")
    return path


def test_other_columns_become_json_and_keep_their_types(root, source_of):
    path = write(
        root,
        "t.csv",
        "\ufefffile,label,zip code,score,seen,note\n"
        'a.jpg,3,007,1.50,true,"two, with\nnewline"\n'
        "b.jpg,-4,123,2,false,\n"
        "deep/c.jpg,,099,1e-3,true,x\n",
    )
    rows = {name: json.loads(data) for name, data in inline(scan(source_of(path))).items()}
    assert rows == {
        "a.json": {"label": 3, "zip code": "007", "score": 1.5, "seen": True, "note": "two, with\nnewline"},
        "b.json": {"label": -4, "zip code": "123", "score": 2.0, "seen": False, "note": ""},
        "deep/c.json": {"label": None, "zip code": "099", "score": 0.001, "seen": True, "note": "x"},
    }


def test_no_digit_of_a_number_is_lost(root, source_of):
    path = write(
        root,
        "t.csv",
        "file,id,big,longer,mixed,beyond\n"
        "a.jpg,1234567890123456789,18446744073709551615,18446744073709551616,9007199254740993,1e999\n"
        "b.jpg,-9223372036854775808,1,2,0.5,2\n",
    )
    rows = {name: json.loads(data) for name, data in inline(scan(source_of(path))).items()}
    assert rows == {
        "a.json": {
            "id": 1234567890123456789,
            "big": 2**64 - 1,
            "longer": "18446744073709551616",
            "mixed": "9007199254740993",
            "beyond": "1e999",
        },
        "b.json": {"id": -(2**63), "big": 1, "longer": "2", "mixed": "0.5", "beyond": "2"},
    }


def test_number_beyond_all_is_a_damaged_line(root, source_of):
    path = write(root, "t.jsonl", '{"path": "a.jpg", "x": 1e999}\n')
    with pytest.raises(SourceError, match="line 1: 1e999 is beyond what a number can be"):
        scan(source_of(path))


def test_columns_can_become_members_of_their_own(root, source_of):
    path = write(root, "t.tsv", "path\tlabel\tcaption\ta\tb\na.jpg\t3\tein Käse\t1\t2\n")
    found = scan(source_of(path, columns=(("label", "cls"), ("caption", "txt"))))
    assert inline(found) == {"a.cls": b"3", "a.txt": "ein Käse".encode(), "a.json": b'{"a": 1, "b": 2}'}


def test_jsonl_and_parquet_keep_what_they_say(root, source_of):
    row = {"path": "a.jpg", "big": 2**60, "list": [1, 2.5, None], "deep": {"x": "y"}, "none": None, "text": "7"}
    lines = write(root, "t.jsonl", json.dumps(row) + "\n\n")
    pq.write_table(pa.Table.from_pylist([row]), root / "t.parquet")
    expected = {name: value for name, value in row.items() if name != "path"}
    for path in (lines, root / "t.parquet"):
        assert json.loads(inline(scan(source_of(path)))["a.json"]) == json.loads(json.dumps(expected)), path


def test_path_column_is_found_or_asked_for(root, source_of):
    text = "id,image,thumb\n1,a.jpg,b.jpg\n"
    with pytest.raises(SourceError, match=r"several columns name files .*: image, thumb; say which with --path-column"):
        scan(source_of(write(root, "t.csv", text)))
    found = scan(source_of(root / "t.csv", path_column="thumb"))
    assert found.files.paths == [b"b.jpg", b"b.json"]
    with pytest.raises(SourceError, match="no column names files"):
        scan(source_of(write(root, "u.csv", "id,image\n1,nowhere.jpg\n")))
    with pytest.raises(SourceError, match="has no column picture; it has: id, image, thumb"):
        scan(source_of(root / "t.csv", path_column="picture"))


def test_all_missing_files_are_named(root, source_of):
    path = write(root, "t.csv", "path\na.jpg\nb.jpg\ndeep/c.jpg\nx1.jpg\ndeep\n")
    with pytest.raises(SourceError, match=r"2 file\(s\).*\n  x1.jpg: No such file.*\n  deep: is a directory"):
        scan(source_of(path))


@pytest.mark.parametrize("value", ["../other.jpg", "/etc/passwd", "deep/../../other.jpg"])
def test_path_that_leads_out_of_the_root_is_refused(root, source_of, value):
    path = write(root, "t.csv", f"path\n{value}\n")
    with pytest.raises(SourceError, match="lead outside"):
        scan(source_of(path, path_column="path"))


def test_paths_that_end_below_the_root_are_taken(root, source_of):
    path = write(root.parent, "t.csv", f"path\n{root}/a.jpg\n./deep/../b.jpg\ndeep//c.jpg\n")
    found = scan(source_of(path, root=str(root), path_column="path"))
    assert found.files.paths == [b"a.jpg", b"b.jpg", b"deep/c.jpg"]


def test_file_in_two_rows_is_refused(root, source_of):
    path = write(root, "t.csv", "path,x\na.jpg,1\nb.jpg,2\n./a.jpg,3\n")
    with pytest.raises(DuplicateKeyError, match=r"a\.jpg: .*row 1 and .*row 3"):
        scan(source_of(path))
    (root / "a.png").write_bytes(b"1")
    with pytest.raises(DuplicateKeyError, match=r"a\.png and a\.jpg: rows of the same key"):
        scan(source_of(write(root, "u.csv", "path,x\na.jpg,1\na.png,2\n")))


def test_row_without_a_path_is_counted(root, source_of):
    found = scan(source_of(write(root, "t.csv", "path,x\na.jpg,1\n,2\n")))
    assert found.skips.counts == {"no-value": 1}
    assert found.files.paths == [b"a.jpg", b"a.json"]


@pytest.mark.parametrize(
    ("name", "data", "error", "part"),
    [
        ("t.csv", b"path,x\na.jpg,1\nb.jpg\n", SourceError, "line 3: 1 fields, the header has 2"),
        ("t.csv", b"path,path\na.jpg,1\n", SourceError, "has to name each column once"),
        ("t.csv", b'path,x\na.jpg,"1\n', FormatError, "line"),
        ("t.csv", b"path,x\na.jpg,caf\xe9\n", FormatError, "not UTF-8"),
        ("t.jsonl", b'{"path": "a.jpg"}\n[1]\n{"path": NaN}\n', SourceError, "2 line"),
        ("t.parquet", b"PAR1 but no more", FormatError, "no Parquet"),
    ],
)
def test_damaged_table_is_said(root, source_of, name, data, error, part):
    Path(root, name).write_bytes(data)
    with pytest.raises(error, match=part):
        scan(source_of(root / name))


def test_keys_with_dots_get_their_json_beside_them(root, source_of):
    (root / "a.left.jpg").write_bytes(b"1")
    found = scan(source_of(write(root, "t.csv", "path,x\na.left.jpg,1\n")))
    assert found.files.paths == [b"a.json", b"a.left.jpg"]
    assert list(found.files.dots) == [1, 1]


def test_options_of_other_kinds_are_refused(root, source_of):
    path = write(root, "t.csv", "path\na.jpg\n")
    with pytest.raises(SourceError, match="--key-column mean"):
        source_of(path, key_column="x")
    with pytest.raises(SourceError, match="--column mean"):
        source_of(root, columns=(("x", "y"),))
