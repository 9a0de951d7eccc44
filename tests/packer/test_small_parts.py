import gzip
import io
import os
import signal
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.saved import read_sources, write_sources
from packer.sources.files import SourceFiles
from packer.stop import StopFlag
from shards.cpus import cgroup_quota, parse_cpu_max, usable_cpus
from shards.errors import StoppedError


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("max 100000\n", None), ("150000 100000\n", 1.5), ("50000 100000", 0.5), ("", None), ("1", None), ("1 0", None)],
)
def test_cpu_quota_is_understood(text, cpus):
    assert parse_cpu_max(text) == cpus


V1 = "4:memory:/elsewhere\n2:cpu,cpuacct:/slurm/job7\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "limits", "cpus"),
    [
        ("0::/\n", {}, None),
        ("0::/\n", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/pod/main\n", {"pod/main/cpu.max": "max 100000", "pod/cpu.max": "200000 100000"}, 2.0),
        ("0::/pod/main\n", {"pod/main/cpu.max": "100000 100000", "pod/cpu.max": "200000 100000"}, 1.0),
        ("0::/pod2/main\n", {"pod/cpu.max": "200000 100000"}, None),
        ("0::/../other\n", {"cpu.max": "300000 100000"}, 3.0),
        (V1, {"cpu/slurm/job7/cpu.cfs": "400000 100000", "cpu/cpu.cfs": "-1 100000"}, 4.0),
        (V1, {"cpu,cpuacct/slurm/cpu.cfs": "250000 100000"}, 2.5),
        (V1, {"cpu/cpu.cfs": "50000 100000"}, 0.5),  # in a container, where the host's name of the group is not there
        (V1, {"cpu/other/cpu.cfs": "100000 100000", "memory/cpu.cfs": "100000 100000"}, None),
        ("1:cpuset:/\n", {"cpu/cpu.cfs": "100000 100000"}, None),
        ("", {}, None),
    ],
)
def test_quota_is_the_tightest_of_the_groups_of_this_process(tmp_path, groups, limits, cpus):
    for name, text in limits.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("cpu.max"):
            path.write_text(f"{text}\n")
            continue
        for part, value in zip(("quota", "period"), text.split(), strict=True):
            path.with_name(f"cpu.cfs_{part}_us").write_text(f"{value}\n")
    assert cgroup_quota(groups, str(tmp_path)) == cpus


def test_usable_cpus_are_at_least_one_and_at_most_the_affinity():
    assert 1 <= usable_cpus() <= len(os.sched_getaffinity(0))


paths = st.lists(st.binary(min_size=1).filter(lambda path: b"\0" not in path), unique=True).map(sorted)


@given(paths)
def test_saved_sources_come_back_whatever_their_names(found):
    files = SourceFiles()
    for number, path in enumerate(found):
        files.append(path, number * 2**33, number - 5)
    target = io.BytesIO()
    write_sources(files, target)
    target.seek(0)
    assert list(read_sources(target)) == list(files)
    assert len(gzip.decompress(target.getvalue()).splitlines()) >= len(found)


def test_signal_sets_the_flag_and_a_second_one_interrupts():
    stop = StopFlag()
    stop.check()
    before = signal.getsignal(signal.SIGTERM)
    with stop.set_by_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.reason == "SIGTERM"
        with pytest.raises(StoppedError, match="stopped by SIGTERM"):
            stop.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_flag_works_outside_of_the_main_thread():
    entered = []

    def work():
        with StopFlag().set_by_signals():
            entered.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered
