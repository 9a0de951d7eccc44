"""What holds for all tests."""

import os
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest

# How long an example takes says how busy the machine is, nothing about the code.
hypothesis.settings.register_profile("without-deadline", deadline=None)
hypothesis.settings.load_profile("without-deadline")

# Spawned worker processes import the test module that gave them a function, as ``tests.…``. The root goes to the end of
# the path: the packages under test still come from where they are installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))


def pytest_addoption(parser):
    """Let the slower tiers be made longer: ``make test-slow ARGS="--kills 20"``."""
    parser.addoption("--kills", type=int, default=4, help="builds that each test of kill rounds kills (default: 4)")


@pytest.fixture(scope="session", autouse=True)
def _others_may_pass(tmp_path_factory):
    """Let other users reach the tests' files: some tests run programs as one, and pytest's directories are 0700."""
    base, temporary = tmp_path_factory.getbasetemp(), Path(tempfile.gettempdir())
    if os.geteuid() == 0 and temporary in base.parents:
        for directory in (base, *base.parents[: base.parents.index(temporary)]):
            directory.chmod(directory.stat().st_mode | 0o055)
