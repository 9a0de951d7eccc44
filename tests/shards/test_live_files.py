"""Files that say what a living process does: whole states, liveness by the kernel, removal of the dead only."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from shards.errors import FormatError
from shards.live_files import is_live, open_live_file, read_live_file, remove_dead_file
from shards.positions import ReadingPosition
from shards.progress import StageProgress, StageState

HOLD = """
import sys, time
from shards.live_files import open_live_file
live = open_live_file(sys.argv[1])
live.write(b"mine")
print("held", flush=True)
time.sleep(60)
"""
PROGRESS = StageProgress(
    holder="pod-1", state=StageState.FAILED, source="/mnt/x", num_shards=3, code=66, reason="X", message="gone"
)
POSITION = ReadingPosition(
    reader="pod-1.rank0",
    dataset_id="blake3:" + "ab" * 32,
    split="train",
    order_version=1,
    shuffle="block",
    seed=7,
    window_shards=8,
    epoch=2,
    num_shards=10,
    num_shards_passed=4,
)


def test_the_kernel_says_when_a_process_has_died(tmp_path):
    path = str(tmp_path / "progress" / "pod-1.json")
    child = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "held\n"
    assert read_live_file(path, max_bytes=100) == (b"mine", True)
    assert open_live_file(path, wait_seconds=0) is None
    assert not remove_dead_file(path)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert read_live_file(path, max_bytes=100) == (b"mine", False)
    assert remove_dead_file(path)
    assert os.listdir(tmp_path / "progress") == []


def test_modes_do_not_depend_on_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        with open_live_file(str(tmp_path / "positions" / "r.json"), directory_mode=0o1777) as live:
            live.write(b"x")
    finally:
        os.umask(before)
    modes = {name: (tmp_path / "positions" / name).stat().st_mode & 0o7777 for name in ("r.json", "r.json.lock")}
    assert modes == {"r.json": 0o444, "r.json.lock": 0o644}
    assert (tmp_path / "positions").stat().st_mode & 0o7777 == 0o1777


def test_a_reader_never_sees_half_a_state(tmp_path):
    path = str(tmp_path / "p.json")
    states = [bytes([65 + number]) * (1 + 5000 * number) for number in range(8)]
    stop = threading.Event()
    with open_live_file(path) as live:
        live.write(states[0])

        def rewrite():
            while not stop.is_set():
                for state in states:
                    live.write(state)

        writer = threading.Thread(target=rewrite)
        writer.start()
        seen = {read_live_file(path, max_bytes=10**6)[0] for _ in range(2000)}
        stop.set()
        writer.join()
    assert seen <= set(states)


def test_asking_does_not_keep_the_owner_out(tmp_path):
    path = str(tmp_path / "p.json")
    open_live_file(path).close()
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            is_live(path)

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        for _ in range(50):
            with open_live_file(path) as live:
                assert live is not None
    finally:
        stop.set()
        asker.join()


def test_a_link_is_not_followed_and_a_missing_file_is_dead(tmp_path):
    (tmp_path / "p.json.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"p\.json\.lock"):
        open_live_file(str(tmp_path / "p.json"))
    assert not (tmp_path / "elsewhere").exists()
    assert not is_live(str(tmp_path / "q.json"))
    assert remove_dead_file(str(tmp_path / "q.json"))


@pytest.mark.parametrize("value", [PROGRESS, POSITION])
def test_values_come_back_with_what_newer_releases_add(value):
    data = value.to_json()
    assert data.count(b"\n") == 1
    assert type(value).from_json(data, name="x") == value
    newer = data[:-2] + b', "more": 1}\n'
    read = type(value).from_json(newer, name="x")
    assert read.extra == {"more": 1}
    assert read.to_json() == newer


@pytest.mark.parametrize("value", [PROGRESS, POSITION])
def test_damage_names_the_file_and_the_field(value):
    kind, data = type(value), value.to_json()
    with pytest.raises(FormatError, match=r"x: version: is 2, this release knows 1"):
        kind.from_json(data.replace(b'"version": 1', b'"version": 2'), name="x")
    for length in range(len(data) - 2):
        with pytest.raises(FormatError, match="x: "):
            kind.from_json(data[:length], name="x")
    with pytest.raises(FormatError, match="num_shards"):
        kind.from_json(data.replace(b'"num_shards": ', b'"num_shards": -'), name="x")


def test_a_position_beyond_the_end_is_refused():
    with pytest.raises(FormatError, match="num_shards_passed: is 11 of 10"):
        ReadingPosition.from_json(
            POSITION.to_json().replace(b'"num_shards_passed": 4', b'"num_shards_passed": 11'), name="x"
        )
