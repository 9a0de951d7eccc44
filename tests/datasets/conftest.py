"""Real datasets, fetched when they are asked for.

Nothing here is collected unless ``DATASETS`` names datasets: ``all``, ``ci`` or a list such as ``pydicom,nibabel``.
``make test-datasets`` does it.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.datasets.catalog import DATASETS, Dataset, choose
from tests.datasets.fetch import UnavailableError
from tests.datasets.sources import place_source

try:
    CHOSEN = choose(os.environ.get("DATASETS", ""))
except ValueError as unknown:
    pytest.exit(str(unknown), returncode=pytest.ExitCode.USAGE_ERROR)

if not CHOSEN:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", params=CHOSEN)
def dataset(request: pytest.FixtureRequest) -> Dataset:
    """Each of the chosen datasets."""
    return DATASETS[request.param]


@pytest.fixture(scope="session")
def source(dataset: Dataset) -> str:
    """The directory of the dataset's files; skips what this machine cannot have."""
    try:
        return place_source(dataset)
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Give paths for results, which may be big: all are removed at the end of the test."""
    yield lambda name: str(tmp_path / name)
    shutil.rmtree(tmp_path)
