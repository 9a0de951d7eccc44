"""What ``pack plan`` and the checks of ``pack build`` do for a user."""

import json
import os
from pathlib import Path

import pytest

from packer.saved import list_source_differences
from packer.sources.files import SourceFile
from packer.stop import StopFlag
from packer.task import work_order
from shards.errors import StoppedError


@pytest.fixture
def incomplete():
    """Ten samples, of which two lack the caption."""
    files = {f"c{n % 2}/{n}.jpg": bytes(1000 + n) for n in range(10)}
    return files | {f"c{n % 2}/{n}.txt": b"words" for n in range(8)}


def test_plan_needs_no_destination_and_writes_nothing(pack_here, make_tree, incomplete, tmp_path, monkeypatch):
    source = make_tree(incomplete)
    monkeypatch.chdir(tmp_path)
    done = pack_here("plan", source, "--class-from-dir")
    assert done.returncode == 0, done.stderr
    assert "samples   10 from 18 files" in done.stdout
    assert "incomplete: no txt (c0/8, c1/9)" in done.stdout
    assert "--require txt" in done.stdout
    assert os.listdir(tmp_path) == ["source"]


def test_plan_is_the_dry_run_of_a_build(pack_here, make_tree, incomplete, tmp_path):
    source, out = make_tree(incomplete), str(tmp_path / "out")
    planned = json.loads(pack_here("plan", source, out, "--json", "--require", "jpg").stdout)
    dry = json.loads(pack_here("build", source, out, "--json", "--require", "jpg", "--dry-run").stdout)
    assert planned["measured"].pop("free_bytes") > 0
    assert planned.pop("measured")["reading"]["num_files"] > 0
    dry.pop("measured")
    assert planned == dry
    assert not (tmp_path / "out").exists()
    built = json.loads(pack_here("build", source, out, "--json", "--quiet").stdout)
    assert built["size_bytes"] == planned["size_bytes"]
    on_disk = sum(path.stat().st_size for path in Path(out).glob("train-*"))
    assert planned["size_bytes"] < on_disk <= planned["space_bytes"]


def test_plan_proposes_shards_for_a_cluster(pack_here, make_tree, tmp_path):
    source = make_tree({f"{n}.jpg": bytes(5000) for n in range(60)})
    done = pack_here("plan", source, "--nodes", "2", "--gpus", "3", "--json")
    proposal = json.loads(done.stdout)["proposal"]
    assert (proposal["num_shards"], proposal["is_even"], proposal["num_workers"]) == (6, True, 1)
    size = str(proposal["shard_size_bytes"])
    built = pack_here("build", source, str(tmp_path / "out"), "--shard-size", size, "--json", "--quiet")
    assert json.loads(built.stdout)["num_shards"] == 6
    assert json.loads(pack_here("plan", source, "--json").stdout)["proposal"] is None


def test_options_can_come_from_the_environment(pack_here, make_tree, incomplete, monkeypatch):
    monkeypatch.setenv("PACK_REQUIRE", "jpg,txt")
    monkeypatch.setenv("PACK_ON_MISSING", "skip")
    plan = json.loads(pack_here("plan", make_tree(incomplete), "--json").stdout)
    assert plan["num_samples"] == 8
    assert plan["skipped"] == {"missing-member": {"count": 2, "names": ["c0/8", "c1/9"]}}


def test_incomplete_samples_are_refused_or_skipped_and_recorded(
    pack_here, make_tree, incomplete, tmp_path, read_dataset
):
    source, out = make_tree(incomplete), str(tmp_path / "out")
    refused = pack_here("build", source, out, "--require", "jpg,txt")
    assert refused.returncode == 66
    assert "  c0/8: no txt\n  c1/9: no txt\n" in refused.stderr
    assert not os.path.exists(out)
    done = pack_here("build", source, out, "--require", "jpg,txt", "--on-missing", "skip", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "left out, missing-member: 2 (c0/8, c1/9)" in done.stdout
    dataset = read_dataset(out)
    assert {frozenset(found) for found in dataset.samples("train").values()} == {frozenset({"jpg", "txt"})}
    assert dataset.manifest.packer["options"]["require"] == ["jpg", "txt"]
    assert dataset.manifest.source["skipped"] == {"missing-member": 2}


def test_suspicious_names_stop_before_anything_is_written(pack_here, make_tree, tmp_path):
    source, out = make_tree({f"scan.{n:05d}": b"x" for n in range(50)}), str(tmp_path / "out")
    done = pack_here("build", source, out)
    assert done.returncode == 66
    assert "50 different extensions for 1 samples" in done.stderr
    assert not os.path.exists(out)
    assert pack_here("build", source, out, "--many-extensions", "allow", "--quiet").returncode == 0


def test_splits_come_from_lists(pack_here, make_tree, incomplete, tmp_path, read_dataset):
    source, out = make_tree(incomplete), str(tmp_path / "out")
    train, val = tmp_path / "train.txt", tmp_path / "val.txt"
    train.write_text("".join(f"c{n % 2}/{n}.jpg\n" for n in range(7)))
    val.write_text("c1/7\nc0/8\n")
    lists = f"train=@{train},val=@{val}"
    refused = pack_here("build", source, out, "--split", lists)
    assert refused.returncode == 66
    assert "1 of 10 samples are in no list of --split:\n  c1/9\n" in refused.stderr
    done = pack_here("build", source, out, "--split", lists, "--on-unlisted", "skip", "--quiet")
    assert done.returncode == 0, done.stderr
    dataset = read_dataset(out)
    assert set(dataset.samples("val")) == {"c1/7", "c0/8"}
    assert len(dataset.samples("train")) == 7
    assert dataset.manifest.packer["options"]["split"].startswith("list:")
    # what the lists say is what counts, not how they are written
    table = tmp_path / "table.tsv"
    table.write_text("".join(f"c{n % 2}/{n}.jpg\ttrain\n" for n in range(7)) + "c0/8\tval\nc1/7\tval\n")
    again = pack_here("build", source, out, "--split", f"@{table}", "--on-unlisted", "skip", "--quiet")
    assert again.returncode == 0, again.stderr
    assert "already packed" in again.stdout


@pytest.mark.parametrize("split", ["@missing", "train=@missing"])
def test_missing_list_is_named(pack_here, make_tree, split):
    done = pack_here("plan", make_tree({"a.jpg": b"x"}), "--split", split)
    assert done.returncode == 2
    assert "missing: No such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_seed_of_shares_changes_the_splits_and_is_recorded(pack_here, make_tree, tmp_path, read_dataset):
    source = make_tree({f"{n}.jpg": b"%d" % n for n in range(60)})
    found = {}
    for seed in ("0", "1"):
        out = str(tmp_path / seed)
        args = ("--split", "train=0.5,val=0.5", "--split-seed", seed, "--quiet")
        assert pack_here("build", source, out, *args).returncode == 0
        found[seed] = read_dataset(out)
    assert set(found["0"].samples("val")) != set(found["1"].samples("val"))
    assert found["1"].manifest.packer["options"]["split_seed"] == 1


def test_dangling_links_are_skipped_within_the_budget(pack_here, make_tree, tmp_path):
    source = make_tree({f"{n}.jpg": b"x" for n in range(9)})
    os.symlink("nowhere", os.path.join(source, "gone.jpg"))
    refused = pack_here("plan", source)
    assert refused.returncode == 66
    assert "gone.jpg: dangling symbolic link" in refused.stderr
    assert "--on-unreadable skip" in refused.stderr
    over = pack_here("plan", source, "--on-unreadable", "skip")
    assert over.returncode == 66
    assert "1 files or directories cannot be read, more than --max-skipped 1% of 10" in over.stderr
    for budget in ("1", "10%"):
        done = pack_here("plan", source, "--on-unreadable", "skip", "--max-skipped", budget, "--json")
        assert json.loads(done.stdout)["skipped"] == {"unreadable": {"count": 1, "names": ["gone.jpg"]}}


def test_source_of_unreadable_files_alone_is_an_error(pack_here, make_tree, tmp_path):
    source = make_tree({})
    os.makedirs(source)
    os.symlink("nowhere", os.path.join(source, "gone.jpg"))
    assert pack_here("plan", source, "--on-unreadable", "skip", "--max-skipped", "100%").returncode == 66


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("--require", "jpg,"), "empty extension"),
        (("--max-skipped", "much"), "neither a number"),
        (("--split", "train=@x,val"), "is no list"),
        (("--time-budget", "soon"), "is not a time"),
        (("--nodes", "0"), "0 is not in the range"),
    ],
)
def test_bad_arguments_are_usage_errors(pack_here, make_tree, tmp_path, args, part):
    (tmp_path / "x").write_text("a")
    done = pack_here("plan", make_tree({"a.jpg": b"x"}), *args[:1], args[1].replace("@x", f"@{tmp_path}/x"))
    assert done.returncode == 2
    assert part in done.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_spent_time_budget_stops_cleanly_and_the_same_command_goes_on(pack, make_tree, tmp_path, read_dataset, jobs):
    source = make_tree({f"{n:05d}.bin": bytes([n % 256]) * 60_000 for n in range(600)})
    out, whole = tmp_path / "out", str(tmp_path / "whole")
    args = (source, "--shard-size", "1MiB", "--jobs", jobs, "--json")
    runs = 0
    budget_seconds = 0.1  # less than a start takes
    while True:
        done = pack("build", args[0], str(out), *args[1:], "--time-budget", f"{budget_seconds:.2f}s")
        runs += 1
        assert not list(out.glob(".*.partial"))
        if done.returncode == 0:
            break
        assert done.returncode == 75, done.stderr
        assert "time budget is spent; finished shards are kept" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (out / "manifest.json").exists()
        budget_seconds *= 1.6
        assert runs < 60
    assert runs > 1
    assert pack("build", args[0], whole, *args[1:]).returncode == 0
    assert read_dataset(str(out)).file_bytes() == read_dataset(whole).file_bytes()


def test_missing_shards_come_before_those_that_are_only_checked(plan_of, tmp_path):
    plan = plan_of({f"{n}.jpg": 5000 for n in range(6)}, shard_size_bytes=8000)
    for number in (0, 1, 4):
        (tmp_path / plan.shards[number].name).touch()
    assert work_order(plan, str(tmp_path)) == [2, 3, 5, 0, 1, 4]


def test_deadline_is_no_first_signal():
    now = [0.0]
    stop = StopFlag(5.0, clock=lambda: now[0])
    stop.check()
    now[0] = 5.0
    with pytest.raises(StoppedError, match="time budget") as stopped:
        stop.check()
    assert stopped.value.reason == "deadline"
    assert stop.reason is None


def test_changed_options_and_files_are_shown_with_a_count(pack_here, make_tree, tmp_path):
    files = {f"{n:03d}.jpg": b"x" for n in range(60)}
    source, out = make_tree(files), str(tmp_path / "out")
    assert pack_here("build", source, out, "--quiet").returncode == 0
    for number in range(30):
        os.unlink(os.path.join(source, f"{number:03d}.jpg"))
    make_tree({"059.jpg": b"longer", "new.jpg": b"x"})
    done = pack_here("build", source, out, "--shuffle", "5")
    assert done.returncode == 73
    assert "  option shuffle: was 0, now 5\n" in done.stderr
    assert "  num_files: was 60, now 31\n" in done.stderr
    assert "  source file 000.jpg: is gone\n" in done.stderr
    assert done.stderr.count("is gone") == 20
    assert "  … and 12 more source files\n" in done.stderr


def test_source_differences_are_merged():
    def files(**sizes):
        return [SourceFile(name.encode(), size, 1) for name, size in sorted(sizes.items())]

    found = list_source_differences(iter(files(a=1, b=1, c=1, e=1)), files(b=1, c=2, d=1, f=1))
    assert found == [
        "source file a: is gone",
        "source file c: had 1 bytes, now 2",
        "source file d: is new",
        "source file e: is gone",
        "source file f: is new",
    ]
    assert list_source_differences(iter([SourceFile(b"a", 1, 1)]), [SourceFile(b"a", 1, 2)]) == [
        "source file a: was modified since"
    ]
    many = files(**{f"x{n:02d}": 1 for n in range(30)})
    assert list_source_differences(iter(many), [])[20:] == ["… and 10 more source files"]
    assert list_source_differences(iter(many), many) == []
