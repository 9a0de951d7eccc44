"""What the Ray engine asks of Ray, told by a stand-in that counts; tests/ray has the real one."""

import os
from types import SimpleNamespace

import pytest

from packer.config import PackConfig
from packer.engines.local import run_in_process
from packer.engines.ray import TASKS_PER_CPU, _Run
from packer.engines.remote_shard import finish_requested
from packer.engines.work import Setting
from packer.preview import preview_build
from packer.stop import StopFlag
from shards.errors import EngineError, StoppedError, UnsupportedEnvironmentError


class RayError(Exception):
    """Root of what Ray raises."""


class WorkerCrashedError(RayError):
    """As Ray calls it."""


class CountingRay:
    """Finishes one task at each wait, and remembers how many were with it."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, *, num_cpus, spoil=None):
        self.num_cpus = num_cpus
        self.spoil = spoil
        self.requests = {}
        self.most = 0
        self.cancelled = []
        self.options = None

    def cluster_resources(self):
        return {"CPU": float(self.num_cpus)}

    def remote(self, **options):
        self.options = options
        return lambda function: SimpleNamespace(options=lambda name: SimpleNamespace(remote=self.take))

    def take(self, request, identity):
        ref = object()
        self.requests[ref] = request
        self.most = max(self.most, len(self.requests))
        return ref

    def wait(self, refs, *, timeout, num_returns=1, fetch_local=True):
        assert set(refs) <= set(self.requests)
        return refs[:num_returns], refs[num_returns:]

    def get(self, ref):
        request = self.requests.pop(ref)
        if self.spoil is not None:
            return self.spoil()
        return True, finish_requested(request, "n1")

    def cancel(self, ref, *, force):
        self.cancelled.append((ref, force))


@pytest.fixture
def begun(make_tree, many_files, tmp_path):
    """(plan, setting) of a build that has saved its plan."""
    out = str(tmp_path / "out")
    preview = preview_build(
        PackConfig(source=make_tree(many_files), destination=out, shard_size_bytes=16_384), StopFlag()
    )
    os.makedirs(f"{out}/.pack")
    (tmp_path / "out/.pack/plan.json").write_bytes(b"{}")
    assert len(preview.plan.shards) > 10
    return preview.plan, Setting(preview.origin, out, 1)


def do_nothing(*_):
    pass


@pytest.mark.parametrize(
    ("num_cpus", "num_jobs", "most"),
    [(2, None, 2 * TASKS_PER_CPU), (0, None, TASKS_PER_CPU), (2, 3, 3), (64, 1, 1)],
)
def test_few_shards_are_handed_over_at_once(begun, num_cpus, num_jobs, most):
    plan, setting = begun
    ray = CountingRay(num_cpus=num_cpus)
    counted = []
    found = _Run(ray, plan, setting, num_jobs).finish(lambda *numbers: counted.append(numbers), do_nothing)
    assert ray.most == most
    assert sorted(found) == list(range(len(plan.shards)))
    assert sum(samples for samples, _ in counted) == plan.num_samples
    assert sum(size for _, size in counted) == plan.size_bytes
    assert ray.options == {
        "num_cpus": 1,
        "max_retries": 3,
        "retry_exceptions": False,
        "scheduling_strategy": "SPREAD",
    }
    kept = run_in_process(plan, setting, do_nothing, do_nothing)
    assert [kept[number].digest for number in sorted(kept)] == [found[number].digest for number in sorted(found)]
    assert all(result.is_kept for result in kept.values())


def test_stop_cancels_what_runs_and_waits_for_it(begun):
    plan, setting = begun
    ray = CountingRay(num_cpus=2)
    finished = []

    def check():
        if finished:
            raise StoppedError("SIGTERM")

    with pytest.raises(StoppedError):
        _Run(ray, plan, setting, None).finish(lambda *numbers: finished.append(numbers), check)
    assert len(finished) == 1
    assert {ref for ref, force in ray.cancelled if not force} == set(ray.requests)
    assert not [ref for ref, force in ray.cancelled if force]


def crash():
    raise WorkerCrashedError("The worker died unexpectedly.\nmore")


@pytest.mark.parametrize(
    ("spoil", "kind", "text"),
    [
        (crash, EngineError, "train-000000.tar was not packed: the process that packed it died again and again"),
        (
            lambda: (False, "node n1 has shardferry 0 (code 1), this is 2"),
            UnsupportedEnvironmentError,
            "node n1 has shardferry 0 (code 1), this is 2; install shardferry",
        ),
    ],
)
def test_failures_of_the_cluster_are_explained(begun, spoil, kind, text):
    plan, setting = begun
    ray = CountingRay(num_cpus=1, spoil=spoil)
    with pytest.raises(kind) as caught:
        _Run(ray, plan, setting, None).finish(do_nothing, do_nothing)
    assert str(caught.value).startswith(text)
    assert len(ray.cancelled) == len(ray.requests) == 1
