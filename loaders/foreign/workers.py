"""Makes the records of many foreign shards with several worker programs."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import loaders
from loaders.foreign.build import ShardFaultError, ensure_record
from loaders.foreign.find import ForeignFile
from loaders.foreign.records import Record, place_of, read_record, stamp_of
from shardferry.console import Progress
from shards.cpus import usable_cpus
from shards.errors import DamagedShardsError, LoadError, printable

WORTH_BYTES = 256 * 1024 * 1024
"""Less than this is indexed in this process: a worker takes half a second to start."""

MAX_WORKERS = 16


def ensure_records(directory: str, files: Sequence[ForeignFile], *, is_hashed: bool) -> list[Record]:
    """Give the records of shards, making those that are not there.

    Args:
        directory: of all records; it exists.
        files: the shards.
        is_hashed: whether records must have digests and CRCs.

    Returns:
        The records, in the order of ``files``.

    Raises:
        DamagedShardsError: shards are damaged or cannot be told; lists all.
        LoadError: a worker died.
        OSError: this process cannot read a shard or write a record.
    """
    records = {
        file: read_record(place_of(directory, file.path), stamp_of(file.path), is_hashed=is_hashed) for file in files
    }
    missing = [file for file, record in records.items() if record is None]
    if missing:
        _make(directory, missing, len(files), is_hashed=is_hashed)
    return [record or ensure_record(directory, file, is_hashed=is_hashed) for file, record in records.items()]


def _make(directory: str, files: Sequence[ForeignFile], num_shards: int, *, is_hashed: bool) -> None:
    sizes = {file: stamp_of(file.path).size_bytes for file in files}
    total_bytes = sum(sizes.values())
    num_workers = min(len(files), usable_cpus(), MAX_WORKERS) if total_bytes >= WORTH_BYTES else 0
    faults: list[str] = []
    with Progress("indexing shards", total_bytes=total_bytes) as progress:
        made = (
            _in_workers(directory, files, num_workers, is_hashed=is_hashed)
            if num_workers > 1
            else _here(directory, files, is_hashed=is_hashed)
        )
        for file, fault in made:
            if fault:
                faults.append(fault)
            progress.advance(num_bytes=sizes[file])
    if faults:
        raise DamagedShardsError(
            f"{len(faults)} of {num_shards} shard(s) cannot be indexed", sorted(faults), "copy or make them again"
        )


def _here(directory: str, files: Sequence[ForeignFile], *, is_hashed: bool) -> Iterator[tuple[ForeignFile, str]]:
    for file in files:
        try:
            ensure_record(directory, file, is_hashed=is_hashed)
        except ShardFaultError as error:
            yield file, str(error)
        else:
            yield file, ""


def _in_workers(
    directory: str, files: Sequence[ForeignFile], num_workers: int, *, is_hashed: bool
) -> Iterator[tuple[ForeignFile, str]]:
    idle = threading.local()
    started: list[subprocess.Popen[str]] = []

    def make(file: ForeignFile) -> tuple[ForeignFile, str]:
        worker: subprocess.Popen[str] | None = getattr(idle, "worker", None)
        if worker is None:
            worker = idle.worker = _start()
            started.append(worker)
        job = {
            "directory": directory,
            "path": os.fsencode(file.path).hex(),
            "format": file.format_name,
            "is_hashed": is_hashed,
        }
        try:
            answer = _ask(worker, json.dumps(job))
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise LoadError(
                f"a process that indexed {printable(file.path)} ended (exit code {worker.wait()}); when the kernel "
                "ended it because memory ran out, give the job more"
            )
        return file, json.loads(answer)["fault"]

    try:
        with ThreadPoolExecutor(num_workers, thread_name_prefix="index-shards") as pool:
            yield from pool.map(make, files)
    finally:
        for worker in started:
            worker.kill()
            worker.communicate()


def _ask(worker: "subprocess.Popen[str]", line: str) -> str:
    if worker.stdin is None or worker.stdout is None:
        raise ValueError("a worker has pipes")
    worker.stdin.write(line + "\n")
    worker.stdin.flush()
    return worker.stdout.readline()


def _start() -> "subprocess.Popen[str]":
    # where this process found the package, whatever put it on the path
    root = os.path.dirname(os.path.dirname(os.path.abspath(loaders.__file__)))
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-m", "loaders.foreign.build"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
