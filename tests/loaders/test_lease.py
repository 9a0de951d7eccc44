"""An open staged dataset is protected from eviction by any process, for as long as it is open."""

import os
import pickle
import shutil
import signal
import subprocess
import sys

import pytest

import loaders
from shards.errors import NotStagedError
from shards.leases import try_exclude

READER = """
import sys, loaders
dataset = loaders.open_dataset(sys.argv[1])
print(dataset[0].key, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def staged(build, samples_of, tmp_path):
    """A dataset in a node cache; gives what was built, at its path in the cache."""
    built = build(tmp_path / "published", {"train": samples_of(6)})
    target = tmp_path / "cache" / "datasets" / built.dataset_id.removeprefix("blake3:")
    shutil.copytree(built.path, target)
    (target / ".stage").mkdir()
    return str(target)


def is_free(directory):
    """Whether a cleaner would get the dataset."""
    held = try_exclude(directory)
    if held is None:
        return False
    held.close()
    return True


def test_open_dataset_is_held_and_closed_is_free(staged):
    assert is_free(staged)
    with loaders.open_dataset(staged) as dataset:
        assert not is_free(staged)
        view = dataset[:2]
        assert view[1].key == "sample/00001"
        assert not is_free(staged)
    assert is_free(staged)


def test_two_readers_hold_it_until_the_last_closes(staged):
    with loaders.open_dataset(staged):
        with loaders.open_dataset(f"{staged}/manifest.json"):
            assert not is_free(staged)
        assert not is_free(staged)
    assert is_free(staged)


def test_a_symbolic_link_to_a_staged_dataset_is_held_too(staged, tmp_path):
    (tmp_path / "link").symlink_to(staged)
    with loaders.open_dataset(tmp_path / "link"):
        assert not is_free(staged)


def test_a_failed_opening_leaves_it_free(staged):
    os.unlink(f"{staged}/train-000001.tar")
    with pytest.raises(NotStagedError):
        loaders.open_dataset(staged)
    assert is_free(staged)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_another_process_holds_it_until_it_ends_however_it_ends(staged, how):
    child = subprocess.Popen(
        [sys.executable, "-c", READER, staged], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout.readline() == "sample/00000\n"
        assert not is_free(staged)
        if how is not None:
            child.send_signal(how)
        child.stdin.close()
        child.wait(30)
    assert is_free(staged)


def test_a_copy_by_pickle_takes_a_lease_of_its_own_at_its_first_read(staged):
    with loaders.open_dataset(staged) as dataset:
        copy = pickle.loads(pickle.dumps(dataset))
    assert is_free(staged)
    assert copy[5].key == "sample/00005"
    assert not is_free(staged)
    copy.close()
    assert is_free(staged)


def test_a_copy_of_an_evicted_dataset_says_so(staged):
    with loaders.open_dataset(staged) as dataset:
        copy = pickle.loads(pickle.dumps(dataset))
    shutil.rmtree(staged)
    with pytest.raises(NotStagedError, match="run stage run"):
        copy[0]


def test_samples_in_hand_survive_eviction(staged):
    with loaders.open_dataset(staged) as dataset:
        sample = dataset[2]
    shutil.rmtree(staged)
    assert sample["cls"] == b"2"


def test_a_read_only_cache_can_be_held(staged):
    os.chmod(staged, 0o555)
    try:
        with loaders.open_dataset(staged) as dataset:
            assert dataset[0]["cls"] == b"0"
            assert not is_free(staged)
    finally:
        os.chmod(staged, 0o755)


def test_a_plain_directory_is_not_locked(build, samples_of, tmp_path):
    built = build(tmp_path / "plain", {"train": samples_of(3)})
    with loaders.open_dataset(built.path):
        assert is_free(built.path)
