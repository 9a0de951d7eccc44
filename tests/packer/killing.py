"""Kills builds at random moments and checks what they leave behind; for every engine, source and destination.

A file under a final name is always whole and the one of an undisturbed build, whatever was killed and when; and the
next run of the same command ends with exactly the files of an undisturbed build.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

PACK = os.path.join(os.path.dirname(sys.executable), "pack")
POLL_SECONDS = 0.001
MOST_IN_A_ROW = 4
"""Kills of one dataset before it is finished."""
DEADLINE_SECONDS = 300


class Place(Protocol):
    """Where a dataset is made."""

    @property
    def location(self) -> str:
        """As on the command line."""

    def names(self) -> set[str]:
        """Final names that are there: shards, indexes, manifest."""

    def read(self, name: str) -> bytes:
        """Content of a file."""

    def leftovers(self) -> list[str]:
        """What should not be there after a build that ended well."""

    def clear(self) -> None:
        """Remove everything."""


@dataclass(frozen=True)
class Directory:
    """A directory on this machine."""

    path: Path

    @property
    def location(self) -> str:
        return str(self.path)

    def names(self) -> set[str]:
        try:
            return {name for name in os.listdir(self.path) if not name.startswith(".")}
        except FileNotFoundError:
            return set()

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def leftovers(self) -> list[str]:
        return [str(path) for path in self.path.rglob("*") if ".partial" in path.name]

    def clear(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True)
class Bucket:
    """A prefix of a bucket."""

    client: object
    bucket: str
    prefix: str = "set/"

    @property
    def location(self) -> str:
        return f"s3://{self.bucket}/{self.prefix.rstrip('/')}"

    def _keys(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def names(self) -> set[str]:
        found = (key.removeprefix(self.prefix) for key in self._keys())
        return {name for name in found if not name.startswith(".")}

    def read(self, name: str) -> bytes:
        return self.client.get_object(Bucket=self.bucket, Key=f"{self.prefix}{name}")["Body"].read()

    def leftovers(self) -> list[str]:
        return [str(found) for found in self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", ())]

    def clear(self) -> None:
        for key in self._keys():
            self.client.delete_object(Bucket=self.bucket, Key=key)


@dataclass(frozen=True)
class Build:
    """A command line, without its destination."""

    source: str
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    kill: Callable[[subprocess.Popen, random.Random], None] | None = None
    """Kills a running build in a way of its own; None kills its process, or its whole process group."""

    def start(self, place: Place, **settings: object) -> subprocess.Popen:
        return subprocess.Popen(
            [PACK, "build", self.source, place.location, *self.options, "--quiet"],
            env={**os.environ, **self.environment},
            start_new_session=True,
            **settings,
        )

    def finish(self, place: Place) -> dict[str, bytes]:
        """Run to the end; gives all files."""
        with self.start(place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, stderr
        assert not place.leftovers()
        return {name: place.read(name) for name in sorted(place.names())}


def kill_again_and_again(build: Build, place: Place, num_kills: int, dice: random.Random) -> Counter[str]:
    """Kill a build many times, with a look at what is there after each, and let it end now and then.

    Returns:
        How many kills came when: ``early`` (nothing was finished), ``between`` (some shards were), ``publish`` (all
        shards were, the manifest was not), ``late`` (all was done).
    """
    started = time.monotonic()
    expected = build.finish(place)
    whole_seconds = time.monotonic() - started
    place.clear()
    num_files = len(expected) - 1
    moments: Counter[str] = Counter()
    in_a_row = 0
    for _ in range(num_kills):
        moment = dice.choice(["any", "shard", "shard", "shard", "publish"])
        with build.start(place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            if moment == "any":
                _wait(
                    process,
                    lambda deadline=time.monotonic() + dice.uniform(0, whole_seconds): time.monotonic() >= deadline,
                )
            else:
                there = len(place.names())
                wanted = (
                    num_files if moment == "publish" else min(num_files, there + dice.randint(1, num_files // 2 + 1))
                )
                _wait(process, lambda wanted=wanted: len(place.names()) >= wanted)
                time.sleep(dice.uniform(0, 0.01))
            _kill(build, process, dice)
        found = place.names()
        for name in found:
            assert place.read(name) == expected[name], f"{name} is not whole after kill {sum(moments.values()) + 1}"
        moments[_when(found, num_files)] += 1
        in_a_row += 1
        if "manifest.json" in found or in_a_row == dice.randint(1, MOST_IN_A_ROW) or in_a_row == MOST_IN_A_ROW:
            assert build.finish(place) == expected
            place.clear()
            in_a_row = 0
    if in_a_row:
        assert build.finish(place) == expected
    return moments


def _when(found: set[str], num_files: int) -> str:
    if "manifest.json" in found:
        return "late"
    return "publish" if len(found) == num_files else "between" if found else "early"


def _wait(process: subprocess.Popen, is_time: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while process.poll() is None and not is_time():
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)


def _kill(build: Build, process: subprocess.Popen, dice: random.Random) -> None:
    if build.kill is not None:
        build.kill(process, dice)
    elif dice.random() < 0.5:
        process.kill()  # its workers have to notice
        process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
