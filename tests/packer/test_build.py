import fcntl
import json
import os
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from packer.build import build
from packer.config import PackConfig
from packer.destination import hold_destination
from packer.preview import preview_build
from packer.saved import summarize_plan
from packer.sources.tree import SymlinkPolicy
from packer.splits import parse_split
from packer.stop import StopFlag
from shardferry.console import Progress
from shards.errors import DestinationError, NoSpaceError, PlanMismatchError, SourceError, StoppedError


def run(config, stop=None, progress=None):
    stop = stop or StopFlag()
    return build(config, preview_build(config, stop), stop, lambda *_: nullcontext(progress or Progress("packing")))


@pytest.fixture
def config(tmp_path, make_tree, many_files):
    return PackConfig(
        source=make_tree(many_files), destination=str(tmp_path / "out"), shard_size_bytes=50_000, jobs=1, read_threads=1
    )


class StopAfter(Progress):
    """Asks for a stop once so many samples are done."""

    def __init__(self, stop, num_samples):
        super().__init__("packing")
        self.stop = stop
        self.left = num_samples

    def advance(self, *, num_bytes=0, num_samples=0):
        self.left -= num_samples
        if self.left <= 0:
            self.stop.reason = "SIGTERM"


def stop_in_the_middle(config, num_samples=60):
    stop = StopFlag()
    with pytest.raises(StoppedError, match="finished shards are kept"):
        run(config, stop, StopAfter(stop, num_samples))


@pytest.mark.parametrize("format_name", ["tar", "tfrecord"])
def test_every_byte_of_the_source_is_in_the_dataset(config, many_files, read_dataset, format_name):
    report = run(replace(config, format_name=format_name))
    dataset = read_dataset(config.destination)
    found = {f"{key}.{ext}": data for key, members in dataset.samples("train").items() for ext, data in members.items()}
    assert found == many_files
    assert report.num_samples == 120
    assert report.num_opens_avoided == 240 - report.num_shards
    assert report.dataset_id == dataset.manifest.dataset_id


def test_manifest_tells_options_and_counts_but_no_machine(config, read_dataset, tmp_path):
    run(config)
    manifest = read_dataset(config.destination).manifest
    split = manifest.split("train")
    assert split.extensions["jpg"].num_present == 120
    assert split.extensions["jpg"].num_missing == 0
    assert manifest.packer["options"] == config.recorded_options()
    assert manifest.source["num_files"] == 240
    text = json.dumps(dict(manifest.packer))
    assert "jobs" not in text
    assert str(tmp_path) not in text


def test_missing_members_are_counted(config, make_tree, read_dataset):
    make_tree({"class0/extra.jpg": b"1"})
    run(config)
    assert read_dataset(config.destination).manifest.split("train").extensions["json"].num_missing == 1


def test_classes_are_in_the_manifest_and_numbers_in_the_samples(config, read_dataset):
    run(replace(config, has_classes=True))
    dataset = read_dataset(config.destination)
    assert dataset.manifest.classes == ("class0", "class1", "class2")
    for key, members in dataset.samples("train").items():
        assert members["cls"].decode() == key[len("class")]


def test_top_directories_become_splits(config, read_dataset):
    report = run(replace(config, split=parse_split("by-dir")))
    assert dict(report.splits) == {f"class{n}": (40, report.splits[f"class{n}"][1]) for n in range(3)}
    assert set(read_dataset(config.destination).samples("class1")) == {f"class1/img{n:04d}" for n in range(1, 120, 3)}


def test_second_run_does_nothing_and_says_so(config, read_dataset):
    first = run(config)
    before = {name: os.stat(f"{config.destination}/{name}").st_mtime_ns for name in os.listdir(config.destination)}
    again = run(config)
    assert not again.is_new
    assert "already packed" in again.as_text()
    assert again.dataset_id == first.dataset_id
    after = {name: os.stat(f"{config.destination}/{name}").st_mtime_ns for name in os.listdir(config.destination)}
    assert {name: when for name, when in after.items() if name != ".pack"} == {
        name: when for name, when in before.items() if name != ".pack"
    }


def test_stopped_run_goes_on_from_its_finished_shards(config, read_dataset, tmp_path):
    run(replace(config, destination=str(tmp_path / "whole")))
    stop_in_the_middle(config)
    finished = {name for name in os.listdir(config.destination) if name.endswith(".tar")}
    assert finished
    assert "manifest.json" not in os.listdir(config.destination)
    assert not [name for name in os.listdir(config.destination) if name.endswith(".partial")]
    inodes = {name: os.stat(f"{config.destination}/{name}").st_ino for name in finished}
    report = run(config)
    assert report.num_kept == len(finished)
    assert {name: os.stat(f"{config.destination}/{name}").st_ino for name in finished} == inodes
    assert read_dataset(config.destination).file_bytes() == read_dataset(tmp_path / "whole").file_bytes()


def damage_shard(path):
    os.chmod(path, 0o644)
    with open(path, "r+b") as file:
        file.seek(5000)
        byte = file.read(1)
        file.seek(5000)
        file.write(bytes([byte[0] ^ 1]))


def cut_shard(path):
    os.chmod(path, 0o644)
    os.truncate(path, 1000)


def damage_index(path):
    damage_shard(f"{path}.index.arrow")


def remove_index(path):
    os.unlink(f"{path}.index.arrow")


def empty_index(path):
    os.chmod(f"{path}.index.arrow", 0o644)
    os.truncate(f"{path}.index.arrow", 0)


def swap_index(path):
    os.replace(f"{os.path.dirname(path)}/train-000001.tar.index.arrow", f"{path}.index.arrow")


@pytest.mark.parametrize(
    "damage", [damage_shard, cut_shard, os.unlink, remove_index, empty_index, swap_index], ids=lambda d: d.__name__
)
def test_shard_that_is_not_whole_is_packed_again(config, read_dataset, tmp_path, damage):
    run(replace(config, destination=str(tmp_path / "whole")))
    stop_in_the_middle(config, 80)
    damage(f"{config.destination}/train-000000.tar")
    report = run(config)
    assert 0 < report.num_kept < report.num_shards
    assert read_dataset(config.destination).file_bytes() == read_dataset(tmp_path / "whole").file_bytes()


def test_finished_dataset_with_a_missing_shard_is_completed(config, read_dataset):
    run(config)
    whole = read_dataset(config.destination).file_bytes()
    os.unlink(f"{config.destination}/train-000001.tar")
    report = run(config)
    assert report.is_new
    assert report.num_kept == report.num_shards - 1
    assert read_dataset(config.destination).file_bytes() == whole


def test_leftovers_of_killed_runs_are_removed_and_files_of_others_never(config):
    stop_in_the_middle(config)
    left = f"{config.destination}/.train-000009.tar.0123456789abcdef.partial"
    Path(left).write_bytes(b"half")
    notes = Path(config.destination, "notes.txt")
    notes.write_bytes(b"mine")
    run(config)
    assert not os.path.exists(left)
    assert notes.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"format_name": "tfrecord"}, 'option format: was "tar", now "tfrecord"'),
        ({"shuffle_seed": 1}, "option shuffle: was 0, now 1"),
        ({"shuffle_seed": None}, "option shuffle: was 0, now null"),
        ({"shard_size_bytes": 60_000}, "option shard_size_bytes: was 50000, now 60000"),
        ({"has_classes": True}, "option class_from_dir: was false, now true"),
        ({"symlinks": SymlinkPolicy.SKIP}, 'option symlinks: was "follow", now "skip"'),
        ({"split": parse_split("a=0.5,b=0.5")}, 'option split: was "train", now "a=0.5,b=0.5"'),
    ],
)
def test_other_options_at_the_same_destination_are_refused_and_named(config, read_dataset, change, part):
    stop_in_the_middle(config)
    with pytest.raises(PlanMismatchError) as refusal:
        run(replace(config, **change))
    assert part in str(refusal.value)
    assert "--overwrite" in str(refusal.value)
    run(replace(config, **change, overwrite=True))
    dataset = read_dataset(config.destination)
    assert set(dataset.file_bytes()) == {"manifest.json"} | {
        name for _, shard in dataset.manifest.shards() for name in (shard.name, shard.index_name)
    }


def test_changes_of_the_source_are_refused_and_named(config):
    run(config)
    root = config.source
    os.utime(f"{root}/class0/img0000.jpg", ns=(0, 1))
    os.unlink(f"{root}/class0/img0003.jpg")
    Path(f"{root}/class0/img0006.json").write_bytes(b"longer than before")
    Path(f"{root}/new\n.jpg").write_bytes(b"1")
    with pytest.raises(PlanMismatchError) as refusal:
        run(config)
    text = str(refusal.value)
    assert "source file class0/img0000.jpg: was modified since" in text
    assert "source file class0/img0003.jpg: is gone" in text
    assert "source file class0/img0006.json: had 13 bytes, now 18" in text
    assert r"source file new\n.jpg: is new" in text


def test_damaged_saved_plan_is_refused(config):
    run(config)
    path = Path(config.destination, ".pack/plan.json")
    for damaged in (b"", path.read_bytes()[:100], path.read_bytes().replace(b"train-000000", b"train-000009")):
        path.chmod(0o644)
        path.write_bytes(damaged)
        with pytest.raises(PlanMismatchError, match=r"saved plan .* cannot be used"):
            run(config)
    assert run(replace(config, overwrite=True)).is_new


def test_directory_with_files_of_others_is_never_touched(config, tmp_path):
    os.makedirs(config.destination)
    Path(config.destination, "thesis.tex").write_bytes(b"mine")
    for overwrite in (False, True):
        with pytest.raises(DestinationError, match=r"not empty(?s:.*)thesis\.tex"):
            run(replace(config, overwrite=overwrite))
    assert os.listdir(config.destination) == ["thesis.tex"]


def test_overwrite_spares_a_manifest_json_that_is_not_ours(config):
    os.makedirs(config.destination)
    for foreign in (b'{"name": "a web application"}', b"no JSON", b""):
        path = Path(config.destination, "manifest.json")
        path.write_bytes(foreign)
        with pytest.raises(DestinationError, match=r"not empty(?s:.*)manifest\.json"):
            run(replace(config, overwrite=True))
        assert path.read_bytes() == foreign
    assert os.listdir(config.destination) == ["manifest.json"]


def test_overwrite_beside_files_of_others_is_refused_before_the_dataset_is_removed(config, read_dataset):
    run(config)
    before = read_dataset(config.destination).file_bytes()
    notes = Path(config.destination, "notes.txt")
    notes.write_bytes(b"mine")
    with pytest.raises(DestinationError, match=r"not empty(?s:.*)notes\.txt"):
        run(replace(config, overwrite=True, shard_size_bytes=60_000))
    notes.unlink()
    assert read_dataset(config.destination).file_bytes() == before
    assert not run(config).is_new


def test_dataset_without_its_plan_is_refused_and_can_be_replaced(config):
    run(config)
    os.unlink(f"{config.destination}/.pack/plan.json")
    with pytest.raises(PlanMismatchError, match="not the plan it was packed by"):
        run(config)
    assert run(replace(config, overwrite=True)).is_new


def test_overwrite_removes_nothing_outside_of_the_destination(config, tmp_path):
    run(config)
    victim = tmp_path / "victim.tar"
    victim.write_bytes(b"mine")
    plan = Path(config.destination, ".pack/plan.json")
    text = plan.read_text().replace('"train-000000.tar"', '"../victim.tar"')
    plan.chmod(0o644)
    plan.write_text(text)
    run(replace(config, overwrite=True, shard_size_bytes=60_000))
    assert victim.read_bytes() == b"mine"


def test_second_packer_at_the_same_destination_is_refused(config):
    stop_in_the_middle(config)
    with open(f"{config.destination}/.pack/lock", "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DestinationError, match="another pack build is at work"):
            run(config)


def test_refused_packer_leaves_the_lock_of_one_that_has_not_saved_its_plan_yet(config, read_dataset):
    with hold_destination(config.destination) as destination:
        with pytest.raises(DestinationError, match="another pack build is at work"):
            run(config)
        preview = preview_build(config, StopFlag())
        destination.save_plan(preview.plan, summarize_plan(preview.plan, config.recorded_options()))
    run(config)
    assert read_dataset(config.destination).manifest.num_samples == 120


def test_lock_is_taken_anew_when_a_refused_packer_removes_it(tmp_path):
    outcomes = []

    def hold():
        try:
            with hold_destination(str(tmp_path / "out")) as destination:
                outcomes.append(os.path.exists(f"{destination.path}/.pack/lock"))
        except DestinationError as refusal:
            outcomes.append("another pack build is at work" in str(refusal))

    for _ in range(50):
        threads = [threading.Thread(target=hold) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes == [True] * 200


def test_source_inside_and_around_the_destination_is_refused(config, tmp_path):
    for destination in (config.source, f"{config.source}/out", f"{config.source}/class0/../deep/out"):
        with pytest.raises(SourceError, match="lies inside the source"):
            run(replace(config, destination=destination))
    with pytest.raises(DestinationError, match="not empty"):
        run(replace(config, destination=str(tmp_path)))
    assert ".pack" not in os.listdir(tmp_path)
    assert sorted(os.listdir(config.source)) == ["class0", "class1", "class2"]


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda path: None, "there is no"),
        (lambda path: path.write_bytes(b""), "is no source that is known"),
        (lambda path: path.mkdir(), "there is no file to pack"),
        (lambda path: (path.mkdir(), (path / ".hidden").write_bytes(b"")), "1 entries were left out"),
    ],
    ids=["missing", "file", "empty", "only hidden"],
)
def test_source_without_files_is_refused_before_anything_is_written(config, tmp_path, make, part):
    make(tmp_path / "other")
    with pytest.raises(SourceError, match=part):
        run(replace(config, source=str(tmp_path / "other")))
    assert not os.path.exists(config.destination)


def test_destination_that_is_a_file_is_refused(config):
    Path(config.destination).write_bytes(b"mine")
    with pytest.raises(DestinationError, match="is no directory"):
        run(config)


def test_lack_of_space_is_said_before_anything_is_written(config, make_tree):
    # a sparse file: bigger than any disk, and no byte of it is read
    with open(make_tree({"huge.bin": b""}) + "/huge.bin", "r+b") as file:
        file.truncate(2**43)
    with pytest.raises(NoSpaceError) as failure:
        run(replace(config, shard_size_bytes=2**44))
    assert failure.value.needed_bytes > 2**43
    assert not os.path.exists(config.destination)


def test_preview_writes_nothing(config):
    preview = preview_build(config, StopFlag())
    assert preview.plan.num_samples == 120
    assert not os.path.exists(config.destination)
