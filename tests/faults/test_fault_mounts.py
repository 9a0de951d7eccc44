"""A source on a mount that fails: slow, stale, cut, changed, hung, gone."""

import os
import signal

import pytest

from tests.faults.machine import need_programs

STOP_SECONDS = 20.0
"""Promised are 5 seconds; without the promise it would be for ever, and machines that test are busy."""

SHARDS, INDEXES, MANIFEST = "/*.tar", "/*.index.arrow", "/manifest.json"

pytestmark = [pytest.mark.faults, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _needs(mount):
    need_programs("fusermount3")


@pytest.mark.parametrize("path", [SHARDS, INDEXES, MANIFEST])
@pytest.mark.parametrize(
    "rule",
    [
        {"op": "read", "errno": "EIO"},
        {"op": "read", "errno": "ESTALE"},
        {"op": "open", "errno": "ESTALE"},
        {"op": "lookup", "errno": "EIO"},
        {"op": "read", "short": 1000},
        {"op": "read", "cut": 1},
        {"op": "read", "latency": 0.3},
    ],
    ids=lambda rule: "-".join(map(str, rule.values())),
)
def test_a_fault_that_passes_costs_a_repeat_and_nothing_else(dataset, node, mount, path, rule):
    mount.set({**rule, "path": path, "count": 4})
    ended = node.stage(mount.point, "--retry-for", "1m")
    assert ended.code == 0, ended.stderr
    assert mount.faults != []
    assert dataset.is_staged(node.cache)


@pytest.mark.parametrize("path", [SHARDS, INDEXES])
def test_a_byte_that_was_changed_on_the_way_is_read_again(dataset, node, mount, path):
    mount.set({"op": "read", "path": path, "flip": [600], "count": 1})
    ended = node.stage(mount.point)
    assert ended.code == 0, ended.stderr
    assert len(mount.faults) == 1
    assert dataset.is_staged(node.cache)


@pytest.mark.parametrize(
    ("rule", "code", "said"),
    [
        ({"op": "read", "errno": "EIO", "path": SHARDS}, 69, "Input/output error"),
        ({"op": "open", "errno": "ESTALE", "path": SHARDS}, 69, "Stale file handle"),
        ({"op": "lookup", "errno": "EIO", "path": MANIFEST}, 69, "Input/output error"),
        ({"op": "open", "errno": "EACCES", "path": SHARDS}, 77, "Permission denied"),
        ({"op": "lookup", "errno": "ENOENT", "path": INDEXES}, 66, "No such file"),
        ({"op": "read", "flip": [70_000], "path": SHARDS}, 65, "block 1 (byte offset 65536): expected blake3:"),
        ({"op": "read", "flip": [600], "path": INDEXES}, 65, "expected blake3:"),
        ({"op": "read", "flip": [600], "path": MANIFEST}, 65, "manifest"),
        ({"size": 70_000, "path": SHARDS}, 65, "actual 70000 bytes"),
        ({"size": 700, "path": INDEXES}, 65, "actual 700 bytes"),
        ({"size": 300, "path": MANIFEST}, 65, "manifest"),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_a_fault_that_stays_ends_the_run_with_its_code_and_names_the_file(dataset, node, mount, rule, code, said):
    mount.set(rule)
    ended = node.stage(mount.point)
    assert ended.code == code, ended.stderr
    assert said in ended.message
    assert os.path.splitext(rule["path"])[1] in ended.message
    node.check(dataset)
    mount.set()
    node.check_completes(dataset, mount.point)


def test_a_file_that_ends_too_early_is_never_committed(dataset, node, mount):
    """The kernel gives zeros for what is missing, or an early end: it depends on what it has asked for just then."""
    mount.set({"op": "read", "cut": 70_000, "path": SHARDS})
    ended = node.stage(mount.point)
    assert ended.code in {65, 69}, ended.stderr
    assert "train-00000" in ended.message
    node.check(dataset)
    mount.set()
    node.check_completes(dataset, mount.point)


@pytest.mark.parametrize("in_place", [False, True], ids=["replaced", "rewritten"])
@pytest.mark.parametrize("offset", [0, 65536, 4 * 65536])
def test_a_shard_changed_in_mid_copy_is_told_apart_from_damage_and_nothing_is_mixed(
    dataset, node, mount, offset, in_place
):
    shard = dataset.path / "train-000000.tar"
    content = shard.read_bytes()
    mount.set({"op": "read", "path": f"*/{shard.name}", "from": offset, "hang": True})
    running = node.start(mount.point, "--connections", "1")
    mount.wait_for_fault()
    changed = shard if in_place else shard.with_suffix(".new")
    changed.write_bytes(content[::-1])
    changed.replace(shard)
    mount.set()
    ended = running.finish()
    assert ended.code == 65, ended.stderr
    assert f"{shard.name} was replaced while" in ended.message or f"{shard.name} block" in ended.message
    node.check(dataset)
    shard.write_bytes(content)
    node.check_completes(dataset, mount.point)


def test_a_server_that_dies_is_a_source_that_is_not_available(dataset, node, mount):
    mount.set({"op": "read", "path": "*/train-000001.tar", "hang": True})
    running = node.start(mount.point)
    mount.wait_for_fault()
    mount.server.stop()
    ended = running.finish()
    # with the mount the directory is gone as well, and then the file is missing
    assert ended.code in {66, 69}, ended.stderr
    node.check(dataset)
    node.check_completes(dataset, dataset.path)


@pytest.mark.parametrize("operation", ["lookup", "open", "read"])
@pytest.mark.parametrize("path", [SHARDS, MANIFEST])
def test_a_stop_while_the_source_hangs_ends_the_program_and_keeps_nobody_else_waiting(
    dataset, node, mount, tmp_path, operation, path
):
    last_words = tmp_path / "termination-log"
    last_words.touch()
    mount.set({"op": operation, "path": path, "hang": True})
    running = node.start(mount.point, "--termination-log", last_words)
    mount.wait_for_fault()
    running.signal(signal.SIGTERM)
    ended = running.finish(STOP_SECONDS)
    assert ended.code == 143, ended.stderr
    assert "hangs was left behind" in ended.message
    assert '"code": 143' in last_words.read_text()
    node.check(dataset)
    # what still hangs keeps nobody from staging the dataset from a place that answers
    node.check_completes(dataset, dataset.path)
