"""The machine under the cache: another boot, a clock that jumps."""

import json
import signal
import subprocess
import sys
import uuid

import pytest

from tests.faults.machine import need_programs, need_root
from tests.stager.conftest import environment

pytestmark = [pytest.mark.faults, pytest.mark.slow]

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot(tmp_path):
    """What a program has to be started with to see another boot of this machine."""
    need_root()
    need_programs("unshare")
    path = tmp_path / f"boot-{uuid.uuid4()}"
    path.write_text(f"{uuid.uuid4()}\n")
    return ("unshare", "--mount", "sh", "-c", f'mount --bind {path} {BOOT_ID} && exec "$0" "$@"')


def status(node, prefix):
    command = [*prefix, sys.executable, "-m", "stager", "status", "--cache-dir", str(node.cache), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment())
    return json.loads(done.stdout)


def test_a_run_cut_off_by_a_reboot_is_gone_on_with_by_the_next_boot(dataset, node, mount, tmp_path):
    before, after = boot(tmp_path), boot(tmp_path)
    mount.set({"op": "read", "path": "*/train-000000.tar", "from": 2 * 65536, "hang": True})
    running = node.start(mount.point, "--connections", "1", prefix=before)
    mount.wait_for_fault()
    running.signal(signal.SIGKILL)
    mount.set()
    running.finish()
    node.check(dataset)
    ended = node.stage(mount.point, prefix=after)
    assert ended.report["resumed_bytes"] > 0
    assert dataset.is_staged(node.cache)
    node.check_completes(dataset, mount.point)


def test_a_lease_of_another_boot_protects_nothing(dataset, node, tmp_path):
    before, after = boot(tmp_path), boot(tmp_path)
    assert node.stage(dataset.path, prefix=before).code == 0
    [held] = status(node, before)["datasets"]
    [free] = status(node, after)["datasets"]
    assert (held["lease"], free["lease"]) == ("grace", "none")
