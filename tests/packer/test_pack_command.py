import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from packer.cli import cli
from shards.formats import FORMATS

PACK = os.path.join(os.path.dirname(sys.executable), "pack")
UNPRIVILEGED = 65534
"""Uid and gid of nobody."""


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def test_bytes_do_not_depend_on_jobs_place_umask_zone_or_locale(pack, make_tree, many_files, tmp_path, read_dataset):
    runs = [
        (["--jobs", "1"], {"TZ": "UTC", "LC_ALL": "C"}, 0o077),
        (["--jobs", "2"], {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "7"}, 0o000),
        (["--jobs", "2", "--read-threads", "4"], {"TZ": "America/New_York", "LC_ALL": "POSIX"}, 0o022),
    ]
    shards, ids = [], set()
    files = {**many_files, "class0/\u00e9t\u00e9.jpg": b"1"}
    for number, (args, env, umask) in enumerate(runs):
        # another place, and another order of making the files
        source = make_tree(dict(reversed(files.items()) if number % 2 else files), name=f"place{number}/source")
        destination = str(tmp_path / f"place{number}/deeper/out")
        done = pack("build", source, destination, "--shard-size", "50000", "--json", *args, env=env, umask=umask)
        assert done.returncode == 0, done.stderr
        dataset = read_dataset(destination)
        ids.add(json.loads(done.stdout)["dataset_id"])
        ids.add(dataset.manifest.dataset_id)
        shards.append(dataset.shard_bytes())
        modes = {os.stat(f"{destination}/{name}").st_mode & 0o777 for name in dataset.file_bytes()}
        assert modes == {0o444}
        assert os.stat(destination).st_mode & 0o777 == 0o755
    assert len(ids) == 1
    assert shards[0] == shards[1] == shards[2]
    assert len(shards[0]) > 6


def test_summary_says_what_was_done_and_what_comes_next(pack, make_tree, many_files, tmp_path):
    out = str(tmp_path / "out")
    done = pack("build", make_tree({**many_files, ".hidden": b""}), out)
    assert done.returncode == 0, done.stderr
    for part in (
        "packed 120 samples (240 files) into 1 shard",
        "left out, hidden: 1 (.hidden)",
        "an epoch opens 1 instead of 240 files",
        "dataset id: blake3:",
        f"next: pack verify {out}",
    ):
        assert part in done.stdout
    assert all(json.loads(line) for line in done.stderr.splitlines())
    again = pack("build", str(tmp_path / "source"), out)
    assert again.returncode == 0
    assert "already packed, nothing to do" in again.stdout
    verified = pack("verify", out, "--deep")
    assert verified.returncode == 0
    assert "all is well" in verified.stdout


def test_dry_run_shows_the_plan_and_writes_nothing(pack, make_tree, many_files, tmp_path):
    source = make_tree(many_files)
    done = pack("build", source, str(tmp_path / "out"), "--dry-run", "--class-from-dir")
    assert done.returncode == 0, done.stderr
    assert "nothing was written\n  samples   120 from 240 files" in done.stdout
    assert "classes   3\n" in done.stdout
    as_json = pack("build", source, str(tmp_path / "out"), "--dry-run", "--json", "--format", "tfrecord")
    plan = json.loads(as_json.stdout)
    assert plan["num_samples"] == 120
    assert plan["shards"][0]["name"] == "train-000000.tfrecord"
    assert not (tmp_path / "out").exists()


def test_inspect_and_cat(pack, make_tree, tmp_path):
    out = str(tmp_path / "out")
    assert pack("build", make_tree({"d/a.jpg": b"\xff\x00jpg", "d/a.txt": b"words"}), out).returncode == 0
    assert "split train: 1 samples" in pack("inspect", out).stdout
    assert json.loads(pack("inspect", out, "--json").stdout)["num_samples"] == 1
    found = json.loads(pack("inspect", out, "d/a", "--json").stdout)["samples"]
    assert [member["extension"] for member in found[0]["members"]] == ["jpg", "txt"]
    assert pack("cat", out, "d/a.jpg").stdout.encode("utf-8", "surrogateescape") == b"\xff\x00jpg"
    missing = pack("inspect", out, "d/b")
    assert missing.returncode == 66
    assert "has the key d/b" in missing.stderr


def test_damage_is_exit_65_with_a_list(pack, make_tree, tmp_path):
    out = tmp_path / "out"
    source = make_tree({"a.jpg": bytes(1000)})
    assert pack("build", source, str(out)).returncode == 0
    shard = out / "train-000000.tar"
    shard.chmod(0o644)
    with open(shard, "r+b") as file:
        file.seek(600)
        file.write(b"x")
    done = pack("verify", str(out))
    assert done.returncode == 65
    assert "digest mismatch in train-000000.tar block 0 (byte offset 0): expected blake3:" in done.stderr
    assert json.loads(pack("verify", str(out), "--json").stdout)["faults"]
    assert "pack build replaces those that are gone" in done.stderr
    shard.unlink()
    assert pack("build", source, str(out)).returncode == 0
    assert pack("verify", str(out), "--deep", "--against", source).returncode == 0


REFUSALS = [
    # (files, arguments, exit code, what the message must say)
    ({"README": b""}, [], 66, ["1 file(s) give no key", "README: no-extension", "--on-keyless skip"]),
    ({"a.b.jpg": b""}, [], 66, ["1 file name(s) with several dots", "a.b.jpg", "--dotted-names allow"]),
    ({b"\xff.jpg": b""}, [], 66, ["not UTF-8", r"\udcff.jpg", "convmv"]),
    ({"a.JPG": b"", "a.jpg": b""}, [], 65, ["a.JPG and a.jpg", "rename"]),
    ({"A.jpg": b"", "a.txt": b""}, [], 65, ["a.txt and A.*", "--case-collisions allow"]),
    ({"a.jpg": bytes(9000)}, ["--shard-size", "5000"], 64, ["a: 9728 bytes encoded", "--shard-size 10752"]),
    ({"a.jpg": b""}, ["--class-from-dir"], 66, ["no class directory", "a.jpg"]),
    ({"a.jpg": b""}, ["--split", "by-dir"], 66, ["no split directory", "a.jpg"]),
    ({"a.jpg": b""}, ["--split", "train=0.5"], 2, ["--split", "sum to 0.5"]),
    ({"a.jpg": b""}, ["--shard-size", "1M"], 2, ["ambiguous", "1MiB"]),
    ({"a.jpg": b""}, ["--shard-size", "100"], 2, ["too small"]),
    ({"a.jpg": b""}, ["--key-rule", "regex:("], 64, ["not a regular expression"]),
    ({"a.jpg": b""}, ["--key-rule", "regex:(?P<key>x)"], 64, ["extension"]),
    ({"a.jpg": b""}, ["--format", "zip"], 2, ["'zip' is not one of"]),
    ({"a.jpg": b""}, ["--jobs", "0"], 2, ["--jobs"]),
    ({"a.jpg": b""}, ["--colour"], 2, ["No such option"]),
    ({"a.jpg": b""}, ["--quiet", "--verbose"], 2, ["exclude each other"]),
]


@pytest.mark.parametrize(("files", "args", "code", "parts"), REFUSALS, ids=lambda value: str(value)[:40])
def test_refusal_has_its_exit_code_says_why_and_leaves_no_trace(
    pack_here, make_tree, tmp_path, files, args, code, parts
):
    done = pack_here("build", make_tree(files), str(tmp_path / "out"), *args)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr
    assert not (tmp_path / "out").exists()


def test_missing_source_is_exit_66(pack_here, tmp_path):
    done = pack_here("build", str(tmp_path / "nothing"), str(tmp_path / "out"))
    assert done.returncode == 66
    assert f"there is no {tmp_path}/nothing" in done.stderr


AS_NOBODY = """
import os, sys
import packer.build, packer.report, shards.formats  # while the interpreter's own files can be read
from packer.cli import main
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({uid})
    os.setuid({uid})
main()
"""


@pytest.fixture
def pack_as_nobody(tmp_path):
    """Run `pack` without the right to everything that root has; the interpreter may lie where only root can read."""
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(directory.stat().st_mode | 0o055)

    def run(*args):
        command = [sys.executable, "-c", AS_NOBODY.format(uid=UNPRIVILEGED), *args]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_unreadable_files_and_directories_are_all_listed_before_anything_is_written(
    pack_as_nobody, make_tree, tmp_path
):
    source = make_tree({f"{number:02d}.jpg": b"1" for number in range(30)} | {"shut/a.jpg": b"1", "open/a.jpg": b"1"})
    for number in range(25):
        os.chmod(f"{source}/{number:02d}.jpg", 0o000)
    os.chmod(f"{source}/shut", 0o000)
    try:
        done = pack_as_nobody("build", source, str(tmp_path / "out"))
    finally:
        os.chmod(f"{source}/shut", 0o755)
    assert done.returncode == 66
    assert "26 file(s) or directories cannot be read by uid" in done.stderr
    assert "00.jpg: Permission denied" in done.stderr
    assert "… and 6 more" in done.stderr
    assert "nothing was written" in done.stderr
    assert not (tmp_path / "out").exists()


def test_destination_that_refuses_is_exit_73_and_says_who_asked(pack_as_nobody, make_tree, tmp_path):
    tmp_path.joinpath("shut").mkdir(mode=0o555)
    done = pack_as_nobody("build", make_tree({"a.jpg": b"1"}), str(tmp_path / "shut/out"))
    assert done.returncode == 73
    assert "cannot write to" in done.stderr
    assert "this process runs as uid" in done.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_full_disk_is_exit_79_with_numbers_and_the_next_run_goes_on(pack, make_tree, tmp_path, jobs, read_dataset):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        source = make_tree({f"{number:02d}.bin": bytes(100_000) for number in range(30)})
        args = ["build", source, str(disk / "out"), "--shard-size", "400000", "--jobs", jobs]
        (disk / "ballast").write_bytes(bytes(3_500_000))
        early = pack(*args)
        assert early.returncode == 79
        assert "not enough space in" in early.stderr
        assert not (disk / "out").exists()
        # somebody else takes the room after the first check
        (disk / "ballast").unlink()
        process = subprocess.Popen([PACK, *args], stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL)
        wait_for((disk / "out/.pack/plan.json").exists)
        with open(disk / "ballast", "wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, max(os.statvfs(disk).f_bavail * 4096 - 700_000, 1))
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 79, stderr
        assert "finished shards are kept; free some space" in stderr
        assert not [name for name in os.listdir(disk / "out") if name.endswith(".partial")]
        (disk / "ballast").unlink()
        done = pack(*args)
        assert done.returncode == 0, done.stderr
        assert len(read_dataset(str(disk / "out")).samples("train")) == 30
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_file_size_limit_is_explained(make_tree, tmp_path):
    source = make_tree({f"{number}.bin": bytes(100_000) for number in range(30)})
    command = f"ulimit -f 500; exec {PACK} build {source} {tmp_path}/out"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 73
    assert "takes no file of" in done.stderr
    assert "--shard-size" in done.stderr
    assert "manifest.json" not in os.listdir(tmp_path / "out")


@pytest.fixture
def slow_build(make_tree, tmp_path):
    """Start a build of many shards, and come back when two of them are finished."""
    files = {f"{number:05d}.bin": bytes(60_000) for number in range(1500)}
    source, out = make_tree(files), tmp_path / "out"

    def start(*args):
        process = subprocess.Popen(
            [PACK, "build", source, str(out), "--shard-size", "2MiB", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(lambda: process.poll() is not None or (out.exists() and any(out.glob("train-000001.tar"))))
        return process

    return start, source, out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_signal_stops_cleanly_and_keeps_finished_shards(slow_build, pack, number, code, jobs):
    start, source, out = slow_build
    process = start("--jobs", jobs)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == code, stderr
    assert stdout == ""
    assert f"stopped by {number.name}; finished shards are kept" in stderr
    assert "Traceback" not in stderr
    assert not list(out.glob(".*.partial"))
    assert list(out.glob("train-*.tar"))
    assert not (out / "manifest.json").exists()
    done = pack("build", source, str(out), "--shard-size", "2MiB", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_kept"] > 0


def children_of(pid):
    return [
        int(entry)
        for entry in os.listdir("/proc")
        if entry.isdigit() and f"PPid:\t{pid}\n" in read_text(f"/proc/{entry}/status")
    ]


def read_text(path):
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_killed_worker_is_an_error_that_names_its_shard(slow_build):
    start, _, out = slow_build
    process = start("--jobs", "2")
    workers = [pid for pid in children_of(process.pid) if "spawn_main" in read_text(f"/proc/{pid}/cmdline")]
    assert workers
    os.kill(workers[0], signal.SIGKILL)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 74, stderr
    assert "the process that packed train-0000" in stderr
    assert "ended by signal SIGKILL" in stderr
    assert "--jobs" in stderr
    assert not list(out.glob(".*.partial"))


def test_workers_do_not_outlive_a_killed_parent(slow_build):
    start, *_ = slow_build
    process = start("--jobs", "2")
    children = children_of(process.pid)
    process.kill()
    process.communicate()
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") and read_text(f"/proc/{pid}/cmdline") for pid in children))


def test_formats_on_the_command_line_are_those_of_the_table():
    # they are written out there so that --help needs not import the codecs
    for name in ("build", "plan", "adopt"):
        command = cli.get_command(click.Context(cli), name)
        option = next(option for option in command.params if "--format" in option.opts)
        assert list(option.type.choices) == list(FORMATS)
