"""``pack verify`` in several processes, within memory, and against sources of which a part was left out."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from packer.unpack.compare import BATCH_BYTES, READ_THREADS

UNPRIVILEGED = 65534
MIB = 1024**2


@pytest.fixture
def packed(make_tree, many_files, pack_here, tmp_path):
    source, destination = make_tree(many_files), str(tmp_path / "out")
    assert pack_here("build", source, destination, "--shard-size", "40000", "--quiet").returncode == 0
    return source, destination


def flip(path, offset):
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_all_faults_are_found_by_several_processes_in_the_order_of_shards(packed, pack):
    _, destination = packed
    shards = sorted(Path(destination).glob("*.tar"))
    for shard in (shards[4], shards[1], shards[3]):
        flip(shard, 700)
    reports = [
        json.loads(pack("verify", destination, "--deep", "--jobs", jobs, "--json", "--quiet").stdout)
        for jobs in ("1", "2")
    ]
    assert reports[0] == reports[1]
    assert [fault.split()[3] for fault in reports[0]["faults"]] == [shards[n].name for n in (1, 3, 4)]
    assert reports[0]["num_samples"] == 120


def test_big_and_empty_members_are_compared(make_tree, pack_here, tmp_path):
    """Bigger than what is read of a shard at once; empty ones have no bytes to read."""
    files = {"a.bin": b"\1" * (BATCH_BYTES + MIB), "b.bin": b"", "b.txt": b"", "c.bin": b"3" * 1000, "d.txt": b"4"}
    source, destination = make_tree(files), str(tmp_path / "out")
    assert pack_here("build", source, destination, "--quiet").returncode == 0
    done = pack_here("verify", destination, "--against", source, "--quiet", "--json")
    assert json.loads(done.stdout)["comparison"]["num_compared"] == len(files)
    with open(os.path.join(source, "a.bin"), "r+b") as file:
        file.seek(BATCH_BYTES + MIB - 1)
        file.write(b"\2")
    done = pack_here("verify", destination, "--against", source, "--quiet")
    assert done.returncode == 65
    assert "different from the source: a.bin" in done.stderr


def test_what_a_list_left_out_is_not_missing_and_what_else_is_missing_is(packed, pack_here, tmp_path):
    source, _ = packed
    destination, listed = str(tmp_path / "listed"), tmp_path / "train.txt"
    listed.write_text("".join(f"class{n % 3}/img{n:04d}\n" for n in range(100)))
    args = ("build", source, destination, "--split", f"train=@{listed}", "--on-unlisted", "skip", "--quiet")
    assert pack_here(*args).returncode == 0
    done = pack_here("verify", destination, "--against", source, "--quiet", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["comparison"]["num_left_out"] == 40
    Path(source, "class0/another.jpg").write_bytes(b"1")
    done = pack_here("verify", destination, "--against", source, "--quiet", "--json")
    assert done.returncode == 65
    assert json.loads(done.stdout)["comparison"]["num_missing"] == 41


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what nobody may")
@pytest.mark.parametrize("victim", ["class1/img0001.jpg", "class2"])
def test_what_the_build_could_not_read_is_not_missing_for_one_who_can(packed, pack_here, tmp_path, victim):
    source, _ = packed
    os.chmod(os.path.join(source, victim), 0)
    tmp_path.chmod(0o755)
    top = tmp_path / "for-nobody"
    top.mkdir()
    os.chmod(top, 0o777)
    code = (
        "import os, packer.build, packer.report, shards.formats; from packer.cli import main; "
        f"os.setgroups([]); os.setgid({UNPRIVILEGED}); os.setuid({UNPRIVILEGED}); main()"
    )
    args = (
        "build",
        source,
        str(top / "out"),
        "--on-unreadable",
        "skip",
        "--max-skipped",
        "50%",
        "--quiet",
        "--jobs",
        "1",
    )
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = pack_here("verify", str(top / "out"), "--against", source, "--quiet", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["comparison"]["num_left_out"] == (1 if victim.endswith("jpg") else 80)
    for number in range(3):
        Path(source, f"class0/new{number}.jpg").write_bytes(b"1")
        Path(source, f"new{number}").mkdir()
        Path(source, f"new{number}/a.jpg").write_bytes(b"1")
    assert pack_here("verify", str(top / "out"), "--against", source, "--quiet").returncode == 65


def test_incomplete_and_excluded_samples_are_not_missing(packed, pack_here, tmp_path):
    source, _ = packed
    Path(source, "class1/img0001.json").unlink()
    Path(source, "class1/README").write_bytes(b"no key")
    destination = str(tmp_path / "required")
    options = ("--require", "jpg,json", "--on-missing", "skip", "--exclude", "class2", "--on-keyless", "skip")
    assert pack_here("build", source, destination, *options, "--quiet").returncode == 0
    done = pack_here("verify", destination, "--against", source, "--quiet", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["comparison"]["num_compared"] == 2 * 79


def test_table_with_its_files_elsewhere_is_compared(packed, pack_here, tmp_path):
    source, _ = packed
    table, destination = tmp_path / "list.csv", str(tmp_path / "of-table")
    table.write_text("path,label\n" + "".join(f"class0/img{n:04d}.jpg,{n}\n" for n in range(0, 120, 3)))
    assert pack_here("build", str(table), destination, "--root", source, "--quiet").returncode == 0
    done = pack_here("verify", destination, "--against", str(table), "--root", source, "--quiet")
    assert done.returncode == 0, done.stderr
    assert pack_here("verify", destination, "--against", source, "--root", source, "--quiet").returncode == 66


@pytest.mark.slow
def test_memory_of_a_comparison_is_bounded_whatever_the_size(tmp_path, pack):
    """A gigabyte in one shard, and members bigger than what is read at once."""
    source = tmp_path / "source"
    source.mkdir()
    block = os.urandom(MIB)
    for number in range(32):
        with open(source / f"{number:02d}.bin", "wb") as file:
            for _ in range(32):
                file.write(block)
    for number in range(20_000):
        (source / f"small{number:05d}.txt").write_bytes(b"%d" % number)
    destination = str(tmp_path / "out")
    assert pack("build", str(source), destination, "--shard-size", "2GiB", "--quiet").returncode == 0
    peaks = {}
    for name, path in (("tiny", tmp_path / "tiny"), ("big", source)):
        if name == "tiny":
            path.mkdir()
            (path / "a.txt").write_bytes(b"1")
        out = str(tmp_path / f"{name}-packed") if name == "tiny" else destination
        pack("build", str(path), out, "--quiet")
        args = (sys.executable, "-m", "packer", "verify", out, "--deep", "--against", str(path), "--quiet")
        process = subprocess.Popen(args, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks[name] = usage.ru_maxrss * 1024
    more = peaks["big"] - peaks["tiny"]
    print(f"{more / MIB:.0f} MiB more than for one file")
    assert more < 2 * BATCH_BYTES + 2 * READ_THREADS * MIB + 32 * MIB
