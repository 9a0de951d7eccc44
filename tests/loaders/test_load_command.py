"""The ``load`` program: what it prints, and how it ends when something is wrong."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from loaders.cli import cli
from shardferry.console import run_command


@pytest.fixture
def load(capfd, monkeypatch):
    """Run the program in this process; gives exit code, stdout, stderr."""
    monkeypatch.delenv("STAGE_CACHE_DIR", raising=False)

    def run(*arguments):
        code = run_command(cli, "load", [os.fspath(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_summary_shows_splits_extensions_and_first_keys(load, built_splits):
    code, out, err = load("inspect", built_splits.path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"dataset    {built_splits.dataset_id}"
    assert lines[1] == f"directory  {built_splits.path}"
    assert lines[2].startswith("format     tar, 5 shards, ")
    assert lines[3] == "classes    2: cat, dog"
    assert "split train: 12 samples in 3 shards, " in out
    assert "  seg.png          4        8        8 B" in lines
    assert "  first keys: v/00000, v/00001, v/00002" in lines


def test_summary_as_json_is_one_object(load, built_splits):
    code, out, _ = load("inspect", built_splits.path, "--split", "val", "--json", "--verify")
    summary = json.loads(out)
    assert code == 0
    assert summary["dataset_id"] == built_splits.dataset_id
    assert summary["is_verified"] is True
    assert summary["is_staged"] is False
    [split] = summary["splits"]
    assert (split["name"], split["num_samples"], split["num_shards"]) == ("val", 7, 2)
    assert {found["extension"]: found["num_present"] for found in split["extensions"]} == {
        "cls": 7,
        "jpg": 7,
        "seg.png": 2,
    }


def test_a_key_shows_where_its_members_lie(load, built):
    code, out, _ = load("inspect", built.path, "sample/00007", "--verify")
    assert code == 0
    assert out.startswith("sample  sample/00007, number 7 of split train\nshard   ")
    code, out, _ = load("inspect", built.path, "sample/00007", "--json")
    sample = json.loads(out)
    assert sample["shard_path"] == built.shard_path(1)
    with open(sample["shard_path"], "rb") as file:
        content = file.read()
    members = {
        member["extension"]: content[member["offset"] : member["offset"] + member["size_bytes"]]
        for member in sample["members"]
    }
    assert members == built.samples[7][1]


def test_a_key_is_looked_for_in_all_splits(load, built_splits):
    code, out, _ = load("inspect", built_splits.path, "v/00003", "--json")
    assert code == 0
    assert json.loads(out)["split"] == "val"
    code, _, err = load("inspect", built_splits.path, "v/00003", "--split", "train")
    assert code != 0
    assert "no sample of" in err
    assert "has the key v/00003; searched: train" in err
    assert "Traceback" not in err


def test_a_staged_dataset_is_shown_by_id_with_the_cache_from_the_environment(load, built, tmp_path, monkeypatch):
    digits = built.dataset_id.removeprefix("blake3:")
    shutil.copytree(built.path, tmp_path / "cache" / "datasets" / digits)
    code, out, _ = load("inspect", digits[:8], "--cache-dir", tmp_path / "cache")
    assert code == 0
    assert f"{digits} (staged)" in out
    monkeypatch.setenv("STAGE_CACHE_DIR", str(tmp_path / "cache"))
    assert load("inspect", digits[:8])[0] == 0


def test_verify_finds_a_flipped_bit_and_says_where(load, built):
    path = built.shard_path(2)
    os.chmod(path, 0o644)
    with open(path, "r+b") as file:
        file.seek(300)
        byte = file.read(1)[0]
        file.seek(300)
        file.write(bytes([byte ^ 1]))
    assert load("inspect", built.path)[0] == 0
    code, out, err = load("inspect", built.path, "--verify")
    assert (code, out) == (65, "")
    assert f"digest mismatch in {path} block 0" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["inspect"], 2, "Missing argument"),
        (["inspect", "nowhere"], 66, "nowhere does not exist; give a dataset directory"),
        (["inspect", "deadbeef"], None, "pass cache_dir or set STAGE_CACHE_DIR"),
        (["inspect", "."], 66, "has no manifest.json"),
        (["look"], 2, "No such command"),
    ],
)
def test_a_mistake_gives_one_clear_message(load, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    found, out, err = load(*arguments)
    assert found == code if code is not None else found > 1
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_a_wrong_split_lists_the_splits(load, built_splits):
    code, _, err = load("inspect", built_splits.path, "--split", "dev")
    assert code > 1
    assert "there is no split dev; the dataset has: train, val" in err


def test_control_characters_in_keys_do_not_reach_the_terminal(load, build, tmp_path):
    built = build(tmp_path / "evil", {"all": [("a\x1b[31mred", {"txt": b"x"})]})
    _, out, _ = load("inspect", built.path)
    assert "\x1b" not in out
    assert "first keys: a\\x1b[31mred" in out
    _, out, _ = load("inspect", built.path, "a\x1b[31mred")
    assert "\x1b" not in out


def test_the_module_runs_as_the_program(built):
    result = subprocess.run(
        [sys.executable, "-m", "loaders", "inspect", built.path], check=True, capture_output=True, text=True
    )
    assert built.dataset_id in result.stdout
