"""The loaders' benchmark runs to its end on a tiny input, with readers that are installed everywhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_benchmark_compares_on_a_tiny_input(tmp_path):
    pytest.importorskip("torch")
    rows = (
        "sequential/webdataset",
        "sequential/mmap",
        "shuffled/webdataset",
    )  # webdataset refuses fewer shards than workers
    command = [sys.executable, BENCHMARKS / "load.py", "--samples", "600", "--mean-bytes", "500", "--pairs", "1"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [*command, "--work", tmp_path, *(f"--only={row}" for row in rows)],
        check=True,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    # each row as it ends, and the table with its head
    assert len(lines) == len(rows) + 1 + len(rows)
    assert "resume in the middle of 100,000,000 samples" in done.stdout
