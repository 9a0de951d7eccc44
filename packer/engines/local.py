"""The engine on this machine: processes that take one shard plan after another.

Rules:
    * Processes are spawned, not forked: nothing is inherited by accident, and threads of the caller do no harm.
    * A worker that dies, for instance by the out-of-memory killer, is an error that names its shard; nothing hangs.
    * A worker never outlives its parent: left alone, it ends at once and leaves a partial for the next run to remove.
    * With one job all is done in this process.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from packer.engines.work import Engine, Setting
from packer.plan import PackPlan, ShardPlan
from packer.stop import SIGNALS, StopFlag
from packer.task import finish_shard, work_order
from packer.write import ReportProgress, ShardResult, ShardWriter
from shards.errors import PackError

POLL_SECONDS = 0.2
"""How soon a stop is noticed while all workers are silent."""

STOP_SECONDS = 30.0
"""How long a worker may take to remove its partial before it is killed; a read from a dead server may hang."""


def run_in_process(
    plan: PackPlan, setting: Setting, report: ReportProgress, check: Callable[[], None]
) -> dict[int, ShardResult]:
    """Finish all shards in this process; see :class:`packer.engines.work.Engine`."""

    def report_and_check(num_samples: int, num_bytes: int) -> None:
        report(num_samples, num_bytes)
        check()

    results = {}
    with ShardWriter(setting.origin, setting.read_threads, report_and_check) as writer:
        for number in work_order(plan, setting.directory):
            check()
            results[number] = finish_shard(writer, plan.shard_plan(number), setting.directory, report_and_check)
    return results


@contextlib.contextmanager
def start_processes(num_jobs: int) -> Iterator[Engine]:
    """Give an engine of several processes, which start while the caller has other things to do."""
    workers: list[_Worker] = []
    try:
        workers.extend(_Worker() for _ in range(num_jobs))
        yield _LocalProcesses(workers)
    finally:
        for worker in workers:  # they have ended, but for those without work, or after an error
            worker.stop()
        for worker in workers:
            worker.end()


class _LocalProcesses:
    """An engine of processes that were started before."""

    def __init__(self, workers: "Sequence[_Worker]") -> None:
        self._workers = workers

    def __call__(
        self, plan: PackPlan, setting: Setting, report: ReportProgress, check: Callable[[], None]
    ) -> dict[int, ShardResult]:
        """Finish all shards; see :class:`packer.engines.work.Engine`."""
        waiting = work_order(plan, setting.directory)[::-1]
        results: dict[int, ShardResult] = {}
        workers = {worker.connection: worker for worker in self._workers[: len(waiting)]}
        for worker in workers.values():
            worker.prepare(plan, setting)
        for worker in workers.values():
            worker.give(plan, waiting.pop())
        while workers:
            for connection in multiprocessing.connection.wait(list(workers), timeout=POLL_SECONDS):
                worker = workers[connection]  # type: ignore[index]
                message = worker.receive(plan)
                if isinstance(message, tuple):
                    report(*message)
                    continue
                results[worker.shard_number] = message
                if waiting:
                    worker.give(plan, waiting.pop())
                else:
                    worker.dismiss()
                    del workers[worker.connection]
            check()
        return results


class _Worker:
    """The parent's view of one worker process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.shard_number = -1
        self.process: SpawnProcess = context.Process(target=_work, args=(theirs,), daemon=True)
        resource_tracker.ensure_running()  # its start unblocks signals
        # a signal that arrives before the worker has its handlers would end it with a traceback
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def prepare(self, plan: PackPlan, setting: Setting) -> None:
        """Hand over what is the same for all shards."""
        self._send(plan, setting)

    def give(self, plan: PackPlan, number: int) -> None:
        """Hand over the next shard."""
        self.shard_number = number
        self._send(plan, plan.shard_plan(number))

    def receive(self, plan: PackPlan) -> ShardResult | tuple[int, int]:
        """Take the next message: progress, or the shard's result.

        Raises:
            PackError: the worker died.
            Exception: what failed in the worker.
        """
        try:
            message = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._died(plan) from error
        if isinstance(message, BaseException):
            raise message
        return message  # type: ignore[no-any-return]

    def dismiss(self) -> None:
        """Let the worker end; it has no work. One that died after its last result did all that was asked of it."""
        with contextlib.suppress(OSError):
            self.connection.send(None)
        self.end()

    def stop(self) -> None:
        """Make the worker stop: the signal ends its work, the closed connection its waiting for work."""
        self.connection.close()
        self.process.terminate()

    def end(self) -> None:
        """Wait for the worker's end, and force it if need be."""
        self.process.join(STOP_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()

    def _send(self, plan: PackPlan, value: Setting | ShardPlan) -> None:
        try:
            self.connection.send(value)
        except OSError as error:
            raise self._died(plan) from error

    def _died(self, plan: PackPlan) -> PackError:
        self.process.join(STOP_SECONDS)
        code = self.process.exitcode
        cause = f"by signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"with status {code}"
        advice = (
            "; that is what the kernel does when memory runs out: try fewer --jobs" if code == -signal.SIGKILL else ""
        )
        what = (
            f"the process that packed {plan.shards[self.shard_number].name}" if self.shard_number >= 0 else "a process"
        )
        return PackError(
            f"{what} was ended {cause}{advice}; finished shards are kept, run the same command again to go on"
        )


def _work(connection: Connection) -> None:
    """The worker process: finish shard after shard until told to end."""
    stop = StopFlag(is_patient=True)
    with stop.set_by_signals():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        threading.Thread(target=_end_with_parent, daemon=True).start()

        def report(num_samples: int, num_bytes: int) -> None:
            stop.check()
            connection.send((num_samples, num_bytes))

        try:
            setting: Setting = connection.recv()
            with ShardWriter(setting.origin, setting.read_threads, report) as writer:
                while True:
                    plan: ShardPlan | None = connection.recv()
                    if plan is None:
                        return
                    connection.send(finish_shard(writer, plan, setting.directory, report))
        except (EOFError, ConnectionError):
            return  # the parent has given up
        except Exception as error:  # noqa: BLE001 (it is raised again in the parent)
            error.add_note(f"in the packer process {os.getpid()}:\n{traceback.format_exc()}")
            with contextlib.suppress(ConnectionError):  # a parent that has given up wants no reason
                connection.send(error)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
