"""The engine on a Ray cluster: one task for each shard, spread over the nodes. The only module that imports ray.

Rules:
    * A cluster is joined, never started: with one machine there is the local engine.
    * Shards, not bytes, travel: a task gets a shard's plan, and reads and writes where the driver would. Nodes see
      source and destination under the same names, on a shared file system or in an object store.
    * A node runs the code that the driver runs, which each task checks before it unpickles anything. Code is not sent
      along, but for the module of a transform that lies in the current directory.
    * At most twice as many shards as the cluster has processors are handed over at once: enough to keep workers busy
      and to let an autoscaler see that more could be used.
    * A dead worker or node costs its shards only: Ray repeats them. Errors of ours are values and are not repeated.
    * Two workers on one shard, when a node was thought dead and is not, do no harm: both write the same bytes under
      partial names of their own, and the last one's replace the first one's.
    * When the work ends early, tasks are cancelled and waited for before this returns.
"""

import importlib
import importlib.util
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

from packer.engines.code_identity import code_identity
from packer.engines.ray_address import check_head
from packer.engines.ray_failures import explain_failure
from packer.engines.remote_shard import ShardRequest, read_outcome, saved_plan_digest
from packer.engines.work import Setting
from packer.plan import PackPlan
from packer.stop import SIGNALS
from packer.stores.open import open_store
from packer.task import work_order
from packer.transform import TransformSpec
from packer.write import ReportProgress, ShardResult
from shardferry import __version__
from shards.errors import EngineError, UnsupportedEnvironmentError, printable

logger = logging.getLogger(__name__)

NAMESPACE = "shardferry"
MAX_RETRIES = 3
"""How often a shard is begun again after its worker or node died. More often, it is the shard that kills them."""

TASKS_PER_CPU = 2
POLL_SECONDS = 0.2
"""How soon a stop is noticed while no shard is finished."""

RESOURCES_SECONDS = 5.0
"""How often the cluster is asked how big it is."""

SILENCE_SECONDS = 60.0
"""After so long without a finished shard, the log says what is waited for."""

STOP_SECONDS = 30.0
"""How long tasks may take to remove their partials before their processes are killed."""

_Ref = Any
"""A ``ray.ObjectRef``: what becomes of a task."""


@dataclass(frozen=True, slots=True)
class RayCluster:
    """An engine of tasks on a Ray cluster.

    Args:
        address: ``host:port`` of the cluster's head; None takes that of ``RAY_ADDRESS``, or of this machine.
        num_jobs: shards in work at once on the whole cluster; None takes as many as it has processors for.
    """

    address: str | None
    num_jobs: int | None

    def __call__(
        self, plan: PackPlan, setting: Setting, report: ReportProgress, check: Callable[[], None]
    ) -> dict[int, ShardResult]:
        """Finish all shards; see :class:`packer.engines.work.Engine`."""
        with _joined(self.address, plan.options.transform) as ray:
            return _Run(ray, plan, setting, self.num_jobs).finish(report, check)


def require_cluster(address: str | None) -> None:
    """See that Ray is installed and that its cluster listens, before the source is looked through.

    Args:
        address: see :class:`RayCluster`.

    Raises:
        UnsupportedEnvironmentError: Ray is not installed.
        EngineError: there is no cluster.
    """
    if importlib.util.find_spec("ray") is None:
        raise UnsupportedEnvironmentError(
            "--engine ray needs Ray, which is not installed here; pip install 'shardferry[ray]', in the version that "
            "the cluster runs"
        )
    check_head(address)


class _Run:
    """The shards of one plan on their way through a cluster."""

    def __init__(self, ray: Any, plan: PackPlan, setting: Setting, num_jobs: int | None) -> None:
        store = open_store(setting.directory)
        self._ray = ray
        self._plan = plan
        self._setting = setting
        self._num_jobs = num_jobs
        self._saved_plan = saved_plan_digest(store)
        self._task = _make_task(ray)
        self._running: dict[_Ref, int] = {}
        self._resources_at = float("-inf")
        self._max_running = 1

    def finish(self, report: ReportProgress, check: Callable[[], None]) -> dict[int, ShardResult]:
        """Finish all shards; nothing runs any more when this returns or raises."""
        waiting = work_order(self._plan, self._setting.directory)[::-1]
        results: dict[int, ShardResult] = {}
        finished_at = time.monotonic()
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self._limit():
                    check()
                    self._submit(waiting.pop())
                ready, _ = self._ray.wait(list(self._running), timeout=POLL_SECONDS)
                for ref in ready:
                    number = self._running.pop(ref)
                    results[number] = result = self._collect(ref, number)
                    report(result.num_samples, result.size_bytes)
                    finished_at = time.monotonic()
                if time.monotonic() - finished_at >= SILENCE_SECONDS:
                    finished_at = time.monotonic()
                    self._tell_what_is_waited_for()
                check()
        finally:
            self._cancel()
        return results

    def _submit(self, number: int) -> None:
        request = ShardRequest(self._setting, self._plan.shard_plan(number), self._saved_plan)
        ref = self._task.options(name=f"pack {self._plan.shards[number].name}").remote(
            request.to_bytes(), code_identity()
        )
        self._running[ref] = number

    def _limit(self) -> int:
        """How many tasks may be with the cluster."""
        if self._num_jobs is not None:
            return self._num_jobs
        if time.monotonic() - self._resources_at >= RESOURCES_SECONDS:
            self._resources_at = time.monotonic()
            self._max_running = max(TASKS_PER_CPU, TASKS_PER_CPU * int(self._ray.cluster_resources().get("CPU", 0)))
        return self._max_running

    def _collect(self, ref: _Ref, number: int) -> ShardResult:
        """Take what became of a task.

        Raises:
            UnsupportedEnvironmentError: the node has other code.
            EngineError: the worker died too often, or Ray could not run the task.
            Exception: what failed in the task.
        """
        name = self._plan.shards[number].name
        try:
            is_fit, outcome = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            raise explain_failure(error, name) from error
        if not is_fit:
            raise UnsupportedEnvironmentError(
                f"{outcome}; install shardferry {__version__}, the one that runs here, on every node of the cluster, "
                "for instance in its image"
            )
        return read_outcome(outcome)

    def _tell_what_is_waited_for(self) -> None:
        facts = {"total": self._ray.cluster_resources(), "free": self._ray.available_resources()}
        logger.warning(
            "no shard was finished for a minute; a task waits until the cluster has a free processor",
            extra={
                "running_or_waiting": len(self._running),
                **{f"{kind}_cpus": resources.get("CPU", 0) for kind, resources in facts.items()},
            },
        )

    def _cancel(self) -> None:
        """End the tasks that are with the cluster: by an interruption, and by force those that do not heed it."""
        refs = list(self._running)
        for is_forced in (False, True):
            for ref in refs:
                self._ray.cancel(ref, force=is_forced)
            if refs:
                _, refs = self._ray.wait(refs, num_returns=len(refs), timeout=STOP_SECONDS, fetch_local=False)
        self._running.clear()


def _make_task(ray: Any) -> Any:
    """Make the function that Ray runs for a shard.

    It is defined here, inside, so that it travels by value: a node with other code, or none, must be able to say so.
    """

    def pack_shard(request: bytes, identity: str) -> tuple[bool, str | bytes]:
        import socket

        import ray

        context = ray.get_runtime_context()
        node = f"{socket.gethostname()} ({ray.util.get_node_ip_address()}, Ray's {context.get_node_id()[:12]})"
        try:
            from packer.engines.code_identity import code_identity
            from packer.engines.remote_shard import finish_requested
        except ImportError as error:
            return False, f"node {node} cannot import what packs a shard: {type(error).__name__}: {error}"
        if code_identity() != identity:
            return False, f"node {node} has shardferry {code_identity()}, this is {identity}"
        return True, finish_requested(request, node)

    return ray.remote(num_cpus=1, max_retries=MAX_RETRIES, retry_exceptions=False, scheduling_strategy="SPREAD")(
        pack_shard
    )


@contextmanager
def _joined(address: str | None, transform: TransformSpec | None) -> Iterator[Any]:
    """Join a cluster, and leave it in the end.

    Ray prints what happens to the cluster's nodes on standard output, whatever it is told. That belongs to the result
    of the program, so meanwhile standard output is standard error.

    Raises:
        UnsupportedEnvironmentError: Ray is not installed, or the cluster runs another version.
        EngineError: there is no cluster, or it does not answer.
    """
    require_cluster(address)
    with redirect_stdout(sys.stderr):
        with _kept_settings():
            ray = importlib.import_module("ray")
            _init(ray, address, transform)
        try:
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def _kept_settings() -> Iterator[None]:
    """Undo what Ray does to a process that imports it and connects: it takes over SIGTERM, and changes all log lines.

    Signals that arrive meanwhile are delivered afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    make_record = logging.getLogRecordFactory()
    try:
        yield
    finally:
        logging.setLogRecordFactory(make_record)
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _init(ray: Any, address: str | None, transform: TransformSpec | None) -> None:
    runtime_env = {} if transform is None else {"py_modules": _modules_to_send(transform)}
    try:
        ray.init(
            address=address or "auto",
            namespace=NAMESPACE,
            runtime_env=runtime_env,
            log_to_driver=False,  # what goes wrong comes back as an error; workers' logs are in Ray's own directory
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = printable(" ".join(str(error).split()))[:500]
        if "ersion mismatch" in reason:
            raise UnsupportedEnvironmentError(
                f"the cluster runs another Ray or Python than this program: {reason}; use the same on both sides"
            ) from error
        where = "a Ray cluster on this machine" if address is None else f"the Ray cluster at {printable(address)}"
        raise EngineError(
            f"cannot join {where}: {reason}; give the address of the cluster's head with --ray-address host:6379, or "
            "start this on the cluster with `ray job submit`"
        ) from error


def _modules_to_send(transform: TransformSpec) -> list[str]:
    """The transform's module, or the package it is in, if it lies in the current directory and is not installed."""
    top = transform.text.partition(":")[0].partition(".")[0]
    module = sys.modules.get(top)
    places = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
    return [place for place in places if place is not None and os.path.dirname(place) == transform.search_path]
