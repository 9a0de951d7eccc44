"""A real Ray cluster of two nodes on this machine, and ``pack build --engine ray`` on it as a user runs it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ray.cluster import PACK, STORE_BYTES, TEST_SECONDS, RayNodes, Running, contents

SLOW_MODULE = "slow_transform"
SLOW_SECONDS = 0.01


@pytest.fixture(autouse=True)
def _time_limit(request) -> Iterator[None]:
    """End a test that hangs: none of them waits for anything without a limit, but Ray may."""
    seconds = TEST_SECONDS
    if request.node.get_closest_marker("rounds"):
        seconds *= 1 + request.config.getoption("--kills")

    def give_up(_number, _frame):
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def s3_environment() -> Iterator[dict[str, str]]:
    """An S3 server on loopback, and the variables by which any S3 client finds it."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + TEST_SECONDS
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            assert time.monotonic() < deadline
            assert server.poll() is None
            time.sleep(0.05)
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "very-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def nodes(s3_environment) -> Iterator[RayNodes]:
    """Two nodes of one processor each. Their workers find the S3 server, as those of a real cluster would."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    before = dict(os.environ)
    os.environ.update(s3_environment, RAY_USAGE_STATS_ENABLED="0")
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False},
    )
    try:
        found = RayNodes(cluster, cluster.address)
        found.add_node()
        yield found
    finally:
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def start(nodes, tmp_path) -> Iterator[Callable[..., Running]]:
    """Start ``pack build``; what still runs at the end is killed."""
    started = []

    def run(source, destination, *options, engine="ray", env=None):
        address = ("--ray-address", nodes.address) if engine == "ray" else ()
        command = [PACK, "build", str(source), str(destination), "--engine", engine, *address, "--quiet", *options]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
        )
        started.append(process)
        return Running(process, str(destination))

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def pack_on() -> Callable[..., subprocess.CompletedProcess]:
    """Run ``pack build`` on the cluster at an address."""

    def run(address, source, destination):
        command = [PACK, "build", str(source), str(destination), "--engine", "ray", "--ray-address", address, "--quiet"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TEST_SECONDS)

    return run


@pytest.fixture
def odd_node(nodes) -> Iterator[Callable[..., None]]:
    """Add a node of four processors that sees an empty directory where the others see files, or has other code."""
    started = []

    def add(*, hidden=None, python_path=None):
        ray = os.path.join(os.path.dirname(sys.executable), "ray")
        begin = [ray, "start", f"--address={nodes.address}", "--num-cpus=4", f"--object-store-memory={STORE_BYTES}"]
        if hidden is not None:
            hidden.mkdir(exist_ok=True)
            script = 'mount -t tmpfs none "$1" && shift && exec "$@"'
            begin = ["unshare", "--mount", "sh", "-c", script, "sh", str(hidden), *begin]
        before = len(nodes.alive())
        process = subprocess.Popen(
            [*begin, "--block"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **({} if python_path is None else {"PYTHONPATH": str(python_path)})},
        )
        started.append(process)
        deadline = time.monotonic() + TEST_SECONDS
        while len(nodes.alive()) <= before:
            if process.poll() is not None:
                message = process.stderr.read()
                if hidden is not None and ("not permitted" in message or "denied" in message):
                    pytest.skip("a mount namespace needs root")
                pytest.fail(message)
            assert time.monotonic() < deadline
            time.sleep(0.1)

    yield add
    for process in started:
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def slow(tmp_path) -> tuple[str, ...]:
    """Options that make every sample take a while, and change nothing of it."""
    text = f"import time\n\ndef keep(sample):\n    time.sleep({SLOW_SECONDS})\n    return sample\n"
    (tmp_path / f"{SLOW_MODULE}.py").write_text(text)
    return ("--transform", f"{SLOW_MODULE}:keep")


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> Path:
    """600 samples of two members, of differing sizes; 14 shards of 100 kB."""
    root = tmp_path_factory.mktemp("source")
    for number in range(600):
        for extension in ("a", "b"):
            path = root / f"c{number % 7}/{number:04d}.{extension}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(bytes(number * place % 256 for place in range(number % 2000)))
    return root


@pytest.fixture(scope="session")
def expected(source, tmp_path_factory) -> Callable[..., dict[str, bytes]]:
    """What the local engine makes of the source with some options."""
    made = {}

    def make(*options):
        if options not in made:
            out = tmp_path_factory.mktemp("local") / "out"
            subprocess.run([PACK, "build", str(source), str(out), "--quiet", *options], check=True, capture_output=True)
            made[options] = contents(out)
        return made[options]

    return make
