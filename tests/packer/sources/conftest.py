"""The same members kept in every kind of source, and a real S3 server for those that are objects."""

import contextlib
import gzip
import io
import itertools
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from packer.sources.choose import SourceRequest, choose_source
from packer.sources.options import SourceKind, SourceOptions
from packer.sources.tree import SymlinkPolicy
from shards.keys import FIRST_DOT

FILES = {
    "cats/1.jpg": b"\xff\xd8\xff\xe0cat one" * 40,
    "cats/1.json": b'{"n": 1}',
    "cats/2.jpg": b"\xff\xd8\xff\xe0cat two" * 9000,
    "cats/2.json": b'{"n": 2}',
    "dogs/big.jpg": b"\xff\xd8\xff\xe0" + bytes(range(256)) * 40_000,
    "dogs/\u00e9.jpg": b"\xff\xd8\xff\xe0dog",
    "dogs/\u00e9.json": b"",
    "top.txt": b"at the top",
}
"""Small, empty, bigger than a piece, bigger than a range, and with a name that is not ASCII."""

_numbers = itertools.count()


@pytest.fixture
def files() -> dict[str, bytes]:
    return dict(FILES)


def open_source(path, *, kind="auto", **options):
    request = SourceRequest(
        path=str(path),
        options=SourceOptions(kind=SourceKind(kind), **options),
        symlinks=SymlinkPolicy.FOLLOW,
        key_rule=FIRST_DOT,
    )
    return choose_source(request)


@pytest.fixture
def source_of():
    """Source of a path or URL, as the command line would choose it."""
    return open_source


@dataclass(frozen=True)
class Kept:
    """Members kept in some kind of source."""

    path: str
    """For the command line."""
    change: Callable[[str, bytes], None]
    """Replace the data of a member."""
    remove: Callable[[], None]
    """Remove everything."""
    options: Mapping[str, object]
    has_names: bool = True
    """Whether what it holds has names that may be left over, or globbed; a table only has what it asks for."""

    def source(self):
        return open_source(self.path, **self.options)


def _keep_tree(where: Path, files: Mapping[str, bytes]) -> Kept:
    def write(name, data):
        path = where / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def remove():
        for name in files:
            (where / "tree" / name).unlink()

    for name, data in files.items():
        write(name, data)
    return Kept(str(where / "tree"), write, remove, {})


def _tar_bytes(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return target.getvalue()


def _zip_bytes(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    methods = itertools.cycle([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data, compress_type=next(methods))
    return target.getvalue()


def _keep_in_file(name: str, encode: Callable[[Mapping[str, bytes]], bytes], **options: object):
    def keep(where: Path, files: Mapping[str, bytes]) -> Kept:
        path = where / name
        now = dict(files)
        path.write_bytes(encode(now))

        def change(member, data):
            now[member] = data
            path.write_bytes(encode(now))
            os.utime(path)

        return Kept(str(path), change, path.unlink, options, has_names=not options)

    return keep


def _keep_table(name: str, write: Callable[[str, list[str]], None]):
    def keep(where: Path, files: Mapping[str, bytes]) -> Kept:
        tree = _keep_tree(where, files)
        write(f"{tree.path}/{name}", list(files))
        return Kept(f"{tree.path}/{name}", tree.change, tree.remove, {}, has_names=False)

    return keep


def _write_csv(path: str, names: list[str]) -> None:
    Path(path).write_text("\n".join(["path", *names]) + "\n", encoding="utf-8")


def _write_jsonl(path: str, names: list[str]) -> None:
    Path(path).write_text("".join(json.dumps({"path": name}) + "\n" for name in names))


def _write_parquet_table(path: str, names: list[str]) -> None:
    pq.write_table(pa.table({"path": names}), path)


def _rows(files: Mapping[str, bytes]) -> pa.Table:
    samples: dict[str, dict[str, object]] = {}
    for name, data in files.items():
        key, _, extension = name.rpartition(".")
        samples.setdefault(key, {"id": key})[extension] = data
    binary = {extension: pa.large_binary() for extension in ("jpg", "json", "txt")}
    schema = pa.schema({"id": pa.string(), **binary})
    return pa.Table.from_pylist(list(samples.values()), schema=schema)


def _parquet_bytes(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    pq.write_table(_rows(files), target, row_group_size=2)
    return target.getvalue()


def _arrow_bytes(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    rows = _rows(files)
    with pa.ipc.new_stream(target, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=2)
    return target.getvalue()


_BY_ID = {"key_column": "id", "columns": (("jpg", "jpg"), ("json", "json"), ("txt", "txt"))}


def _keep_objects(url: str) -> Kept:
    def keep(files):
        filesystem, root = fsspec.core.url_to_fs(url)

        def change(name, data):
            filesystem.pipe_file(f"{root}/{name}", data)

        for name, data in files.items():
            change(name, data)
        return Kept(url, change, lambda: filesystem.rm(root, recursive=True), {})

    return keep


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Endpoint of an S3 server in this process, reached over the loopback."""
    from moto.server import ThreadedMotoServer

    with contextlib.redirect_stdout(io.StringIO()):
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty bucket; the environment leads every client to the server."""
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    bucket = f"bucket-{next(_numbers)}"
    s3fs.S3FileSystem().call_s3("create_bucket", Bucket=bucket)
    return f"s3://{bucket}"


KINDS = {
    "tree": _keep_tree,
    "tar": _keep_in_file("a.tar", _tar_bytes),
    "tar.gz": _keep_in_file("a.tar.gz", lambda files: gzip.compress(_tar_bytes(files), 1, mtime=0)),
    "tar.zst": _keep_in_file("a.tar.zst", lambda files: zstandard.compress(_tar_bytes(files))),
    "zip": _keep_in_file("a.zip", _zip_bytes),
    "memory": lambda where, files: _keep_objects(f"memory://{where.name}-{next(_numbers)}/data")(files),
    "s3": None,
    "csv": _keep_table("list.csv", _write_csv),
    "jsonl": _keep_table("list.jsonl", _write_jsonl),
    "paths in parquet": _keep_table("list.parquet", _write_parquet_table),
    "bytes in parquet": _keep_in_file("rows.parquet", _parquet_bytes, **_BY_ID),
    "bytes in arrow": _keep_in_file("rows.arrow", _arrow_bytes, **_BY_ID),
}


@pytest.fixture(params=KINDS)
def keep(request, tmp_path) -> Callable[[Mapping[str, bytes]], Kept]:
    """Keep members in one kind of source; a second call keeps others in a second source of the kind."""
    if request.param == "s3":
        bucket = request.getfixturevalue("s3")

        def keep_remotely(files):
            return _keep_objects(f"{bucket}/data-{next(_numbers)}")(files)

        return keep_remotely

    def keep_here(files):
        where = tmp_path / f"kept-{next(_numbers)}"
        where.mkdir()
        return KINDS[request.param](where, files)

    return keep_here
