"""Every real dataset: refused with the right numbers, packed, verified, taken apart and compared byte for byte."""

import json
import os
import subprocess
import sys

import pytest

from tests.datasets.naming import count_source, expected_members
from tests.datasets.reading import compare_loaded, compare_tar

PACK = os.path.join(os.path.dirname(sys.executable), "pack")
LONGEST_SECONDS = 300


@pytest.fixture
def pack():
    def run(*args):
        return subprocess.run(
            [PACK, *args],
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
            timeout=LONGEST_SECONDS,
        )

    return run


def test_source_is_what_the_numbers_are_about(dataset, source):
    found, stated = count_source(source), dataset.counts
    assert (found.files, found.size_bytes, found.links) == (stated.files, stated.size_bytes, stated.links)
    assert (len(found.first_dot), len(found.first_dot_extensions)) == (
        stated.first_dot_keys,
        stated.first_dot_extensions,
    )
    assert (len(found.last_dot), len(found.last_dot_extensions)) == (stated.last_dot_keys, stated.last_dot_extensions)
    assert (found.without_extension, found.dotted) == (stated.without_extension, stated.dotted)
    key, number = stated.biggest_key
    assert found.first_dot[key] == number == max(found.first_dot.values())


def test_first_runs_are_refused_with_the_right_numbers_and_write_nothing(pack, dataset, source, scratch):
    for complaint in dataset.complaints:
        out = scratch("out")
        done = pack("build", source, out, *complaint.args)
        assert done.returncode == complaint.exit_code, (complaint.args, done.stderr[:2000])
        for part in complaint.says:
            assert part in done.stderr
        assert done.stdout == ""
        assert not os.path.exists(out)


@pytest.mark.parametrize("format_name", ["tar", "tfrecord"])
def test_what_is_packed_is_what_lies_in_the_source(pack, dataset, source, scratch, format_name):
    for number, packing in enumerate(dataset.packings):
        root, out = os.path.join(source, packing.below), scratch(f"{number}")
        args = ("build", root, out, "--format", format_name, "--json", *packing.args)

        plan = json.loads(_succeed(pack(*args, "--dry-run")))
        built = json.loads(_succeed(pack(*args)))
        verified = json.loads(_succeed(pack("verify", out, "--deep", "--json")))
        shown = json.loads(_succeed(pack("inspect", out, "--json")))

        assert plan["num_samples"] == built["num_samples"] == verified["num_samples"] == packing.samples
        assert plan["shards"] == [
            {
                "name": shard["name"],
                "split": split["name"],
                **{key: shard[key] for key in ("num_samples", "size_bytes")},
            }
            for split in shown["splits"]
            for shard in split["shards"]
        ]
        skipped = {reason: found["count"] for reason, found in built["skipped"].items()}
        assert skipped == packing.skipped
        assert plan["skipped"] == built["skipped"]
        assert built["num_classes"] == len(shown["classes"]) == packing.classes
        assert verified["faults"] == verified["remarks"] == []
        counted = {}
        for split in shown["splits"]:
            for extension, found in split["extensions"].items():
                counted[extension] = counted.get(extension, 0) + found["num_present"]
        assert (len(counted), sum(counted.values())) == (packing.extensions, packing.members)

        expected = expected_members(root, packing.naming)
        assert len(expected) == packing.members
        splits = [split["name"] for split in shown["splits"]]
        loaded = compare_loaded(out, splits, expected)
        assert loaded.is_equal, loaded
        if format_name == "tar":
            unpacked = compare_tar(out, scratch(f"{number}-unpacked"), expected)
            assert unpacked.is_equal, unpacked
            assert unpacked.num_equal == packing.members
        assert _most_members(expected) == packing.most_members


def _succeed(done):
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout


def _most_members(names):
    """Members of the biggest sample, as a reader of the first-dot rule sees it."""
    members = {}
    for name in names:
        directory, slash, base = name.rpartition("/")
        key = f"{directory}{slash}{base.partition('.')[0]}"
        members[key] = members.get(key, 0) + 1
    return max(members.values())
