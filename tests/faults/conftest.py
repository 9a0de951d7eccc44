"""What the tests of faults share: datasets, a node with a cache, and a look for leftovers at the end of each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.faults.machine", "tests.faults.node")

from tests.faults.machine import FaultMount, fault_mount, loop_images_below, mounts_below  # noqa: E402
from tests.faults.node import Node, wait_until  # noqa: E402
from tests.stager.conftest import BLOCK_BYTES, Published, publish  # noqa: E402


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert mounts_below(tmp_path) == []
    # a loop device goes when the last mount namespace that was copied meanwhile has gone
    wait_until(lambda: loop_images_below(tmp_path) == [], f"no loop device has a file below {tmp_path}")


@pytest.fixture
def dataset(tmp_path: Path) -> Published:
    """Four shards: several blocks, a short last block, one block, nothing."""
    return publish(tmp_path / "published", [5 * BLOCK_BYTES, 3 * BLOCK_BYTES + 1234, BLOCK_BYTES, 0])


@pytest.fixture
def node(tmp_path: Path, dataset: Published) -> Iterator[Node]:
    """A node whose cache holds nothing of ours yet; checked once more when the test is over."""
    made = Node(tmp_path, tmp_path / "cache")
    made.plant_foreign_files(dataset)
    yield made
    made.check(dataset)


@pytest.fixture
def mount(tmp_path: Path, dataset: Published) -> Iterator[FaultMount]:
    """The dataset through the fault filesystem, without a fault yet."""
    with fault_mount(dataset.path, tmp_path / "mount") as made:
        yield made
