"""The work of one shard on another node, without a cluster: what travels, what is refused, two writers at once."""

import inspect
import os
import pickle
import socket
import subprocess
import sys
import sysconfig
import threading
import uuid
from pathlib import Path

import pytest

import shards.errors
from packer.engines.code_identity import code_identity
from packer.engines.ray_address import check_head
from packer.engines.remote_shard import ShardRequest, finish_requested, read_outcome, saved_plan_digest
from packer.engines.work import Setting
from packer.preview import preview_build
from packer.stop import StopFlag
from packer.stores.objects import ObjectStore
from packer.stores.open import open_store
from packer.task import finish_shard
from packer.write import ShardWriter
from shardferry.console.exits import EXIT_CODES, exit_code_of
from shards.errors import (
    DestinationError,
    EngineError,
    PackError,
    RemoteDeniedError,
    RemoteError,
    ShardferryError,
    SourceError,
)


def all_errors():
    """One of each class, made from what its constructor says it takes."""
    found = [RemoteError("refused", is_transient=False)]
    for error_class in vars(shards.errors).values():
        if isinstance(error_class, type) and issubclass(error_class, ShardferryError):
            if error_class.__init__ is Exception.__init__:  # takes anything
                found.append(error_class("a b"))
                continue
            parameters = inspect.signature(error_class).parameters.values()
            kinds = [parameter.annotation for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
            found.append(error_class(*map(argument_of, kinds)))
    return found


def argument_of(kind):
    examples = {str: "a b", int: 3, bool: True}
    if kind in examples:
        return examples[kind]
    return {"int | None": 3, "collections.abc.Sequence[str]": ("a", "b"), "tuple[str, ...]": ("a", "b")}[str(kind)]


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: type(error).__name__)
def test_every_error_of_ours_survives_the_way(error):
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert exit_code_of(found) == exit_code_of(error)
    assert found.is_transient == error.is_transient
    assert vars(found) == vars(error)


def test_all_classes_were_tried():
    assert {type(error) for error in all_errors()} >= set(EXIT_CODES)


@pytest.fixture
def requested(make_tree, many_files, tmp_path):
    """(setting, shard plans, request of a shard by number) of a build that has saved its plan."""
    from packer.config import PackConfig
    from packer.sources.tree import SymlinkPolicy

    source = make_tree(many_files)

    def prepare(destination):
        config = PackConfig(
            source=source, destination=destination, shard_size_bytes=50_000, symlinks=SymlinkPolicy.FOLLOW
        )
        preview = preview_build(config, StopFlag())
        store = open_store(destination)
        if "://" not in destination:
            os.makedirs(f"{destination}/.pack")
        store.put(".pack/plan.json", b"{}")
        setting = Setting(preview.origin, destination, 1)
        plans = [preview.plan.shard_plan(number) for number in range(len(preview.plan.shards))]
        return setting, plans, lambda number: ShardRequest(setting, plans[number], saved_plan_digest(store)).to_bytes()

    return prepare


def test_result_is_that_of_the_local_work(requested, tmp_path):
    setting, plans, request = requested(str(tmp_path / "out"))
    found = read_outcome(finish_requested(request(1), "n1"))
    (tmp_path / "other").mkdir()
    with ShardWriter(setting.origin, 1, lambda *_: None) as writer:
        assert found == finish_shard(writer, plans[1], str(tmp_path / "other"), lambda *_: None)


def test_node_without_the_destination_is_named_and_writes_nothing(requested, tmp_path):
    _, _, request = requested(str(tmp_path / "out"))
    data = request(0)
    os.rename(tmp_path / "out", tmp_path / "elsewhere")
    with pytest.raises(DestinationError, match=rf"node n1 does not see the destination {tmp_path}/out .*NFS, CephFS"):
        read_outcome(finish_requested(data, "n1"))
    (tmp_path / "out/.pack").mkdir(parents=True)
    (tmp_path / "out/.pack/plan.json").write_bytes(b"{ }")
    with pytest.raises(DestinationError, match="node n1 sees something else at the destination"):
        read_outcome(finish_requested(data, "n1"))
    assert os.listdir(tmp_path / "out") == [".pack"]


def test_node_without_the_source_is_named(requested, tmp_path):
    _, _, request = requested(str(tmp_path / "out"))
    data = request(0)
    os.rename(tmp_path / "source", tmp_path / "elsewhere")
    with pytest.raises(SourceError, match=rf"node n2 does not see the source {tmp_path}/source: No such file"):
        read_outcome(finish_requested(data, "n2"))


class UnreadableError(Exception):
    """An error as drivers have them: made of two values, pickled with one."""

    def __init__(self, operation, reason):
        super().__init__(f"{operation}: {reason}")


class FailingOrigin:
    """A source that fails as it is told."""

    def __init__(self, error):
        self.error = error

    def local_paths(self):
        return ()

    def open_reader(self):
        raise self.error if isinstance(self.error, Exception) else UnreadableError(*self.error)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (RemoteDeniedError("s3://b: denied"), RemoteDeniedError, "on node n1: s3://b: denied"),
        (SourceError("a: gone"), SourceError, "on node n1: a: gone"),
        (DestinationError("/d: uid 3 may not"), DestinationError, "on node n1: /d: uid 3 may not"),
        (("Get", "bad day"), PackError, "UnreadableError: Get: bad day"),
    ],
)
def test_errors_come_back_as_they_are_or_as_their_text(requested, tmp_path, error, kind, text):
    setting, plans, _ = requested(str(tmp_path / "out"))
    failing = Setting(FailingOrigin(error), setting.directory, 1)
    digest = saved_plan_digest(open_store(setting.directory))
    with pytest.raises(kind) as caught:
        read_outcome(finish_requested(ShardRequest(failing, plans[0], digest).to_bytes(), "n1"))
    assert type(caught.value) is kind
    assert str(caught.value) == text


@pytest.mark.parametrize("kind", ["directory", "objects"])
def test_two_writers_of_one_shard_do_no_harm(requested, tmp_path, kind):
    """A node that was thought dead goes on: both write the same bytes under names of their own, whoever is last."""
    destination = str(tmp_path / "out") if kind == "directory" else f"memory://{uuid.uuid4().hex}/set"
    setting, plans, _ = requested(destination)
    plan, store = plans[0], open_store(destination)
    meet = threading.Barrier(2, timeout=30)
    results, outcomes = {}, []

    def write(number):
        def report(_num_samples, _num_bytes):
            if number not in results:
                results[number] = None
                meet.wait()  # both have a partial now

        with ShardWriter(setting.origin, 1, report) as writer:
            outcomes.append(writer.write(plan, destination))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 2
    assert outcomes[0] == outcomes[1]
    with ShardWriter(setting.origin, 1, lambda *_: None) as writer:
        (tmp_path / "alone").mkdir()
        assert writer.write(plan, str(tmp_path / "alone")) == outcomes[0]
    assert store.read_file(plan.name) == (tmp_path / "alone" / plan.name).read_bytes()
    assert store.list_leftovers() == []
    assert store.list_names() == sorted([plan.name, f"{plan.name}.index.arrow"])


def test_writer_that_gives_up_does_not_touch_the_other_ones_partial():
    store = ObjectStore(f"memory://{uuid.uuid4().hex}/set")
    with store.create("a.tar", 3) as first:
        first.write(b"abc")
        with store.create("a.tar", 3) as second:
            second.write(b"a")
        first.commit(3)
    assert store.read_file("a.tar") == b"abc"
    assert store.list_all_names() == ["a.tar"]


def test_identity_has_the_release_and_is_the_same_every_time():
    from shardferry import __version__

    assert code_identity().startswith(f"{__version__} (code ")
    assert code_identity.__wrapped__() == code_identity()


def test_sources_say_what_a_node_must_see(requested, tmp_path):
    setting, _, _ = requested(str(tmp_path / "out"))
    assert list(setting.origin.local_paths()) == [os.fsencode(tmp_path / "source")]


def test_what_is_no_head_of_a_cluster_is_noticed_at_once(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(EngineError, match="is not the head of a Ray cluster"):
            check_head(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(EngineError, match="no Ray cluster is known here"):
        check_head(None)
    Path(tmp_path, "ray").mkdir()
    Path(tmp_path, "ray/ray_current_cluster").write_text("127.0.0.1:1")
    with pytest.raises(EngineError, match=r"there is no Ray cluster at 127\.0\.0\.1:1: .*refused"):
        check_head(None)


def test_missing_ray_is_explained_before_the_source_is_looked_at(tmp_path):
    """In a copy of this environment that lacks nothing but Ray."""
    installed = tmp_path / "packages"
    installed.mkdir()
    ours = Path(shards.__file__).parents[1]
    for package in ("shards", "packer", "shardferry"):
        (installed / package).symlink_to(ours / package)
    for entry in os.scandir(sysconfig.get_path("purelib")):
        if entry.name != "ray" and not (installed / entry.name).exists():
            (installed / entry.name).symlink_to(entry.path)
    script = f"import sys; sys.path.append({str(installed)!r}); from packer.cli import main; main()"
    arguments = ["build", "no-such-source", str(tmp_path / "out"), "--engine", "ray"]
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={},
    )
    assert done.returncode == 78, done.stderr
    assert "--engine ray needs Ray, which is not installed here; pip install 'shardferry[ray]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_address_of_a_cluster_goes_with_its_engine(pack_here, tmp_path):
    done = pack_here("build", str(tmp_path), str(tmp_path / "out"), "--ray-address", "head:6379")
    assert done.returncode == 2
    assert "--ray-address goes with --engine ray" in done.stderr
