"""Every nasty tree against its expected report, and what was packed against readers that are not ours."""

import json
import os
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

from loaders import open_dataset
from tests.packer.nasty.entries import CannotPlantError
from tests.packer.nasty.observe import make_place, observe, read_tar_members, run_pack
from tests.packer.nasty.trees import TREES

EXPECTED = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (Path(__file__).parent / "expected").glob("*.json")
}
PACKED = [name for name, report in sorted(EXPECTED.items()) if report["exit_code"] == 0 and "plan" not in report]
"""Trees that are packed and not refused."""


@pytest.fixture(scope="module")
def observe_tree(tmp_path_factory):
    """Plant a tree, pack it and report, once for all tests; gives the place and the report."""
    top = tmp_path_factory.mktemp("nasty")
    for directory in (top, *top.parents[:2]):  # other users pass through
        directory.chmod(directory.stat().st_mode | 0o055)
    observed = {}

    def observe_once(name):
        if name not in observed:
            base = top / name
            base.mkdir()
            try:
                place = make_place(str(base), TREES[name])
            except CannotPlantError as error:
                pytest.skip(str(error))
            observed[name] = (place, observe(place))
        return observed[name]

    yield observe_once
    shutil.rmtree(top)


@pytest.fixture(params=PACKED)
def packed(request, observe_tree):
    """A place with its tree packed."""
    place, report = observe_tree(request.param)
    assert report["exit_code"] == 0
    return place


@pytest.mark.parametrize("name", TREES)
def test_report_is_the_expected_one(observe_tree, name):
    _, report = observe_tree(name)
    assert report == EXPECTED[name]


def test_every_tree_has_an_expected_report_and_there_are_many():
    assert sorted(TREES) == sorted(EXPECTED)
    assert len(TREES) >= 60


def test_dry_run_says_what_a_build_does(packed):
    elsewhere = os.path.join(packed.base, "elsewhere")
    plan = json.loads(packed.build("--dry-run", destination=elsewhere).stdout)
    shown = json.loads(run_pack(["inspect", packed.destination, "--json"]).stdout)
    assert not os.path.exists(elsewhere)
    assert plan["num_samples"] == shown["num_samples"]
    assert plan["size_bytes"] == shown["size_bytes"]
    assert plan["classes"] == shown["classes"]
    assert [(shard["name"], shard["num_samples"], shard["size_bytes"]) for shard in plan["shards"]] == [
        (shard["name"], shard["num_samples"], shard["size_bytes"])
        for split in shown["splits"]
        for shard in split["shards"]
    ]


def test_verify_finds_no_fault(packed):
    found = run_pack(["verify", packed.destination, "--deep", "--json"])
    assert found.exit_code == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["faults"] == report["remarks"] == []


def test_tfrecord_shards_hold_the_same_members(packed):
    other = os.path.join(packed.base, "tfrecord")
    done = packed.build("--format", "tfrecord", destination=other)
    assert done.exit_code == 0, done.stderr
    assert _load_members(other) == read_tar_members(packed.destination)


def test_gnu_tar_unpacks_the_same_members(packed):
    target = os.fsencode(os.path.join(packed.base, "unpacked"))
    os.mkdir(target)
    for shard in sorted(name for name in os.listdir(packed.destination) if name.endswith(".tar")):
        command = [
            "tar",
            "--extract",
            "--keep-old-files",
            "--no-same-owner",
            "-f",
            os.path.join(packed.destination, shard),
        ]
        subprocess.run(command, cwd=target, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    members = read_tar_members(packed.destination)
    assert _files_below(target) == {os.fsencode(name): data for name, data in members.items()}


def test_webdataset_sees_the_same_samples(packed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own imports
        webdataset = pytest.importorskip("webdataset")
    shards = [os.path.join(packed.destination, name) for name in sorted(os.listdir(packed.destination))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the order of samples
        found = {
            f"{sample['__key__']}.{extension}": data
            for sample in webdataset.WebDataset([path for path in shards if path.endswith(".tar")], shardshuffle=False)
            for extension, data in sample.items()
            if not extension.startswith("__")
        }
    assert found == read_tar_members(packed.destination)


def _load_members(directory):
    with open(os.path.join(directory, "manifest.json"), "rb") as file:
        splits = [split["name"] for split in json.load(file)["splits"]]
    members = {}
    for split in splits:
        with open_dataset(directory, split=split) as samples:
            for sample in samples:
                members.update((f"{sample.key}.{extension}", data) for extension, data in sample.to_dict().items())
    return members


def _files_below(root):
    found = {}
    for directory, _, names, fd in os.fwalk(root):
        for name in names:
            with open(os.open(name, os.O_RDONLY, dir_fd=fd), "rb") as file:
                found[os.path.relpath(os.path.join(directory, name), root)] = file.read()
    return found


def test_lists_of_what_is_left_out_do_not_depend_on_the_order_of_a_directory(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for number in range(200):  # in no order
        (source / f".{number * 73 % 200:03d}").touch()
    (source / "a.jpg").touch()
    done = run_pack(["build", str(source), str(tmp_path / "out"), "--dry-run", "--json"])
    hidden = json.loads(done.stdout)["skipped"]["hidden"]
    assert hidden == {"count": 200, "names": [f".{number:03d}" for number in range(20)]}
