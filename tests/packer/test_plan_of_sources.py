"""Plans, checks, split lists and transforms of every kind of source, and of a dataset that is added to."""

import io
import json
import os
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packer.sources.files import SkipReason


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """The same four samples in a tree, a table, a tar, a compressed tar and a Parquet file; `c` lacks its caption."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    tree = {f"{key}.{extension}": f"{key}{extension}".encode() for key in "abcd" for extension in ("bin", "txt")}
    del tree["c.txt"]
    os.mkdir("tree")
    for name, data in tree.items():
        Path("tree", name).write_bytes(data)
    Path("list.csv").write_text("file\n" + "".join(f"tree/{name}\n" for name in tree))
    for name, mode in (("all.tar", "w"), ("all.tgz", "w:gz")):
        with tarfile.open(name, mode) as archive:
            for member, data in tree.items():
                info = tarfile.TarInfo(f"tree/{member}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    keys = list("abcd")
    columns = {extension: [tree.get(f"{key}.{extension}") for key in keys] for extension in ("bin", "txt")}
    pq.write_table(pa.table({"id": [f"tree/{key}" for key in keys], **columns}), "rows.parquet")
    return Path.cwd()


KINDS = {
    "tree": (["."], ["--source-kind", "tree", "--include", "tree/*"]),
    "table": (["list.csv"], []),
    "archive": (["all.tar"], []),
    "compressed": (["all.tgz"], []),
    "inline": (["rows.parquet"], ["--key-column", "id", "--column", "bin=bin", "--column", "txt=txt"]),
}


@pytest.fixture(params=KINDS)
def source(request, sources):
    arguments, options = KINDS[request.param]
    return [*arguments], options


def test_plan_knows_the_samples_of_every_kind(source, pack_here):
    arguments, options = source
    done = pack_here("plan", *arguments, *options, "--nodes", "2", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert (plan["num_samples"], plan["num_files"], plan["num_incomplete"]) == (4, 7, 1)
    assert pack_here("plan", *arguments, *options).returncode == 0


def test_incomplete_samples_are_left_out_and_verify_knows(source, pack_here, read_dataset):
    arguments, options = source
    refused = pack_here("build", *arguments, "../out", *options, "--require", "bin,txt", "--quiet")
    assert refused.returncode == 66
    assert "tree/c: no txt" in refused.stderr
    more = ["--require", "bin,txt", "--on-missing", "skip", "--quiet"]
    assert pack_here("build", *arguments, "../out", *options, *more).returncode == 0
    assert set(read_dataset("../out").samples("train")) == {"tree/a", "tree/b", "tree/d"}
    assert read_dataset("../out").manifest.source["skipped"][SkipReason.MISSING_MEMBER] == 1
    done = pack_here("verify", "../out", "--against", *arguments, "--quiet")
    assert done.returncode == 0, done.stderr


def test_lists_and_transforms_work_on_every_kind(source, pack_here, read_dataset):
    arguments, options = source
    Path("lists.tsv").write_text("tree/a\tval\ntree/b\ttrain\ntree/c\ttrain\n")
    Path("change.py").write_text("def twice(sample):\n    return sample | {'bin': sample['bin'] * 2}\n")
    lists = ["--split", "@lists.tsv", "--on-unlisted", "skip", "--quiet"]
    assert pack_here("build", *arguments, "../listed", *options, *lists).returncode == 0
    assert set(read_dataset("../listed").samples("train")) == {"tree/b", "tree/c"}
    assert pack_here("verify", "../listed", "--against", *arguments, "--quiet").returncode == 0
    command = ["build", *arguments, "../changed", *options, *lists, "--transform", "change:twice"]
    done = pack_here(*command)
    assert done.returncode == 0, done.stderr
    assert read_dataset("../changed").samples("val") == {"tree/a": {"bin": b"abinabin", "txt": b"atxt"}}
    assert "nothing to do" in pack_here(*command).stdout
    refused = pack_here("verify", "../changed", "--against", *arguments, "--quiet")
    assert refused.returncode == 66
    assert "--transform change:twice" in refused.stderr


def test_files_of_a_table_that_cannot_be_read_count_against_the_budget(sources, pack_here, read_dataset):
    os.unlink("tree/a.bin")
    assert "tree/a.bin" in pack_here("plan", "list.csv").stderr
    over = pack_here("plan", "list.csv", "--on-unreadable", "skip")
    assert over.returncode == 66
    assert "more than --max-skipped 1% of 7" in over.stderr
    skip = ["--on-unreadable", "skip", "--max-skipped", "1", "--quiet"]
    assert pack_here("build", "list.csv", "../out", *skip).returncode == 0
    assert read_dataset("../out").manifest.source["skipped"] == {"unreadable": 1}
    assert pack_here("verify", "../out", "--against", "list.csv", "--quiet").returncode == 0


@pytest.mark.parametrize("name", ["all.tar", "rows.parquet"])
def test_skipping_means_nothing_for_what_is_one_file(sources, pack_here, name):
    done = pack_here("plan", name, "--on-unreadable", "skip")
    assert done.returncode == 66
    assert "--on-unreadable mean(s) nothing" in done.stderr


def test_adding_goes_with_plan_and_transforms_do_not(sources, pack_here, read_dataset):
    assert pack_here("build", "tree", "../old", "--quiet").returncode == 0
    Path("tree/e.bin").write_bytes(b"e")
    planned = json.loads(pack_here("plan", "tree", "--append-to", "../old", "--json").stdout)
    assert (planned["num_samples"], planned["num_shards"]) == (1, 1)
    assert pack_here("build", "tree", "../new", "--append-to", "../old", "--quiet").returncode == 0
    assert set(read_dataset("../new").samples("train")) == set("abcde")
    refused = pack_here("plan", "tree", "--append-to", "../old", "--transform", "os:fspath")
    assert refused.returncode == 66
    assert "--append-to compares" in refused.stderr


@pytest.mark.parametrize("more", [[], ["--class-from-dir"]])
def test_plan_of_adding_nothing_says_so(sources, pack_here, more):
    Path("lists.tsv").write_text("tree/a\tval\ntree/b\ttrain\ntree/d\ttrain\n")
    checks = ["--require", "bin,txt", "--on-missing", "skip", "--split", "@lists.tsv", *more]
    options = [*KINDS["tree"][1], *checks, "--quiet"]
    built = pack_here("build", ".", "../old", *options)
    assert built.returncode == 0, built.stderr
    done = pack_here("plan", ".", *options, "--append-to", "../old", "--json")
    assert done.returncode == 0, done.stderr
    planned = json.loads(done.stdout)
    assert (planned["num_samples"], planned["num_shards"]) == (0, 0)
    assert [advice["topic"] for advice in planned["advice"]] == ["left-out"]
    shown = pack_here("plan", ".", *options, "--append-to", "../old", "--nodes", "2")
    assert shown.returncode == 0, shown.stderr
    assert "samples   0 from" in shown.stdout
