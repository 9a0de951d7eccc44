import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.cache import CacheLayout, check_version, dataset_id_of, directory_name, encode_version, partial_name
from shards.errors import UnsupportedEnvironmentError

HEX = "0123456789abcdef" * 4
ID = f"blake3:{HEX}"
LAYOUT = CacheLayout("/mnt/nvme/shardferry")


def test_every_path_is_where_the_format_says() -> None:
    root = "/mnt/nvme/shardferry"
    assert LAYOUT.version_path == f"{root}/VERSION"
    assert LAYOUT.gc_lock_path == f"{root}/gc.lock"
    assert LAYOUT.datasets_dir == f"{root}/datasets"
    assert LAYOUT.all_leases_dir == f"{root}/leases"
    assert LAYOUT.trash_dir == f"{root}/trash"
    assert LAYOUT.metrics_dir == f"{root}/metrics"
    assert LAYOUT.dataset_dir(ID) == f"{root}/datasets/{HEX}"
    assert LAYOUT.stage_dir(ID) == f"{root}/datasets/{HEX}/.stage"
    assert LAYOUT.partial_path(ID, "train-000001.tar") == f"{root}/datasets/{HEX}/.stage/train-000001.tar.partial"
    assert LAYOUT.status_path(ID) == f"{root}/datasets/{HEX}/.stage/status.json"
    assert LAYOUT.leases_dir(ID) == f"{root}/leases/{HEX}"
    assert LAYOUT.lease_path(ID, "pod-1") == f"{root}/leases/{HEX}/pod-1.json"
    assert LAYOUT.trash_path("t1") == f"{root}/trash/t1"
    assert LAYOUT.metrics_path("pod-1") == f"{root}/metrics/pod-1.prom"


@pytest.mark.parametrize(
    ("root", "version"),
    [("/c/", "/c/VERSION"), ("/", "/VERSION"), ("c", "c/VERSION"), ("c//", "c/VERSION"), (".", "./VERSION")],
)
def test_the_root_is_taken_as_given(root: str, version: str) -> None:
    assert CacheLayout(root).version_path == version


@pytest.mark.parametrize("root", ["", "a\0b"])
def test_a_root_that_is_no_directory_is_refused(root: str) -> None:
    with pytest.raises(ValueError, match="no directory"):
        CacheLayout(root)


@pytest.mark.parametrize(
    "text", ["", HEX, f"blake3:{HEX[:-1]}", f"blake3:{HEX.upper()}", f"{ID}/..", f"{ID}\n", "blake3:" + "/" * 64]
)
def test_an_id_that_is_none_makes_no_path(text: str) -> None:
    for method in (LAYOUT.dataset_dir, LAYOUT.stage_dir, LAYOUT.leases_dir, LAYOUT.status_path):
        with pytest.raises(ValueError, match="no dataset id"):
            method(text)


@pytest.mark.parametrize("text", ["", ".", "..", ".x", "a/b", "../a", "/a", "a b", "a\n", "a\0", "é", "-a", "n" * 129])
def test_a_holder_that_could_leave_the_cache_makes_no_path(text: str) -> None:
    for make in (
        lambda: LAYOUT.lease_path(ID, text),
        lambda: LAYOUT.metrics_path(text),
        lambda: LAYOUT.trash_path(text),
    ):
        with pytest.raises(ValueError, match="no holder"):
            make()


@pytest.mark.parametrize("text", ["a", "6f1c3b1e-9f2c-4e57-8a53-0c1b0b0a9a11", "job_17.step-0", "n" * 128])
def test_usual_holders_are_taken(text: str) -> None:
    assert LAYOUT.lease_path(ID, text).endswith(f"/{text}.json")


def test_directories_and_ids_belong_together() -> None:
    assert directory_name(ID) == HEX
    assert dataset_id_of(HEX) == ID
    for name in ("", HEX[:-1], HEX.upper(), ID, f"{HEX}.trash", "lost+found", f"{HEX}\n"):
        assert dataset_id_of(name) is None


NAMES = st.lists(
    st.text(st.sampled_from("ab%2F.é"), min_size=1, max_size=5).filter(lambda text: not text.startswith(".")),
    min_size=1,
    max_size=3,
).map("/".join)


@given(NAMES, NAMES)
def test_different_names_have_different_partials_in_one_directory(first: str, second: str) -> None:
    for name in (first, second):
        partial = partial_name(name)
        assert "/" not in partial
        assert partial.endswith(".partial")
        assert not partial.startswith(".")
    assert (partial_name(first) == partial_name(second)) == (first == second)


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127, "/".join(["d" * 100] * 10), "%" * 255])
def test_a_long_name_has_a_partial_that_a_filesystem_takes(name: str) -> None:
    assert len(partial_name(name).encode()) <= 255
    assert partial_name(name) != partial_name(name[:-1] + "x")


@pytest.mark.parametrize("name", ["", "..", "../x", "/x", "a/../b", "a\0", ".stage/x", "a\\b"])
def test_an_escaping_name_has_no_partial(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        LAYOUT.partial_path(ID, name)


def test_the_version_file() -> None:
    assert encode_version() == b"1\n"
    check_version(encode_version(), path="VERSION")
    for data in (b"", b"x", b"1.0", b"-1", b"\xff", b"9" * 20, "²".encode()):
        with pytest.raises(UnsupportedEnvironmentError, match="not a Shardferry cache"):
            check_version(data, path="/c/VERSION")
    for data in (b"2\n", b"0"):
        with pytest.raises(UnsupportedEnvironmentError, match=r"/c/VERSION .* version [02], this release knows 1"):
            check_version(data, path="/c/VERSION")
