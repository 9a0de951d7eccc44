"""What a start costs: nobody waits for a framework, or for Arrow, to read a help text."""

import json
import statistics
import subprocess
import sys
import time

import pytest

HEAVY = ("numpy", "pyarrow", "fsspec", "torch", "tensorflow", "tqdm")
HELP_SCRIPT = """
import sys
sys.argv = ["{module}", *{arguments!r}]
from {module} import main
try:
    main()
except SystemExit as stop:
    assert stop.code == 0, stop.code
"""
LIST_MODULES = "import json, sys; sys.stderr.write(json.dumps(sorted(sys.modules)))"
ROUNDS = 7
MAX_RATIO = 3.0
TRIES = 3
"""A busy machine can spoil one comparison; a real slowness spoils all."""


def loaded_modules(script: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\n{LIST_MODULES}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stderr)}


def seconds_of(script: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def test_import_loaders_brings_no_framework() -> None:
    assert not loaded_modules("import loaders") & {"torch", "tensorflow", "numpy", "pyarrow"}


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("packer.cli", ["--help"]),
        ("packer.cli", ["build", "--help"]),
        ("packer.cli", ["plan", "--help"]),
        ("stager.cli", ["--help"]),
        ("stager.cli", ["run", "--help"]),
        ("loaders.cli", ["--help"]),
        ("loaders.cli", ["inspect", "--help"]),
        ("shardferry.cli", ["--help"]),
        ("shardferry.cli", ["--version"]),
        ("shardferry.cli", ["pack", "--help"]),
    ],
)
def test_help_loads_nothing_heavy(module: str, arguments: list[str]) -> None:
    assert not loaded_modules(HELP_SCRIPT.format(module=module, arguments=arguments)) & set(HEAVY)


def test_umbrella_help_imports_no_program() -> None:
    loaded = loaded_modules(HELP_SCRIPT.format(module="shardferry.cli", arguments=["--help"]))
    assert not loaded & {"packer", "stager", "loaders"}


@pytest.mark.parametrize("module", ["packer.cli", "stager.cli", "loaders.cli", "shardferry.cli"])
def test_help_takes_at_most_three_times_as_long_as_importing_click(module: str) -> None:
    script = HELP_SCRIPT.format(module=module, arguments=["--help"])
    seconds_of(script)  # the first start may compile bytecode
    ratios = []
    for _ in range(TRIES):
        # pairs, taken in turn: what else runs on the machine slows both of a pair
        pairs = [(seconds_of("import click"), seconds_of(script)) for _ in range(ROUNDS)]
        ratios.append(statistics.median(ours / bare for bare, ours in pairs))
        if ratios[-1] <= MAX_RATIO:
            return
    pytest.fail(f"{module} --help takes {min(ratios):.1f} times as long as importing click")
