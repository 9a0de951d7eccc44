"""Real training under torchrun: ranks share epochs, and a job that is killed goes on with other ranks, exactly."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

JOB = os.path.join(os.path.dirname(__file__), "train_job.py")
NUM_SAMPLES = 211
MAX_SECONDS = 240


@pytest.fixture(scope="module")
def pictures(build, tmp_path_factory):
    random = np.random.default_rng(0)
    samples = []
    for number in range(NUM_SAMPLES):
        file = io.BytesIO()
        Image.fromarray(random.integers(0, 255, (8, 8), np.uint8)).save(file, "PNG")
        samples.append((f"picture/{number:05d}", {"png": file.getvalue(), "cls": str(number % 10).encode()}))
    return build(tmp_path_factory.mktemp("pictures") / "dataset", {"train": samples}, shard_samples=50)


def start(pictures, output, num_ranks, *arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
    return subprocess.Popen(
        [*command, JOB, pictures.path, str(output), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )


def finish(job, output, num_ranks):
    log, _ = job.communicate(timeout=MAX_SECONDS)
    assert job.returncode == 0, log
    done = []
    for rank in range(num_ranks):
        with open(output / f"done-{rank}.json", encoding="ascii") as file:
            done.append(json.load(file))
    return done


def steps_in(output):
    lines = []
    for path in output.glob("seen-*.jsonl"):
        lines += [json.loads(line) for line in path.read_text("ascii").splitlines()]
    return lines


def test_two_ranks_share_two_epochs(pictures, tmp_path):
    done = finish(start(pictures, tmp_path, 2, "--epochs=2"), tmp_path, 2)
    for epoch in (0, 1):
        seen = Counter(number for step in steps_in(tmp_path) if step["epoch"] == epoch for number in step["numbers"])
        assert seen == Counter(range(NUM_SAMPLES))
    assert done[0]["io"]["num_samples"] + done[1]["io"]["num_samples"] == 2 * NUM_SAMPLES
    assert [rank["io"]["rank"] for rank in done] == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("workers", [("--workers=1",), ("--threads=2",)])
def test_any_number_of_ranks_with_workers_and_threads(pictures, tmp_path, num_ranks, workers):
    finish(start(pictures, tmp_path, num_ranks, *workers), tmp_path, num_ranks)
    assert Counter(number for step in steps_in(tmp_path) for number in step["numbers"]) == Counter(range(NUM_SAMPLES))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("--workers=1",), ("--threads=2",)])
def test_a_job_killed_in_the_middle_goes_on_with_three_ranks(pictures, tmp_path, workers):
    job = start(pictures, tmp_path, 2, "--stall-at=13", *workers)
    try:
        wait_for_step(job, tmp_path, 9)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        for pid in ranks_of(tmp_path):
            kill(pid)
        job.communicate()
    saved = torch.load(tmp_path / "checkpoint.pt")
    assert 0 < saved["loader"]["position"] < NUM_SAMPLES
    kept = [step for step in steps_in(tmp_path) if step["step"] <= saved["step"]]
    first = Counter(number for step in kept for number in step["numbers"])
    assert first.total() == saved["loader"]["position"]
    before = set(tmp_path.glob("seen-*.jsonl"))
    for path in before:
        path.unlink()
    finish(start(pictures, tmp_path, 3, "--batch-size=3", *workers), tmp_path, 3)
    second = Counter(number for step in steps_in(tmp_path) for number in step["numbers"])
    assert first + second == Counter(range(NUM_SAMPLES))


def wait_for_step(job, output, step):
    deadline = time.monotonic() + MAX_SECONDS
    while job.poll() is None and time.monotonic() < deadline:
        # what is written whole is enough: a line that is being written does not count yet
        written = [path.read_text("ascii").count("\n") for path in output.glob("seen-*.jsonl")]
        if len(written) == 2 and min(written) >= step:
            return
        time.sleep(0.01)
    pytest.fail(f"the job did not reach step {step}")


def ranks_of(output):
    return [int(path.stem.partition("-")[2]) for path in output.glob("seen-*.jsonl")]


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
