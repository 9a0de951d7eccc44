"""Parts of a dataset: what is staged, what is said, what the cache looks like; wrong selections are explained."""

import json

import pytest

from shards.epoch_order import OrderSpec, shard_order
from shards.errors import SelectionError
from shards.selection import NodePart, Selection
from stager.order import FetchOrder
from stager.select import choose_shards, parse_selection


def staged_names(dataset, cache):
    return sorted(path.name for path in dataset.staged_in(cache).glob("*.tar"))


def names(*numbers):
    return [f"train-{number:06d}.tar" for number in numbers]


def test_a_part_is_staged_and_the_dataset_does_not_pass_for_complete(dataset, cache, stage):
    ended = stage("run", dataset.path, "--cache-dir", cache, "--select", "train-00000[13].tar", "--json")
    assert ended.code == 0, ended.stderr
    assert (ended.report["num_shards"], ended.report["num_samples"]) == (2, 2)
    assert ended.report["selection"] == "glob=train-00000[13].tar"
    staged = dataset.staged_in(cache)
    assert staged_names(dataset, cache) == names(1, 3)
    assert all((staged / f"{name}.index.arrow").exists() for name in names(1, 3))
    assert not (staged / "manifest.json").exists()
    assert (staged / ".stage" / "manifest.json").read_bytes() == (dataset.path / "manifest.json").read_bytes()
    assert "2 of 5 shards" in stage("status", "--cache-dir", cache).stdout


def test_what_several_runs_bring_together_is_the_whole(dataset, cache, stage):
    reports = []
    for rank in range(3):
        assert not (dataset.staged_in(cache) / "manifest.json").exists()
        ended = stage("run", dataset.path, "--cache-dir", cache, "--json", env={"STAGE_SELECT": f"rank={rank}/3"})
        assert ended.code == 0, ended.stderr
        reports.append(ended.report)
    assert dataset.is_staged(cache)
    assert sum(report["num_shards"] for report in reports) == 5
    assert sum(report["fetched_bytes"] for report in reports) == dataset.total_bytes


def test_a_part_of_a_complete_dataset_leaves_it_complete(dataset, cache, stage):
    stage("run", dataset.path, "--cache-dir", cache)
    ended = stage("run", dataset.path, "--cache-dir", cache, "--select", "*1.tar", "--json")
    assert ended.report["result"] == "AlreadyStaged"
    assert dataset.is_staged(cache)


def test_a_damaged_shard_outside_the_selection_is_not_called_complete(dataset, cache, stage):
    stage("run", dataset.path, "--cache-dir", cache, "--select", "*0.tar")
    first = dataset.staged_in(cache) / "train-000000.tar"
    first.chmod(0o644)
    data = bytearray(first.read_bytes())
    data[7] ^= 1
    first.write_bytes(data)
    ended = stage("run", dataset.path, "--cache-dir", cache, "--select", "*[!0].tar")
    assert ended.code == 0, ended.stderr
    assert not (dataset.staged_in(cache) / "manifest.json").exists()


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ("val-*", "no shard matches the selection glob=val-*: the dataset has 5 shards from train-000000.tar to"),
        ("split=test", "no split 'test'; the dataset has: train"),
        ("rank=3/8", "nothing is left for node 3 of 8: the dataset has 5 shards"),
    ],
)
def test_nothing_selected_is_an_error_that_says_what_there_is(dataset, cache, tmp_path, stage, selection, said):
    words = tmp_path / "words"
    words.touch()
    ended = stage("run", dataset.path, "--cache-dir", cache, "--select", selection, "--termination-log", words)
    assert ended.code == 66
    assert said in ended.message
    assert json.loads(words.read_text())["code"] == 66
    assert not cache.exists()


def test_nothing_selected_is_fine_when_that_is_allowed(dataset, cache, stage):
    ended = stage("run", dataset.path, "--cache-dir", cache, "--select", "rank=3/8", "--allow-empty", "--json")
    assert ended.code == 0, ended.stderr
    assert (ended.report["num_shards"], ended.report["total_bytes"]) == (0, 0)
    assert not (dataset.staged_in(cache) / "manifest.json").exists()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["rank=1"], "'rank=1' is no part"),
        (["rank=4/4"], "of 4 nodes, the first is 0 and the last 3, not 4"),
        (["rank=0/0"], "not 0"),
        (["rank=x/3"], "'rank=x/3' is no part"),
        (["rank=0/2", "rank=1/2"], "more than once"),
        (["all", "split=train"], "contradict"),
        (["split="], "selects nothing"),
        ([""], "selects nothing"),
        (["rank=auto/4"], "JOB_COMPLETION_INDEX or SLURM_NODEID, which is not set"),
    ],
)
def test_wrong_selections_are_explained(texts, said, cache, stage):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        parse_selection(texts, {})
    options = [word for text in texts for word in ("--select", text)]
    env = {"JOB_COMPLETION_INDEX": "", "SLURM_NODEID": ""}
    ended = stage("run", "/nowhere", "--cache-dir", cache, *options, env=env)
    assert ended.code == 2
    assert "--select" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("text", "environment", "part"),
    [
        ("rank=2/4", {}, (2, 4)),
        ("rank=auto/4", {"JOB_COMPLETION_INDEX": "3"}, (3, 4)),
        ("rank=auto/4", {"SLURM_NODEID": "1"}, (1, 4)),
        ("rank=auto", {"SLURM_NODEID": "1", "SLURM_NNODES": "2"}, (1, 2)),
        ("rank=auto", {"SLURM_NODEID": "1", "SLURM_JOB_NUM_NODES": "3"}, (1, 3)),
    ],
)
def test_the_node_is_found_in_the_environment(text, environment, part):
    assert parse_selection([text], environment) == Selection(part=NodePart(*part))


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"JOB_COMPLETION_INDEX": "two"}, "JOB_COMPLETION_INDEX is 'two'"),
        ({"JOB_COMPLETION_INDEX": "1"}, "SLURM_NNODES"),
    ],
)
def test_an_environment_that_does_not_say_it_all_is_explained(environment, said):
    with pytest.raises(ValueError, match=said):
        parse_selection(["rank=auto"], environment)


def test_shards_come_in_the_order_of_the_epoch(dataset):
    all_names = [shard.name for _, shard in dataset.manifest.shards()]
    spec = OrderSpec(shuffle="block", seed=3)
    for epoch in (0, 1):
        chosen = choose_shards(dataset.manifest, Selection(), FetchOrder(spec, epoch))
        assert [shard.name for shard in chosen] == [all_names[place] for place in shard_order(spec, epoch, 5)]
    part = Selection(part=NodePart(1, 2))
    mine = [shard.name for shard in choose_shards(dataset.manifest, part, None)]
    ordered = choose_shards(dataset.manifest, part, FetchOrder(spec, 0))
    assert [shard.name for shard in ordered] == [mine[place] for place in shard_order(spec, 0, len(mine))]


def test_a_selection_error_is_one_of_ours(dataset):
    with pytest.raises(SelectionError):
        choose_shards(dataset.manifest, Selection(splits=("x",)), None)
