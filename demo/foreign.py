"""Reads the shards with tools that know nothing of Shardferry: GNU tar, the webdataset library, TensorFlow."""

import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from programs import Programs
from screen import Screen

TENSORFLOW_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "read_with_tensorflow.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorflowReading:
    """What the TensorFlow process found."""

    version: str
    num_samples: int
    digest: str
    seconds: float
    """Reading only, without the import of TensorFlow."""


def list_shards(directory: str, suffix: str) -> list[str]:
    """Give the paths of the shards of a dataset, sorted, as a foreign tool would find them: by their names."""
    return sorted(os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(suffix))


def check_gnu_tar(screen: Screen, programs: Programs, shards: Sequence[str], num_members: int) -> None:
    """Let tar list every shard and compare the number of members."""
    version = programs.run(["tar", "--version"], is_shown=False).stdout.splitlines()[0]
    num_listed = 0
    for number, shard in enumerate(shards):
        is_first = number == 0
        listed = programs.run(
            ["tar", "--list", "--file", shard], is_shown=is_first, has_output=False
        ).stdout.splitlines()
        num_listed += len(listed)
        if is_first:
            screen.output("\n".join([*listed[:4], "…"]))
            screen.fact(f"and so for all {len(shards)} shards")
    screen.check(num_listed == num_members, f"{version} lists {num_listed:,} members, expected {num_members:,}")


def read_with_webdataset(shards: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Read key and picture of every sample with the webdataset library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own imports and about sample order, not about the data
        import webdataset  # noqa: PLC0415 (slow to import, and only this step needs it)

        for sample in webdataset.WebDataset(list(shards), shardshuffle=False):
            yield sample["__key__"], sample["png"]


def has_tensorflow() -> bool:
    """Tell whether TensorFlow is installed, without importing it."""
    return importlib.util.find_spec("tensorflow") is not None


def read_with_tensorflow(programs: Programs, mode: str, *arguments: str) -> TensorflowReading:
    """Read a dataset in a process of its own, so that TensorFlow and PyTorch do not share threads and memory.

    Args:
        programs: to start it.
        mode: ``records`` (TensorFlow alone) or ``loaders`` (through :mod:`loaders.tensorflow`).
        arguments: directory, and for ``loaders`` the splits.
    """
    shown = ["python", os.path.relpath(TENSORFLOW_SCRIPT), mode, *arguments]
    done = programs.run([sys.executable, TENSORFLOW_SCRIPT, mode, *arguments], shown=shown, has_output=False)
    found = json.loads(done.stdout.splitlines()[-1])
    return TensorflowReading(
        version=found["version"], num_samples=found["num_samples"], digest=found["digest"], seconds=found["seconds"]
    )
