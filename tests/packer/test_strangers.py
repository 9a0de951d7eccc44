"""What people type who have never seen the program, and what they find lying about: refused in one line, never a trace.

Each case says the exit status and what the message has to name. Names of files are those of ``tests/packer/nasty``.
"""

import json
import os
from pathlib import Path

import pytest

from packer.saved import PLAN_VERSION


@pytest.fixture
def place(make_tree, tmp_path, monkeypatch):
    """A small source, and the directory it lies in as the current one."""
    make_tree({"1.txt": b"1", "2.txt": b"22", "3.txt": b"333"}, name="src")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("not a directory")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("build", "", "out"), 2, "SOURCE is empty"),
        (("build", "src", ""), 2, "DESTINATION is empty"),
        (("build", "s3://", "out"), 2, "SOURCE s3:// names no bucket"),
        (("build", "src", "s3:///prefix"), 2, "DESTINATION s3:///prefix names no bucket"),
        (("build", "src", "src"), 66, "lies inside the source"),
        (("build", "src", "src/out"), 66, "lies inside the source"),
        (("build", "src", "new/../src/out"), 66, "lies inside the source"),
        (("build", "src", "file"), 73, "file is no directory"),
        (("build", "src", "file/below"), 73, "is no directory"),
        (("build", "src", "loop"), 73, "loop is no directory"),
        (("build", "loop", "out"), 66, "a symbolic link that leads nowhere"),
        (("build", "nothing", "out"), 66, "there is no nothing"),
        (("build", "empty", "out"), 66, "there is no file to pack in empty"),
        (("build", "file", "out"), 66, "no source that is known by its name"),
        (("build", "src", "out", "--split", "@nothing"), 2, "cannot read the list nothing"),
        (("build", "src", "out", "--split", "@src"), 2, "cannot read the list src"),
        (("build", "src", "out", "--split", "a=0.5,b=0.6"), 2, "sum to 1.1"),
        (("build", "src", "out", "--shard-size", "-1"), 2, "is not a size"),
        (("build", "src", "out", "--shard-size", "4096", "--jobs", "0"), 2, "--jobs"),
        (("build", "src", "out", "--key-rule", "regex:("), 64, "regex:("),
        (("build", "src", "out", "--key-rule", "regex:x"), 64, "(?P<key>"),
        (("build", "src", "out", "--transform", "no_such:thing"), 2, "no_such"),
        (("build", "src", "out", "--include", "*.jpg"), 66, "*.jpg"),
        (("build", "src", "out", "--root", "."), 66, "--root mean(s) nothing"),
        (("build", "src", "out", "--append-to", "nothing"), 66, "nothing"),
        (("build", "src", "nonsense://x/y"), 69, "nonsense"),
        (("plan", "nothing"), 66, "there is no nothing"),
        (("verify", "nothing"), 66, "there is no dataset directory nothing"),
        (("verify", "src"), 66, "has no manifest.json"),
        (("ls", "file"), 66, "there is no dataset directory file"),
        (("inspect", "empty"), 66, "has no manifest.json"),
        (("adopt", "src"), 66, "there is no shard"),
        (("adopt", "nothing"), 66, "nothing is no directory"),
    ],
)
def test_what_cannot_be_is_refused_in_words(place, pack_here, args, code, words):
    before = sorted(os.listdir(place))
    done = pack_here(*args)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(place)) == before, "a refusal leaves no trace"


def saved_plan(**changes):
    plan = json.loads(Path("out/.pack/plan.json").read_text())
    return json.dumps(plan | changes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: "", "cannot be used"),
        (lambda: "no JSON", "cannot be used"),
        (lambda: "[]", "cannot be used"),
        (lambda: saved_plan()[:-40], "cannot be used"),
        (lambda: saved_plan(num_files="many"), "cannot be used"),
        (lambda: saved_plan(classes=["altered"]), "was altered"),
        (lambda: saved_plan(plan_version=PLAN_VERSION + 1), "another release of shardferry began this"),
    ],
)
def test_saved_plan_that_cannot_be_used_is_refused_until_overwritten(place, pack_here, make, words):
    assert pack_here("build", "src", "out", "--quiet").returncode == 0
    before = Path("out/manifest.json").read_bytes()
    Path("out/.pack/plan.json").chmod(0o644)
    Path("out/.pack/plan.json").write_text(make())
    done = pack_here("build", "src", "out", "--quiet")
    assert done.returncode == 73
    assert words in done.stderr
    assert "--overwrite" in done.stderr
    assert Path("out/manifest.json").read_bytes() == before
    assert pack_here("build", "src", "out", "--quiet", "--overwrite").returncode == 0
    assert Path("out/manifest.json").read_bytes() == before


def test_extraction_into_a_file_is_refused(place, pack_here):
    assert pack_here("build", "src", "out", "--quiet").returncode == 0
    done = pack_here("extract", "out", "file")
    assert done.returncode == 73
    assert "cannot extract into file" in done.stderr
    assert Path("file").read_text() == "not a directory"


def test_lists_of_other_systems_have_marks_and_line_ends_of_their_own(place, pack_here, read_dataset):
    Path("split.txt").write_bytes(b"\xef\xbb\xbf1\ttrain\r\n2\tval\r\n3\ttrain\r\n")
    assert pack_here("build", "src", "out", "--split", "@split.txt", "--quiet").returncode == 0
    manifest = read_dataset("out").manifest
    assert {split.name: split.num_samples for split in manifest.splits} == {"train": 2, "val": 1}


def test_plan_of_adding_counts_only_what_is_new(place, pack_here):
    assert pack_here("build", "src", "out", "--quiet").returncode == 0
    Path("src/new.txt").write_bytes(b"new")
    Path("src/none.txt").write_bytes(b"")
    facts = json.loads(pack_here("plan", "src", "--append-to", "out", "--json").stdout)
    assert (facts["num_samples"], facts["num_files"], facts["source_bytes"]) == (2, 2, 3)
    assert sum(found["num_files"] for found in facts["file_sizes"]) == 2
    assert [shard["name"] for shard in facts["shards"]] == ["train-000001.tar"]
    (Path("src") / "none.txt").unlink()
    (Path("src") / "new.txt").unlink()
    nothing = json.loads(pack_here("plan", "src", "--append-to", "out", "--json").stdout)
    assert (nothing["num_samples"], nothing["num_files"], nothing["shards"]) == (0, 0, [])
