import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.errors import FormatError, UnsupportedEnvironmentError
from shards.leases import (
    LeaseRecord,
    boottime_seconds,
    hold_dataset,
    is_live,
    probe_locking,
    read_boot_id,
    try_exclude,
    try_lock,
)

BOOT = "5a25d5b2-9a06-463c-a19b-6c28f4c113e7"
OTHER_BOOT = "00000000-9a06-463c-a19b-6c28f4c113e7"
ID = "blake3:" + "0123456789abcdef" * 4
RECORD = LeaseRecord(
    holder="pod-1", dataset_id=ID, boot_id=BOOT, boottime_deadline_seconds=1000.5, reserved_bytes=77, is_done=True
)

HOLD = """
import sys, time
from shards.leases import hold_dataset, try_exclude
held = {"shared": hold_dataset, "exclusive": try_exclude}[sys.argv[1]](sys.argv[2])
print("held" if held else "refused", flush=True)
if held: time.sleep(60)
"""


def start_holder(kind: str, path: Path, code: str = HOLD) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", code, kind, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "held\n"
    return child


def kill(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()


def is_excluded(path: Path) -> bool:
    held = try_exclude(str(path))
    if held is None:
        return False
    held.close()
    return True


@pytest.mark.parametrize(
    ("boot_id", "now", "live"),
    [
        (BOOT, 0.0, True),
        (BOOT, 1000.4, True),
        (BOOT, 1000.5, False),
        (BOOT, 2000.0, False),
        (OTHER_BOOT, 0.0, False),
        (OTHER_BOOT, 2000.0, False),
    ],
)
def test_a_grace_lease_counts_on_its_boot_until_its_deadline(boot_id: str, now: float, live: bool) -> None:
    assert is_live(RECORD, boot_id=boot_id, boottime_seconds=now) is live


def test_a_finished_stage_keeps_its_grace_lease() -> None:
    for is_done in (True, False):
        record = dataclasses.replace(RECORD, is_done=is_done)
        assert is_live(record, boot_id=BOOT, boottime_seconds=1.0)


def test_a_record_is_the_same_after_a_round_trip() -> None:
    assert LeaseRecord.from_json(RECORD.to_json(), name="x") == RECORD
    assert json.loads(RECORD.to_json()) == {
        "holder": "pod-1",
        "dataset_id": ID,
        "boot_id": BOOT,
        "boottime_deadline_seconds": 1000.5,
        "reserved_bytes": 77,
        "is_done": True,
    }
    value = {**json.loads(RECORD.to_json()), "pod": {"uid": "x"}, "boottime_deadline_seconds": 7}
    again = LeaseRecord.from_json(json.dumps(value).encode(), name="x")
    assert json.loads(again.to_json()) == value
    assert again.extra == {"pod": {"uid": "x"}}


@given(deadline=st.floats(0, 2**53), reserved=st.integers(0, 2**63 - 1), is_done=st.booleans())
def test_any_record_survives(deadline: float, reserved: int, is_done: bool) -> None:
    record = dataclasses.replace(RECORD, boottime_deadline_seconds=deadline, reserved_bytes=reserved, is_done=is_done)
    assert LeaseRecord.from_json(record.to_json(), name="x") == record


@pytest.mark.parametrize(
    ("change", "mentions"),
    [
        ({"holder": "../x"}, "no holder"),
        ({"holder": 7}, "holder: expected a string, found an integer"),
        ({"dataset_id": "x"}, "no dataset id"),
        ({"boot_id": "x"}, "boot_id: expected a UUID"),
        ({"boot_id": BOOT + "\n"}, "boot_id: expected a UUID"),
        ({"boottime_deadline_seconds": -1}, "boottime_deadline_seconds"),
        ({"boottime_deadline_seconds": 1e300}, "boottime_deadline_seconds"),
        ({"boottime_deadline_seconds": "1"}, "boottime_deadline_seconds: expected a number, found a string"),
        ({"boottime_deadline_seconds": True}, "boottime_deadline_seconds: expected a number, found a boolean"),
        ({"reserved_bytes": 1.5}, "reserved_bytes: expected an integer, found a number"),
        ({"reserved_bytes": -1}, "reserved_bytes: must not be negative"),
        ({"is_done": 1}, "is_done: expected a boolean, found an integer"),
        ({"is_done": ...}, "is_done: missing"),
    ],
)
def test_a_record_that_cannot_be_is_refused(change: dict, mentions: str) -> None:
    value = {**json.loads(RECORD.to_json()), **change}
    data = json.dumps({key: item for key, item in value.items() if item is not ...}).encode()
    with pytest.raises(FormatError) as caught:
        LeaseRecord.from_json(data, name="/c/leases/x.json")
    assert mentions in str(caught.value)
    assert "/c/leases/x.json" in str(caught.value)


def test_a_record_cut_anywhere_is_refused() -> None:
    data = RECORD.to_json()
    for size in range(len(data) - 2):
        with pytest.raises(FormatError):
            LeaseRecord.from_json(data[:size], name="x")
    for deadline in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ValueError, match="deadline"):
            dataclasses.replace(RECORD, boottime_deadline_seconds=deadline)


def test_boot_id_and_clock(tmp_path: Path) -> None:
    assert LeaseRecord.from_json(dataclasses.replace(RECORD, boot_id=read_boot_id()).to_json(), name="x")
    first = boottime_seconds()
    assert 0 < first <= boottime_seconds()
    with pytest.raises(UnsupportedEnvironmentError, match="none"):
        read_boot_id(str(tmp_path / "none"))
    for content in (b"", b"x\n", b"\xff"):
        (tmp_path / "id").write_bytes(content)
        with pytest.raises(UnsupportedEnvironmentError, match="id"):
            read_boot_id(str(tmp_path / "id"))


def test_many_hold_and_one_excludes(tmp_path: Path) -> None:
    with hold_dataset(str(tmp_path)) as first, hold_dataset(str(tmp_path)) as second:
        assert first.fd != second.fd
        assert not first.is_exclusive
        assert try_exclude(str(tmp_path)) is None
        first.close()
        assert try_exclude(str(tmp_path)) is None
    with try_exclude(str(tmp_path)) as held:
        assert held.is_exclusive
        assert held.path == str(tmp_path)
        assert try_exclude(str(tmp_path)) is None
        with pytest.raises(TimeoutError, match=r"0\.05 seconds"):
            hold_dataset(str(tmp_path), wait_seconds=0.05)
    held.close()
    assert is_excluded(tmp_path)


def test_a_refused_try_leaks_no_descriptor(tmp_path: Path) -> None:
    with hold_dataset(str(tmp_path)):
        before = os.listdir("/proc/self/fd")
        for _ in range(20):
            assert try_exclude(str(tmp_path)) is None
        for _ in range(20):
            with pytest.raises(FileNotFoundError):
                hold_dataset(str(tmp_path / "none"))
        assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("call", [hold_dataset, try_exclude])
def test_a_directory_that_is_not_there_is_an_os_error(tmp_path: Path, call) -> None:
    with pytest.raises(FileNotFoundError):
        call(str(tmp_path / "none"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        call(str(tmp_path / "file"))


def test_the_kernel_releases_a_killed_holder(tmp_path: Path) -> None:
    holder = start_holder("shared", tmp_path)
    assert not is_excluded(tmp_path)
    kill(holder)
    assert is_excluded(tmp_path)
    holder = start_holder("exclusive", tmp_path)
    with pytest.raises(TimeoutError):
        hold_dataset(str(tmp_path), wait_seconds=0)
    kill(holder)
    hold_dataset(str(tmp_path), wait_seconds=0).close()


HOLD_WITH_CHILD = """
import os, subprocess, sys, time
from shards.leases import hold_dataset
kind, path = sys.argv[1:]
held = hold_dataset(path)
if kind == "exec":
    child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL).pid
else:
    child = os.fork()
    if child == 0:
        time.sleep(60)
if kind == "fork, then close":
    held.close()
print(f"held\\n{child}", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("kind", "is_kept"), [("exec", False), ("fork", True), ("fork, then close", True)])
def test_a_forked_worker_keeps_the_lease_and_an_executed_program_does_not(
    tmp_path: Path, kind: str, is_kept: bool
) -> None:
    holder = start_holder(kind, tmp_path, HOLD_WITH_CHILD)
    child = int(holder.stdout.readline())
    try:
        assert not is_excluded(tmp_path)
    finally:
        kill(holder)
        was_kept = not is_excluded(tmp_path)
        os.kill(child, signal.SIGKILL)
    assert was_kept is is_kept
    deadline = time.monotonic() + 10
    while not is_excluded(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_reader_waits_for_a_short_exclusion(tmp_path: Path) -> None:
    excluded = try_exclude(str(tmp_path))
    timer = threading.Timer(0.2, excluded.close)
    timer.start()
    started = time.monotonic()
    with hold_dataset(str(tmp_path), wait_seconds=30):
        assert time.monotonic() - started > 0.1
    timer.join()


def test_a_directory_evicted_between_open_and_lock_is_never_held(tmp_path: Path) -> None:
    dataset, trash = tmp_path / "dataset", tmp_path / "trash"
    dataset.mkdir()
    excluded = try_exclude(str(dataset))
    results: list[object] = []

    def hold() -> None:
        try:
            with hold_dataset(str(dataset), wait_seconds=30) as held:
                results.append(os.fstat(held.fd).st_ino)
        except FileNotFoundError as error:
            results.append(error)

    for is_staged_again in (False, True):
        thread = threading.Thread(target=hold)
        thread.start()
        time.sleep(0.05)
        dataset.rename(trash)
        if is_staged_again:
            dataset.mkdir()
        excluded.close()
        thread.join()
        if is_staged_again:
            assert results[-1] == dataset.stat().st_ino != trash.stat().st_ino
        else:
            assert isinstance(results[-1], FileNotFoundError)
            trash.rename(dataset)
            excluded = try_exclude(str(dataset))


READ_FOR_EVER = """
import os, sys, time
from shards.leases import hold_dataset
dataset, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
uses = 0
while time.monotonic() < end:
    try:
        with hold_dataset(dataset):
            for _ in range(3):
                assert open(f"{dataset}/shard").read() == "whole", "read data that vanished"
            uses += 1
    except FileNotFoundError as error:
        assert error.filename == dataset, f"evicted while held: {error}"
print(uses)
"""
EVICT_FOR_EVER = """
import os, shutil, sys, time
from shards.leases import try_exclude
dataset, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
evictions = 0
while time.monotonic() < end:
    try: held = try_exclude(dataset)
    except FileNotFoundError:
        new = f"{dataset}.new.{os.getpid()}"
        os.mkdir(new)
        with open(f"{new}/shard", "w") as file: file.write("whole")
        try: os.rename(new, dataset)
        except OSError: shutil.rmtree(new)
        continue
    if held is None:
        time.sleep(0.001)
        continue
    trash = f"{dataset}.trash.{os.getpid()}.{evictions}"
    with held: os.rename(dataset, trash)
    shutil.rmtree(trash)
    evictions += 1
print(evictions)
"""


def test_nobody_reads_what_was_evicted(tmp_path: Path) -> None:
    dataset = str(tmp_path / "dataset")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, dataset, "1.5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for code in (READ_FOR_EVER, READ_FOR_EVER, EVICT_FOR_EVER, EVICT_FOR_EVER)
    ]
    outputs = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0] * 4, outputs
    counts = [int(output) for output, _ in outputs]
    assert sum(counts[:2]) > 20
    assert sum(counts[2:]) > 2


def test_a_read_only_mount_holds_leases_too(tmp_path: Path) -> None:
    dataset, mounted = tmp_path / "dataset", tmp_path / "mounted"
    dataset.mkdir()
    mounted.mkdir()
    script = f'mount --bind {dataset} {mounted} && mount -o remount,bind,ro {mounted} && exec "$@"'
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    command = [*namespace, "sh", "-c", script, "sh"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, "true"], check=False, stderr=subprocess.DEVNULL).returncode
    ):
        pytest.skip("nothing can be mounted here")
    code = (
        "import os, sys\ntry: open(sys.argv[2] + '/x', 'w')\nexcept OSError as error: assert error.errno == 30\n" + HOLD
    )
    with subprocess.Popen(
        [*command, sys.executable, "-c", code, "shared", str(mounted)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "held\n"
        assert not is_excluded(dataset)
        kill(child)
    assert is_excluded(dataset)


def test_the_probe_tells_whether_locks_exclude(tmp_path: Path) -> None:
    assert probe_locking(str(tmp_path))
    with hold_dataset(str(tmp_path)):
        assert probe_locking(str(tmp_path))
    with try_exclude(str(tmp_path)):
        assert probe_locking(str(tmp_path))
    assert is_excluded(tmp_path)
    with pytest.raises(FileNotFoundError):
        probe_locking(str(tmp_path / "none"))


def test_files_lock_like_directories(tmp_path: Path) -> None:
    path = tmp_path / "x.partial"
    path.write_bytes(b"")
    with path.open("rb+") as first, path.open("rb+") as second:
        assert try_lock(first.fileno())
        assert not try_lock(second.fileno())
        assert not try_lock(second.fileno(), is_exclusive=False)
        first.close()
        assert try_lock(second.fileno(), is_exclusive=False)


def test_what_cannot_be_locked_says_so(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_PATH)
    try:
        with pytest.raises(UnsupportedEnvironmentError, match="cannot lock files"):
            try_lock(fd)
    finally:
        os.close(fd)
