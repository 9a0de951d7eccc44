"""Published datasets, caches and remotes for the tests of the stager; all of them real."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from shards.digests import BlockHasher, hash_bytes
from shards.index import IndexBuilder
from shards.manifest import ExtensionEntry, Manifest, ShardEntry, SplitEntry
from stager.config import StageConfig
from stager.remotes.base import Remote, RemoteVersion
from stager.remotes.posix import PosixRemote
from stager.report import StageReport
from stager.run import stage_dataset

BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True)
class Published:
    """A dataset that was published into a directory."""

    path: Path
    manifest: Manifest

    @property
    def names(self) -> list[str]:
        return [name for _, shard in self.manifest.shards() for name in (shard.name, shard.index_name)]

    @property
    def total_bytes(self) -> int:
        return sum((self.path / name).stat().st_size for name in self.names)

    def staged_in(self, cache: Path) -> Path:
        return cache / "datasets" / self.manifest.dataset_id.removeprefix("blake3:")

    def wrong_files(self, cache: Path) -> list[str]:
        """Files under final names in the cache that are not byte for byte what was published."""
        staged = self.staged_in(cache)
        return [
            name
            for name in [*self.names, "manifest.json"]
            if (staged / name).exists() and (staged / name).read_bytes() != (self.path / name).read_bytes()
        ]

    def is_staged(self, cache: Path) -> bool:
        staged = self.staged_in(cache)
        return not self.wrong_files(cache) and all((staged / name).exists() for name in [*self.names, "manifest.json"])


def publish(
    directory: Path, sizes: Sequence[int], *, block_bytes: int = BLOCK_BYTES, seed: int = 0, prefix: str = ""
) -> Published:
    """Publish shards of these sizes, with contents that depend on the seed only."""
    random = Random(seed)
    directory.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, size in enumerate(sizes):
        name = f"{prefix}train-{number:06d}.tar"
        data = random.randbytes(size)
        hasher = BlockHasher(block_bytes)
        hasher.update(data)
        blocks = hasher.finish()
        builder = IndexBuilder()
        builder.add(f"sample{number}", 0, [("bin", 0, size, 0)])
        index = builder.finish(shard_name=name, format_name="tar", blocks=blocks)
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
        (directory / f"{name}.index.arrow").write_bytes(index)
        entries.append(
            ShardEntry(
                name=name,
                size_bytes=size,
                digest=blocks.shard_digest,
                num_samples=1,
                index_name=f"{name}.index.arrow",
                index_size_bytes=len(index),
                index_digest=hash_bytes(index),
            )
        )
    split = SplitEntry(
        name="train",
        num_samples=len(entries),
        size_bytes=sum(sizes),
        shards=tuple(entries),
        extensions={"bin": ExtensionEntry(num_present=len(entries), num_missing=0, size_bytes=sum(sizes))},
    )
    manifest = Manifest(shard_format="tar", block_bytes=block_bytes, splits=(split,))
    (directory / "manifest.json").write_bytes(manifest.to_json())
    return Published(directory, manifest)


class CountingRemote(PosixRemote):
    """Counts what is read from a directory."""

    def __init__(self, root: str, num_threads: int) -> None:
        super().__init__(root, num_threads)
        self.read_bytes: dict[str, int] = {}

    @property
    def data_bytes(self) -> int:
        """All but the manifest."""
        return sum(num for name, num in self.read_bytes.items() if name != "manifest.json")

    async def read_range(self, name: str, offset: int, buffer: memoryview, version: RemoteVersion) -> None:
        self.read_bytes[name] = self.read_bytes.get(name, 0) + len(buffer)
        await super().read_range(name, offset, buffer, version)


@dataclass(frozen=True)
class Staged:
    """A run in this process."""

    report: StageReport
    remote: CountingRemote


StageHere = Callable[..., Staged]


@dataclass(frozen=True)
class Ended:
    """How a run of the program ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict:
        return json.loads(self.stdout)

    @property
    def message(self) -> str:
        """The error that was shown, without the log lines before it."""
        return self.stderr.partition("stage: error: ")[2]


Stage = Callable[..., Ended]


def environment(**extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STAGE_", "STORAGE_", "POD_"))}
    return {**kept, **extra}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Run ``stage`` in a process of its own and wait for its end."""

    def run(*args: object, env: dict[str, str] | None = None, prefix: Sequence[str] = ()) -> Ended:
        command = [*prefix, sys.executable, "-m", "stager", *map(str, args)]
        variables = environment(**(env or {}))
        done = subprocess.run(command, check=False, env=variables, capture_output=True, text=True, timeout=60)
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def stage_here() -> StageHere:
    """Stage in this process, to see what was read; options are those of StageConfig."""

    def run(published: Published, cache: Path, remote: Remote | None = None, **options: object) -> Staged:
        values = {
            "source": str(published.path),
            "cache_dir": str(cache),
            "holder": "test",
            "connections": 4,
            **options,
        }
        chosen = remote or CountingRemote(str(published.path), 4)
        return Staged(asyncio.run(stage_dataset(StageConfig(**values), chosen)), chosen)

    return run


@pytest.fixture(name="publish")
def publish_function() -> Callable[..., Published]:
    return publish


@pytest.fixture
def dataset(tmp_path: Path) -> Published:
    """Five shards: some with a short last block, one of one block, one empty."""
    sizes = [5 * BLOCK_BYTES, 3 * BLOCK_BYTES + 1234, BLOCK_BYTES, 0, 17]
    return publish(tmp_path / "published", sizes)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def expire_leases() -> Callable[[Path], None]:
    """Let the time of every hand-over in a cache be over, as it is some minutes later."""

    def expire(cache: Path) -> None:
        for path in cache.glob("leases/*/*.json"):
            record = json.loads(path.read_text())
            path.write_text(json.dumps({**record, "boottime_deadline_seconds": 0.0}))

    return expire
