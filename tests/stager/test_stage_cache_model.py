"""The cache against a model: whatever is staged, held, killed, rebooted, corrupted, released or cleaned, in any order.

The model knows which bytes every dataset has, who protects what, and what is not the stager's. After every step: what
lies under a final name is right or was corrupted by a step of the model; a protected dataset is complete if it was; no
file of others has changed; and the cache takes no more than its quota.
"""

import asyncio
import json
import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shards.cache import CacheLayout
from shards.errors import NoSpaceError
from shards.leases import hold_dataset
from stager.config import StageConfig
from stager.hold import release_leases
from stager.limits import Retain, SpaceLimits
from stager.reclaim import clean, hold_gc_lock
from stager.remotes.base import RemoteVersion
from stager.remotes.posix import PosixRemote
from stager.run import stage_dataset
from stager.usage import observe_usage
from stager.verify import Verify

BLOCK = 64 * 1024
NUMBERS = st.integers(0, 3)
QUOTA = 2_600_000
LIMITS = SpaceLimits(quota_bytes=QUOTA, high_watermark=1.0, low_watermark=0.9, min_idle_seconds=0.0)
EARLIER_BOOT = "01234567-89ab-cdef-0123-456789abcdef"
PUBLISHED: list = []


class DyingRemote(PosixRemote):
    """Its reader dies after some reads."""

    def __init__(self, root: str, reads_left: int) -> None:
        super().__init__(root, 2)
        self._reads_left = reads_left

    async def read_range(self, name: str, offset: int, buffer: memoryview, version: RemoteVersion) -> None:
        if name != "manifest.json":
            self._reads_left -= 1
            if self._reads_left < 0:
                os._exit(9)
        await super().read_range(name, offset, buffer, version)


class CacheMachine(RuleBasedStateMachine):
    @initialize()
    def make(self):
        self.directory = Path(tempfile.mkdtemp(prefix="shardferry-model-"))
        self.cache = self.directory / "cache"
        self.cache.mkdir()
        self.layout = CacheLayout(str(self.cache))
        self.stack = ExitStack()
        self.readers: dict[int, object] = {}
        self.leased: set[int] = set()
        self.complete: set[int] = set()
        self.to_be_deleted: set[int] = set()
        self.damaged: set[Path] = set()
        self.foreign: dict[Path, bytes] = {}

    def teardown(self):
        if hasattr(self, "directory"):
            self.stack.close()
            for held in self.readers.values():
                held.close()
            shutil.rmtree(self.directory)

    def staged(self, number):
        return PUBLISHED[number].staged_in(self.cache)

    def is_protected(self, number):
        return number in self.leased or number in self.readers

    def config(self, number, **options):
        return StageConfig(
            source=str(PUBLISHED[number].path),
            cache_dir=str(self.cache),
            holder=f"job-{number}",
            connections=2,
            space=LIMITS,
            **options,
        )

    @rule(number=NUMBERS, retain=st.sampled_from(Retain), verify=st.sampled_from(Verify))
    def stage(self, number, retain, verify):
        config = self.config(number, retain=retain, verify=verify)
        try:
            asyncio.run(stage_dataset(config, PosixRemote(str(PUBLISHED[number].path), 2)))
        except NoSpaceError:
            event("refused")
            # only when what is protected leaves no room; two datasets always fit
            assert len({other for other in range(4) if self.is_protected(other)} - {number}) >= 2
        else:
            event("staged")
            self.complete.add(number)
            self.damaged = {
                path for path in self.damaged if path.parent != self.staged(number) or verify is not Verify.FULL
            }
            assert all(path.exists() for path in self.damaged)
        (self.to_be_deleted.add if retain is Retain.DELETE else self.to_be_deleted.discard)(number)
        self.leased.add(number)

    @rule(number=NUMBERS, reads=st.integers(0, 12))
    def stage_and_kill(self, number, reads):
        pid = os.fork()
        if pid == 0:
            try:
                remote = DyingRemote(str(PUBLISHED[number].path), reads)
                asyncio.run(stage_dataset(self.config(number, lease_ttl_seconds=0.0), remote))
            finally:
                os._exit(9)
        os.waitpid(pid, 0)
        self.leased.discard(number)  # the lease of the killed one has no time
        self.to_be_deleted.discard(number)  # it wanted the dataset kept
        if not (self.staged(number) / "manifest.json").exists():
            self.complete.discard(number)
        else:
            self.complete.add(number)
        self.forget_evicted()

    @rule()
    def reboot(self):
        """Locks are gone, and what leases and marks say belongs to an earlier boot."""
        for held in self.readers.values():
            held.close()
        self.readers.clear()
        self.leased.clear()
        for path in [*self.cache.glob("leases/*/*.json"), *self.cache.glob("datasets/*/.stage/used.json")]:
            document = json.loads(path.read_text())
            path.chmod(0o644)
            path.write_text(json.dumps({**document, "boot_id": EARLIER_BOOT}))

    # rules take any number and do nothing where it does not apply: what exists depends on the moment of a kill, and
    # hypothesis wants to draw the same again
    @rule(number=NUMBERS)
    def open_reader(self, number):
        if number in self.complete and number not in self.readers:
            self.readers[number] = hold_dataset(str(self.staged(number)))

    @rule(number=NUMBERS)
    def close_reader(self, number):
        if number in self.readers:
            self.readers.pop(number).close()

    @rule(number=NUMBERS)
    def release(self, number):
        release_leases(self.layout, f"job-{number}", None, None)
        self.leased.discard(number)

    @rule()
    def gc(self):
        before = {number for number in self.complete if self.is_protected(number)}
        with hold_gc_lock(self.layout):
            clean(self.layout, LIMITS)
        assert all((self.staged(number) / "manifest.json").exists() for number in before)
        for number in self.to_be_deleted:
            if not self.is_protected(number):
                assert not any((self.staged(number) / name).exists() for name in PUBLISHED[number].names)
        assert not [path for path in self.cache.glob("trash/*") if path not in self.foreign]
        self.forget_evicted()

    @rule(number=NUMBERS, place=st.integers(0, 5))
    def corrupt(self, number, place):
        """A disk flips a bit: size, time and inode stay."""
        names = PUBLISHED[number].names
        path = self.staged(number) / names[place % len(names)]
        if path.exists() and path not in self.damaged and path.stat().st_size:
            status = path.stat()
            path.chmod(0o644)
            with path.open("r+b") as file:
                byte = file.read(1)
                file.seek(0)
                file.write(bytes([byte[0] ^ 1]))
            path.chmod(0o444)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            self.damaged |= {
                other
                for each in PUBLISHED
                for other in (each.staged_in(self.cache) / name for name in each.names)
                if other.exists() and other.stat().st_ino == status.st_ino
            }

    @rule(number=NUMBERS, name=st.sampled_from(["mine.txt", ".hidden", "train-9.tar", ".stage/mine", "deep/mine"]))
    def lay_foreign_file(self, number, name):
        path = self.staged(number) / name
        if path not in self.foreign:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"mine")
            self.foreign[path] = b"mine"

    @rule(name=st.sampled_from(["mine", "datasets/mine", "trash/mine", "leases/mine.json", "quarantine/mine"]))
    def lay_foreign_file_beside(self, name):
        path = self.cache / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"mine")
        self.foreign[path] = b"mine"

    def forget_evicted(self):
        self.complete = {n for n in self.complete if (self.staged(n) / "manifest.json").exists()}
        self.to_be_deleted = {n for n in self.to_be_deleted if self.staged(n).exists()}
        self.damaged = {path for path in self.damaged if path.exists()}

    @invariant()
    def nothing_bad_lies_under_a_final_name(self):
        if not hasattr(self, "cache"):
            return
        self.forget_evicted()
        for dataset in PUBLISHED:
            wrong = {dataset.staged_in(self.cache) / name for name in dataset.wrong_files(self.cache)}
            assert wrong <= self.damaged, wrong
            if (dataset.staged_in(self.cache) / "manifest.json").exists():
                assert all((dataset.staged_in(self.cache) / name).exists() for name in dataset.names)

    @invariant()
    def files_of_others_are_as_they_were(self):
        for path, content in getattr(self, "foreign", {}).items():
            assert path.read_bytes() == content

    @invariant()
    def the_quota_holds(self):
        if hasattr(self, "cache") and self.cache.exists():
            usage = observe_usage(self.layout)
            assert usage.used_bytes <= QUOTA
            assert usage.promised_bytes == 0  # nobody stages between two steps

    @invariant()
    def what_is_protected_stays_complete(self):
        for number in getattr(self, "readers", {}):
            assert self.staged(number).exists()


def test_the_cache_does_as_its_model_says(publish, tmp_path):
    PUBLISHED[:] = [publish(tmp_path / f"published-{n}", [5 * BLOCK, 2 * BLOCK + 17, 0], seed=n) for n in range(3)]
    # shares its first shard with dataset 0, as a later version of it
    PUBLISHED.append(publish(tmp_path / "published-3", [5 * BLOCK, 3 * BLOCK], seed=0))
    num_examples = int(os.environ.get("SHARDFERRY_MODEL_EXAMPLES", "15"))

    class Machine(CacheMachine):
        pass

    machine = Machine.TestCase
    machine.settings = settings(
        max_examples=num_examples,
        stateful_step_count=25,
        phases=[Phase.generate],  # to shrink an example takes minutes; the steps that are shown tell enough
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    machine("runTest").runTest()
