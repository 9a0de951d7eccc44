"""Opening: what is there is checked, what is not is named, and every message says what to do."""

import json
import os
import shutil

import pytest

import loaders
from shards.errors import (
    DamagedShardsError,
    DigestMismatchError,
    FormatError,
    IndexFormatError,
    LoadError,
    ManifestFormatError,
    NotStagedError,
    SizeMismatchError,
    UnsupportedEnvironmentError,
)


def overwrite(path, content):
    os.chmod(path, 0o644)
    with open(path, "wb") as file:
        file.write(content)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_directory_and_manifest_and_path_objects_name_the_same_dataset(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = (built.path, f"{built.path}/", f"{built.path}/manifest.json", "dataset", "./dataset/manifest.json")
    for source in (*sources, tmp_path / "dataset"):
        with loaders.open_dataset(source) as dataset:
            assert dataset.dataset_id == built.dataset_id
            assert dataset.info.directory == os.path.realpath(built.path)
    monkeypatch.chdir(built.path)
    with loaders.open_dataset("manifest.json") as dataset:
        assert len(dataset) == 23


def test_a_relative_path_survives_a_change_of_directory(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with loaders.open_dataset("dataset") as dataset:
        monkeypatch.chdir("/")
        assert dataset[0].key == "sample/00000"


def test_missing_shards_and_indexes_are_all_named(built):
    os.unlink(built.shard_path(1))
    os.unlink(built.index_path(3))
    with pytest.raises(NotStagedError, match="2 of 10 files that the manifest names are missing") as caught:
        loaders.open_dataset(built.path)
    assert built.shard_path(1) in str(caught.value)
    assert built.index_path(3) in str(caught.value)
    assert "again" in str(caught.value)


@pytest.mark.parametrize("which", ["shard_path", "index_path"])
@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b""])
def test_a_file_of_another_size_is_refused_at_opening(built, which, change):
    path = getattr(built, which)(2)
    content = read(path)
    overwrite(path, change(content))
    with pytest.raises(SizeMismatchError, match=f"expected {len(content)} bytes") as caught:
        loaders.open_dataset(built.path)
    assert path in str(caught.value)


def test_a_shard_cut_after_opening_is_refused_when_it_is_mapped(built):
    with loaders.open_dataset(built.path) as dataset:
        overwrite(built.shard_path(1), b"short")
        assert dataset[0].key == "sample/00000"
        with pytest.raises(SizeMismatchError):
            dataset[5]


def test_any_flipped_bit_of_an_index_is_found_when_it_is_first_used(built):
    path = built.index_path(1)
    content = read(path)
    for place in range(0, len(content), 101):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        overwrite(path, damaged)
        with loaders.open_dataset(built.path) as dataset:
            assert dataset[0]["cls"] == b"0"
            with pytest.raises(DigestMismatchError, match=r"-000001\.\w+\.index\.arrow"):
                dataset[5]
        with pytest.raises(DigestMismatchError):
            loaders.open_dataset(built.path, check="index")


@pytest.mark.parametrize("level", ["index", "full"])
def test_an_index_of_another_shard_is_refused_even_with_a_matching_digest(built, level):
    manifest = json.loads(read(f"{built.path}/manifest.json"))
    shards = manifest["splits"][0]["shards"]
    for name in ("index_name", "index_size_bytes", "index_digest"):
        shards[0][name], shards[1][name] = shards[1][name], shards[0][name]
    overwrite(f"{built.path}/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(IndexFormatError, match="shard name is train-000001"):
        loaders.open_dataset(built.path, check=level)
    with loaders.open_dataset(built.path) as dataset, pytest.raises(IndexFormatError):
        dataset[0]


def test_full_check_names_the_damaged_block(build, samples_of, tmp_path):
    for format_name in ("tar", "tfrecord"):
        built = build(
            tmp_path / format_name, {"all": samples_of(40)}, format_name=format_name, shard_samples=20, block_bytes=512
        )
        with loaders.open_dataset(built.path, check="full") as dataset:
            assert len(dataset) == 40
        content = bytearray(read(built.shard_path(1)))
        content[1030] ^= 1
        overwrite(built.shard_path(1), content)
        with loaders.open_dataset(built.path, check="index"):
            pass
        with pytest.raises(DigestMismatchError, match=r"all-000001.* block 2 \(byte offset 1024\)"):
            loaders.open_dataset(built.path, check="full")


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-40], lambda data: b"", lambda data: b"\xff" + data, lambda data: data.replace(b"23", b"24")],
)
def test_a_damaged_manifest_is_refused(built, damage):
    path = f"{built.path}/manifest.json"
    overwrite(path, damage(read(path)))
    with pytest.raises(ManifestFormatError, match=r"manifest\.json"):
        loaders.open_dataset(built.path)


def test_a_manifest_from_the_future_is_refused_by_version(built):
    path = f"{built.path}/manifest.json"
    overwrite(path, read(path).replace(b'"1.0"', b'"2.0"'))
    with pytest.raises(FormatError, match=r"format version 2\.0 is not supported"):
        loaders.open_dataset(built.path)


def test_what_is_no_dataset_is_refused_with_advice(built, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_bytes(b"what is this?")
    with pytest.raises(NotStagedError, match=r"empty has no manifest\.json.*run pack build or stage run again"):
        loaders.open_dataset(tmp_path / "empty")
    with pytest.raises(NotStagedError, match=r"empty has no manifest\.json"):
        loaders.open_dataset(tmp_path / "empty" / "manifest.json")
    with pytest.raises(DamagedShardsError, match=r"file\.txt is neither a tar nor a TFRecord file"):
        loaders.open_dataset(tmp_path / "file.txt", index_dir=tmp_path / "indexes")
    with pytest.raises(NotStagedError, match="nothing-here does not exist; give a dataset directory"):
        loaders.open_dataset(tmp_path / "nothing-here")


def test_a_read_only_directory_can_be_read(built):
    os.chmod(built.path, 0o555)
    try:
        with loaders.open_dataset(built.path, check="full") as dataset:
            assert len(list(dataset)) == 23
    finally:
        os.chmod(built.path, 0o755)


@pytest.fixture
def cache(build, samples_of, tmp_path):
    """A node cache with two staged datasets and one that is not complete; gives (root, [built, built])."""
    root = tmp_path / "cache"
    staged = []
    for prefix in ("a", "b"):
        built = build(tmp_path / prefix, {"train": samples_of(6, prefix=prefix)})
        target = root / "datasets" / built.dataset_id.removeprefix("blake3:")
        shutil.copytree(built.path, target)
        (target / ".stage").mkdir()
        staged.append(built)
    (root / "datasets" / ("f0" * 32)).mkdir()
    (root / "datasets" / "lost+found").mkdir()
    return root, staged


def test_a_staged_dataset_opens_by_id_and_by_the_beginning_of_one(cache):
    root, staged = cache
    for built in staged:
        digits = built.dataset_id.removeprefix("blake3:")
        for source in (built.dataset_id, digits, digits[:8], f"blake3:{digits[:20]}"):
            with loaders.open_dataset(source, cache_dir=root) as dataset:
                assert dataset.dataset_id == built.dataset_id
                assert [sample.key for sample in dataset] == [key for key, _ in built.samples]


def test_the_cache_comes_from_the_environment_at_the_call(cache, monkeypatch):
    root, [built, _] = cache
    monkeypatch.delenv("STAGE_CACHE_DIR", raising=False)
    with pytest.raises(LoadError, match="pass cache_dir or set STAGE_CACHE_DIR"):
        loaders.open_dataset(built.dataset_id)
    monkeypatch.setenv("STAGE_CACHE_DIR", str(root))
    with loaders.open_dataset(built.dataset_id) as dataset:
        assert len(dataset) == 6


def test_an_unknown_id_lists_what_is_staged(cache):
    root, staged = cache
    with pytest.raises(NotStagedError, match=r"dataset 00000000 is not staged in cache .*run stage run") as caught:
        loaders.open_dataset("00000000", cache_dir=root)
    for built in staged:
        assert built.dataset_id.removeprefix("blake3:") in str(caught.value)
    assert "f0f0" not in str(caught.value)
    with pytest.raises(NotStagedError, match="it holds no dataset"):
        loaders.open_dataset("00000000", cache_dir=root / "elsewhere")


def test_an_ambiguous_beginning_lists_the_candidates(cache):
    root, _ = cache
    for digits in ("ab" * 32, "ab" * 31 + "cd"):
        (root / "datasets" / digits).mkdir()
    with pytest.raises(LoadError, match="dataset id abababab is not unique") as caught:
        loaders.open_dataset("abababab", cache_dir=root)
    assert "ab" * 31 + "cd" in str(caught.value)


def test_a_cache_of_a_newer_layout_is_refused(cache):
    root, [built, _] = cache
    (root / "VERSION").write_text("1\n")
    loaders.open_dataset(built.dataset_id, cache_dir=root).close()
    (root / "VERSION").write_text("2\n")
    with pytest.raises(UnsupportedEnvironmentError, match="layout version 2"):
        loaders.open_dataset(built.dataset_id, cache_dir=root)


def test_an_unfinished_dataset_is_not_staged(cache):
    root, _ = cache
    with pytest.raises(NotStagedError, match=r"has no manifest\.json"):
        loaders.open_dataset("f0f0f0f0", cache_dir=root)


@pytest.mark.parametrize("text", ["blake3:12", "blake3:", "blake3:XYZ", "blake3:" + "a" * 65, "blake3:../../etc"])
def test_what_is_no_id_is_refused(cache, text):
    root, _ = cache
    with pytest.raises(LoadError, match="is not a dataset id"):
        loaders.open_dataset(text, cache_dir=root)


def test_a_path_wins_over_an_id(cache, tmp_path, monkeypatch):
    root, [one, other] = cache
    digits = one.dataset_id.removeprefix("blake3:")[:8]
    shutil.copytree(other.path, tmp_path / digits)
    monkeypatch.chdir(tmp_path)
    with loaders.open_dataset(digits, cache_dir=root) as dataset:
        assert dataset.dataset_id == other.dataset_id
    with loaders.open_dataset(f"blake3:{digits}", cache_dir=root) as dataset:
        assert dataset.dataset_id == one.dataset_id


def test_a_directory_that_holds_another_dataset_than_its_name_says_is_refused(cache):
    root, [one, other] = cache
    manifest = read(f"{other.path}/manifest.json")
    digits = one.dataset_id.removeprefix("blake3:")
    overwrite(root / "datasets" / digits / "manifest.json", manifest)
    with pytest.raises(ManifestFormatError, match=f"it describes dataset {other.dataset_id}"):
        loaders.open_dataset(digits, cache_dir=root)


def test_fifo_as_manifest_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(FormatError, match="not a regular file"):
        loaders.open_dataset(tmp_path)


def test_manifest_of_many_gigabytes_is_refused_and_not_read(tmp_path):
    with open(tmp_path / "manifest.json", "wb") as file:
        file.truncate(10 * 1024**3)
    with pytest.raises(FormatError, match="at most"):
        loaders.open_dataset(tmp_path)
