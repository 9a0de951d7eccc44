"""What only object stores can get wrong, on a real S3 server and on a driver that fails now and then."""

import sys
import threading
import time
from collections import Counter
from contextlib import nullcontext
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from packer.build import build
from packer.config import PackConfig
from packer.locations import is_url, without_credentials
from packer.preview import preview_build
from packer.sources import object_store
from packer.sources.object_store import ask
from packer.stop import StopFlag
from shards.errors import RemoteDeniedError, RemoteError, SourceError


def put(url, data):
    filesystem, path = fsspec.core.url_to_fs(url)
    filesystem.pipe_file(path, data)


def put_marker(url):
    """What web consoles make: an empty object whose key ends in a slash."""
    filesystem, path = fsspec.core.url_to_fs(url)
    bucket, _, key = path.partition("/")
    filesystem.call_s3("put_object", Bucket=bucket, Key=f"{key}/", Body=b"")


def scan(source):
    return source.scan(lambda: None)


def test_prefix_never_takes_its_neighbour(s3, source_of):
    for name in ["data/train/1.jpg", "data/train-extra/2.jpg", "data/train.jpg", "data/trai/n.jpg"]:
        put(f"{s3}/{name}", b"1")
    assert scan(source_of(f"{s3}/data/train")).files.paths == [b"1.jpg"]
    assert scan(source_of(f"{s3}/data/train/")).files.paths == [b"1.jpg"]
    assert len(scan(source_of(s3)).files) == 4


def test_folder_markers_are_counted_and_empty_objects_kept(s3, source_of):
    put_marker(f"{s3}/data/train")
    put_marker(f"{s3}/data/train/deep")
    put(f"{s3}/data/train/deep_$folder$", b"")
    put(f"{s3}/data/train/deep/empty.txt", b"")
    found = scan(source_of(f"{s3}/data/train"))
    assert found.files.paths == [b"deep/empty.txt"]
    assert found.skips.counts == {"folder-marker": 3}


def test_one_object_can_be_meant(s3, source_of):
    put(f"{s3}/a/churn.jpg", b"1")
    put(f"{s3}/a/churn.jpg-logs/x.jpg", b"2")
    assert scan(source_of(f"{s3}/a/churn.jpg")).files.paths == [b"churn.jpg"]


def test_object_and_prefix_of_the_same_name_are_told_apart_by_a_slash(s3, source_of):
    put(f"{s3}/a", b"1")
    put(f"{s3}/a/x.jpg", b"2")
    with pytest.raises(SourceError, match="with a slash"):
        scan(source_of(f"{s3}/a"))
    assert scan(source_of(f"{s3}/a/")).files.paths == [b"x.jpg"]


@pytest.mark.parametrize(
    ("path", "part"),
    [("data/nothing", "nothing matches s3://"), ("data/a.tar", "holds many files"), ("x//", "components")],
)
def test_what_cannot_be_packed_is_said(s3, source_of, path, part):
    put(f"{s3}/data/a.tar", b"1")
    put(f"{s3}/x//y.jpg", b"1")
    with pytest.raises(SourceError, match=part):
        scan(source_of(f"{s3}/{path.rstrip('/')}"))


def test_missing_bucket_is_said(s3, source_of):
    with pytest.raises(SourceError, match="there is no s3://no-such-bucket/x"):
        scan(source_of("s3://no-such-bucket/x"))


def test_listing_has_more_than_one_page(s3, source_of):
    from moto.backends import get_backend

    store = next(iter(get_backend("s3").values()))["aws"]  # a thousand requests would take their time
    for number in range(1005):
        store.put_object(s3.removeprefix("s3://"), f"p/{number}.txt", b"%d" % number)
    found = scan(source_of(f"{s3}/p"))
    assert found.files.paths == sorted(b"%d.txt" % number for number in range(1005))
    reader = found.origin.open_reader()
    assert list(reader.pieces(found.files.locators[7], found.files.sizes[7], 0)) == [found.files.paths[7][:-4]]


class Flaky(MemoryFileSystem):
    """Every object fails twice before it is given."""

    protocol = "flaky"
    failures: ClassVar[Counter[str]] = Counter()

    def cat_file(self, path, start=None, end=None, **kwargs):
        self.failures[path] += 1
        if self.failures[path] < 3:
            raise TimeoutError("the store is busy")
        return super().cat_file(path, start, end, **kwargs)


@pytest.fixture
def quick_pauses(monkeypatch):
    monkeypatch.setattr(object_store, "FIRST_PAUSE_SECONDS", 0.001)


def test_passing_fault_is_tried_again(quick_pauses, source_of):
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    put("flaky://here/a.jpg", b"data")
    found = scan(source_of("flaky://here"))
    reader = found.origin.open_reader()
    target = memoryview(bytearray(4))
    reader.read_into(found.files.locators[0], 4, found.files.stamps[0], target, 0)
    assert bytes(target) == b"data"
    assert list(Flaky.failures.values()) == [3]


def test_fault_that_does_not_pass_ends_with_the_reason(quick_pauses):
    tries = []

    def fail():
        tries.append(1)
        raise TimeoutError("busy")

    with pytest.raises(RemoteError, match="TimeoutError: busy; 6 tries failed"):
        ask(fail, "s3://x")
    assert len(tries) == 6


def test_denied_access_is_not_tried_again():
    tries = []

    def fail():
        tries.append(1)
        raise PermissionError("Forbidden")

    with pytest.raises(RemoteDeniedError, match="s3://x: access denied"):
        ask(fail, "s3://x")
    assert len(tries) == 1


def test_missing_driver_names_the_extra(source_of, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "s3fs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(SourceError, match=r"pip install 'shardferry\[s3\]'"):
        scan(source_of("s3://bucket/x"))
    with pytest.raises(SourceError, match="Protocol not known"):
        scan(source_of("nonsense://bucket/x"))


def test_credentials_in_a_url_are_never_shown():
    assert without_credentials("ftp://user:pa%40ss@host/dir@x/") == "ftp://host/dir@x/"
    assert without_credentials("/plain/user:x@host") == "/plain/user:x@host"
    assert is_url("s3://b/x")
    assert not is_url("file:///x")
    assert not is_url("dir/with:colon")


class Counting(MemoryFileSystem):
    """Knows how many reads were under way at once."""

    protocol = "counting"
    lock = threading.Lock()
    now = most = 0

    def cat_file(self, path, start=None, end=None, **kwargs):
        with self.lock:
            Counting.now += 1
            Counting.most = max(Counting.now, Counting.most)
        time.sleep(0.005)
        with self.lock:
            Counting.now -= 1
        return super().cat_file(path, start, end, **kwargs)


@pytest.mark.parametrize("options", [{"read_threads": 8}, {}], ids=["8 threads", "measured"])
def test_objects_are_read_at_once_within_a_bound(tmp_path, options):
    fsspec.register_implementation("counting", Counting, clobber=True)
    for number in range(100):
        put(f"counting://here/{number:03d}.jpg", b"%d" % number)
    Counting.most = 0
    config = PackConfig(source="counting://here", destination=str(tmp_path / "out"), jobs=1, **options)
    report = build(config, preview_build(config, StopFlag()), StopFlag(), lambda *_: nullcontext(Silent()))
    assert report.num_samples == 100
    assert 4 <= Counting.most <= options.get("read_threads", 32)


class Silent:
    def advance(self, **_):
        pass
