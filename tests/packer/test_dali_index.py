"""Index files for DALI; that DALI reads them is tested in tests/interop/test_interop_frameworks.py."""

from pathlib import Path

import pytest

from packer.dali_index import record_index_lines, tar_index_lines
from packer.samples_of import ListedSample
from shards.errors import SourceError
from shards.index import IndexedMember


def sample(key, *members):
    return ListedSample("train", "a.tar", 0, key, tuple(IndexedMember(*member, 0) for member in members))


def test_lines_are_those_of_wds2idx():
    samples = [sample("a/b", ("jpg", 512, 10), ("txt", 1536, 2)), sample("c", ("left.png", 2560, 1))]
    lines = ["v1.2 2\n", "jpg 512 10 a/b.jpg txt 1536 2 a/b.txt\n", "left.png 2560 1 c.left.png\n"]
    assert list(tar_index_lines(samples)) == lines


def test_names_with_blanks_are_left_out_and_extensions_with_blanks_refused():
    assert list(tar_index_lines([sample("a b", ("jpg", 512, 10))])) == ["v1.1 1\n", "jpg 512 10\n"]
    with pytest.raises(SourceError, match=r"a\.j pg has a blank in its extension"):
        list(tar_index_lines([sample("a", ("j pg", 512, 10))]))


def test_records_end_where_the_next_begins():
    assert list(record_index_lines([0, 10, 25], 40)) == ["0 10\n", "10 15\n", "25 15\n"]
    assert list(record_index_lines([], 0)) == []


@pytest.mark.parametrize("format_name", ["tar", "tfrecord"])
def test_command_writes_a_file_for_each_shard_outside_of_the_dataset(make_tree, pack_here, tmp_path, format_name):
    source, out, target = make_tree({"a.txt": b"12", "b.txt": b"3"}), tmp_path / "out", tmp_path / "x" / "indexes"
    assert pack_here("build", source, str(out), "--no-shuffle", "--format", format_name, "--quiet").returncode == 0
    done = pack_here("dali-index", str(out), str(target))
    assert done.returncode == 0, done.stderr
    [index] = target.iterdir()
    [shard] = out.glob(f"*.{format_name}")
    assert index.name == f"{shard.name}.idx"
    if format_name == "tar":
        assert index.read_text() == "v1.2 2\ntxt 512 2 a.txt\ntxt 1536 1 b.txt\n"
    else:
        assert index.read_text().startswith("0 ")
        assert sum(int(line.split()[1]) for line in index.read_text().splitlines()) == shard.stat().st_size
    Path(tmp_path, "file").write_text("")
    done = pack_here("dali-index", str(out), str(tmp_path / "file"))
    assert done.returncode == 73
    assert "Traceback" not in done.stderr
