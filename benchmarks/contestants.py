"""Who is compared: how each packs a tree, and how many samples lie in what it wrote."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from processes import Usage, run

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")


@dataclass(frozen=True, slots=True)
class Contestant:
    """A packer under test."""

    name: str
    command: Callable[[str, str], list[str]]
    """(source, destination) → program and arguments."""
    count_samples: Callable[[str], int]
    """Samples in a destination, counted by another program than the one that wrote it."""
    times_itself: bool = False
    """Whether its script leaves out imports and writes down the rest."""

    def pack(self, source: str, work: str, *, watches_memory: bool = False) -> Usage:
        """Pack into ``work/out``, which must not exist; returns what is counted."""
        result = os.path.join(work, "result.json")
        command = self.command(source, os.path.join(work, "out"))
        if self.times_itself:
            command.append(result)
        # litdata writes into this directory first, /tmp if not told: it must be the same filesystem for everybody
        env = {"DATA_OPTIMIZER_CACHE_FOLDER": os.path.join(work, "cache"), "TF_CPP_MIN_LOG_LEVEL": "3"}
        usage = run(command, log=os.path.join(work, "log"), env=env, watches_memory=watches_memory)
        if not self.times_itself:
            return usage
        counted = _read_json(result)
        return Usage(counted["seconds"], counted["cpu_seconds"], usage.peak_bytes)


def ours(pack: str, *options: str) -> Contestant:
    """Our ``pack build`` with index, digests and fsync, which cannot be turned off."""
    return Contestant(
        " ".join(("pack build", *options)),
        lambda source, destination: [pack, "build", source, destination, "--quiet", *options],
        _count_in_manifest,
    )


def webdataset() -> Contestant:
    """The webdataset library."""
    return _script("webdataset ShardWriter", "webdataset_shardwriter", _count_in_tars)


def gnu_tar() -> Contestant:
    """GNU tar, one archive."""

    def command(source: str, destination: str) -> list[str]:
        return ["tar", "--create", "--file", destination + ".tar", "--directory", source, "."]

    return Contestant("GNU tar", command, _count_in_tars)


def mosaicml() -> Contestant:
    """The mosaicml-streaming library."""
    return _script("mosaicml-streaming MDSWriter", "mosaicml_mdswriter", _count_in_mds)


def litdata() -> Contestant:
    """The litdata library."""
    return _script("litdata optimize, 2 workers", "litdata_optimize", _count_in_litdata)


def tensorflow() -> Contestant:
    """A loop over TensorFlow's writer."""
    return _script("tf.io.TFRecordWriter loop", "tensorflow_tfrecordwriter", _count_in_tfrecords)


def _script(name: str, script: str, count_samples: Callable[[str], int]) -> Contestant:
    path = os.path.join(PEERS, script + ".py")
    return Contestant(
        name,
        lambda source, destination: [sys.executable, path, source, destination],
        count_samples,
        times_itself=True,
    )


def _count_in_manifest(destination: str) -> int:
    manifest = _read_json(os.path.join(destination, "manifest.json"))
    for split in manifest["splits"]:
        for shard in split["shards"]:
            if os.path.getsize(os.path.join(destination, shard["name"])) != shard["size_bytes"]:
                return 0
    return sum(split["num_samples"] for split in manifest["splits"])


def _count_in_tars(destination: str) -> int:
    paths = [destination + ".tar"] if os.path.exists(destination + ".tar") else _files(destination, ".tar")
    count = 0
    for path in paths:
        listed = subprocess.run(["tar", "--list", "--file", path], stdout=subprocess.PIPE, check=True).stdout
        count += sum(not name.endswith(b"/") for name in listed.splitlines())
    return count


def _count_in_mds(destination: str) -> int:
    return sum(shard["samples"] for shard in _read_json(os.path.join(destination, "index.json"))["shards"])


def _count_in_litdata(destination: str) -> int:
    return sum(chunk["chunk_size"] for chunk in _read_json(os.path.join(destination, "index.json"))["chunks"])


def _count_in_tfrecords(destination: str) -> int:
    count = 0
    for path in _files(destination, ".tfrecord"):
        with open(path, "rb") as file:
            while header := file.read(12):
                file.seek(struct.unpack_from("<Q", header)[0] + 4, os.SEEK_CUR)
                count += 1
    return count


def _files(directory: str, suffix: str) -> list[str]:
    return sorted(os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(suffix))


def _read_json(path: str) -> Any:
    with open(path) as file:
        return json.load(file)
