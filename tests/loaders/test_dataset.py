"""Random access over shards: the samples are those that were packed, whatever the way in."""

import gc
import os
import pickle
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import loaders
from loaders.sample import Sample
from shards.errors import DigestMismatchError, LoadError, MissingMemberError, SizeMismatchError


def contents(samples):
    return [(sample.key, dict(sample)) for sample in samples]


def test_every_sample_has_the_bytes_that_were_packed(built):
    with loaders.open_dataset(built.path) as dataset:
        assert len(dataset) == len(built.samples)
        assert contents(dataset) == built.samples
        assert contents(dataset[number] for number in range(len(dataset))) == built.samples


def test_random_order_gives_the_same_samples(built):
    order = list(range(len(built.samples)))
    random.Random(5).shuffle(order)
    with loaders.open_dataset(built.path) as dataset:
        assert contents(dataset[number] for number in order) == [built.samples[number] for number in order]
        assert [dataset[number].number for number in order] == order


def test_negative_positions_count_from_the_end_and_outside_is_an_index_error(built):
    with loaders.open_dataset(built.path) as dataset:
        assert dataset[-1].key == built.samples[-1][0]
        assert dataset[-len(dataset)].key == built.samples[0][0]
        for position in (len(dataset), -len(dataset) - 1, 10**30):
            with pytest.raises(IndexError):
                dataset[position]
            with pytest.raises(IndexError):
                dataset.key(position)
        with pytest.raises(TypeError):
            dataset["sample/00001"]


@given(st.slices(23), st.slices(23))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_slices_are_datasets_that_behave_like_list_slices(built, outer, inner):
    expected = built.samples[outer][inner]
    with loaders.open_dataset(built.path) as dataset:
        view = dataset[outer][inner]
        assert len(view) == len(expected)
        assert contents(view) == expected
        assert contents(view[position] for position in range(len(view))) == expected
        assert [view.find(key) for key, _ in expected] == list(range(len(expected)))


def test_numpy_and_bool_free_integers_are_positions(built):
    numpy = pytest.importorskip("numpy")
    with loaders.open_dataset(built.path) as dataset:
        assert dataset[numpy.int64(7)].key == dataset[7].key
        assert type(dataset[numpy.int64(7)].number) is int


def test_sample_is_a_mapping_in_shard_order(built):
    with loaders.open_dataset(built.path) as dataset:
        sample = dataset[2]
        assert list(sample) == ["jpg", "cls", "seg.png"]
        assert len(sample) == 3
        assert "cls" in sample
        assert "txt" not in sample
        assert 3 not in sample
        assert sample.get("txt") is None
        assert sample.get("txt", b"-") == b"-"
        assert sample.get("cls") == b"2"
        assert sample == dict(built.samples[2][1])
        assert list(sample.to_dict().items()) == list(built.samples[2][1].items())
        assert repr(sample) == "Sample(key='sample/00002', number=2, extensions=['jpg', 'cls', 'seg.png'])"
        with pytest.raises(AttributeError):
            sample.key = "other"


def test_missing_member_names_those_that_exist(built):
    with loaders.open_dataset(built.path) as dataset:
        for read in (dataset[0].__getitem__, dataset[0].view):
            with pytest.raises(
                MissingMemberError, match=r"sample sample/00000 has no member seg\.png; it has: jpg, cls"
            ):
                read("seg.png")


def test_views_are_the_members_in_place_and_read_only(built):
    with loaders.open_dataset(built.path) as dataset:
        view = dataset[4].view("jpg")
        assert bytes(view) == dataset[4]["jpg"]
        assert view.readonly
        assert (view.format, view.itemsize) == ("B", 1)


def test_samples_and_views_stay_readable_after_close(built):
    dataset = loaders.open_dataset(built.path)
    sample, view = dataset[3], dataset[4].view("jpg")
    dataset.close()
    gc.collect()
    assert sample["jpg"] == built.samples[3][1]["jpg"]
    assert bytes(view) == built.samples[4][1]["jpg"]


def test_a_closed_dataset_gives_no_samples_and_closes_twice(built):
    dataset = loaders.open_dataset(built.path)
    view = dataset[:3]
    dataset.close()
    dataset.close()
    for use in (lambda: dataset[0], lambda: list(dataset), lambda: view[0], lambda: dataset.find("x")):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_keys_are_found(built):
    with loaders.open_dataset(built.path) as dataset:
        assert [dataset.find(key) for key, _ in built.samples] == list(range(len(built.samples)))
        assert dataset.find("sample/99999") is None
        assert dataset.find("") is None
        assert dataset.key(-2) == built.samples[-2][0]


def test_facts_of_the_manifest_are_at_hand(built_splits):
    with loaders.open_dataset(built_splits.path, split="val") as dataset:
        assert dataset.extensions == ("cls", "jpg", "seg.png")
        assert dataset.classes == ("cat", "dog")
        assert dataset.dataset_id == built_splits.dataset_id
        assert dataset.info.split == "val"
        assert len(dataset.shards) == 2
        assert repr(dataset) == f"Dataset({built_splits.path!r}, split='val', format='tar', samples=7)"


def test_a_split_is_chosen_by_name_and_needed_when_there_are_several(built_splits):
    for split in ("train", "val"):
        with loaders.open_dataset(built_splits.path, split=split) as dataset:
            assert contents(dataset) == built_splits.splits[split]
    with pytest.raises(LoadError, match="choose a split; the dataset has: train, val"):
        loaders.open_dataset(built_splits.path)
    with pytest.raises(LoadError, match="there is no split test; the dataset has: train, val"):
        loaders.open_dataset(built_splits.path, split="test")


def test_empty_members_and_shards_of_one_sample(build, tmp_path):
    samples = [("a", {"txt": b""}), ("b", {"txt": b"x"}), ("c", {"txt": b"", "bin": b"\0"})]
    for format_name in ("tar", "tfrecord"):
        built = build(tmp_path / format_name, {"all": samples}, format_name=format_name, shard_samples=1)
        with loaders.open_dataset(built.path) as dataset:
            assert contents(dataset) == samples
            assert bytes(dataset[0].view("txt")) == b""


def test_keys_that_are_not_utf8_survive(build, tmp_path):
    key = os.fsdecode(b"caf\xe9/\xff")
    for format_name in ("tar", "tfrecord"):
        built = build(tmp_path / format_name, {"all": [(key, {"txt": b"x"})]}, format_name=format_name)
        with loaders.open_dataset(built.path) as dataset:
            assert dataset[0].key == key
            assert dataset.find(key) == 0


def test_sample_by_pickle_no_longer_needs_its_file(built):
    with loaders.open_dataset(built.path) as dataset:
        data = pickle.dumps(dataset[2])
    os.unlink(built.shard_path(0))
    sample = pickle.loads(data)
    assert isinstance(sample, Sample)
    assert (sample.key, sample.number, dict(sample)) == (built.samples[2][0], 2, built.samples[2][1])
    assert bytes(sample.view("cls")) == b"2"
    assert pickle.loads(pickle.dumps(sample)) == sample
    with pytest.raises(MissingMemberError):
        sample["txt"]


def test_dataset_by_pickle_reads_the_same_and_carries_no_data(built):
    with loaders.open_dataset(built.path) as dataset:
        list(dataset)
        data = pickle.dumps(dataset[5:20])
        assert len(data) < 4000
        with pickle.loads(data) as copy:
            assert contents(copy) == built.samples[5:20]
            assert copy.extensions == dataset.extensions


def test_crc_is_checked_on_request(built):
    damage_member(built, 6, "jpg")
    with loaders.open_dataset(built.path) as dataset:
        assert dataset[6]["jpg"] != built.samples[6][1]["jpg"]
    with loaders.open_dataset(built.path, verify="crc") as dataset:
        assert dataset[6]["cls"] == b"6"
        assert dataset[7]["jpg"] == built.samples[7][1]["jpg"]
        for read in (dataset[6].__getitem__, dataset[6].view):
            with pytest.raises(DigestMismatchError, match=r"member sample/00006\.jpg of .*-000001.*crc32c:"):
                read("jpg")


def damage_member(built, number, extension):
    """Flip a bit of a member in its shard."""
    with loaders.open_dataset(built.path) as dataset:
        shard, row = dataset.locate(number)
        [offset] = [member.offset for member in shard.index.members(row) if member.extension == extension]
        path = shard.file.path
    os.chmod(path, 0o644)
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def test_prefetch_changes_nothing_but_the_page_cache(built):
    with loaders.open_dataset(built.path) as dataset:
        dataset.prefetch([])
        dataset.prefetch([3, -1, 22, 3])
        assert contents(dataset) == built.samples
        with pytest.raises(IndexError):
            dataset.prefetch([23])


def test_a_sample_in_hand_of_a_shard_that_was_cut_is_an_error_and_no_crash(built):
    with loaders.open_dataset(built.path) as dataset:
        sample, view = dataset[4], dataset[4].view
        os.chmod(built.shard_path(0), 0o644)
        os.truncate(built.shard_path(0), 64)
        for read in (sample.__getitem__, view):
            with pytest.raises(SizeMismatchError, match="actual 64 bytes"):
                read("jpg")
        with pytest.raises(SizeMismatchError):
            sample.to_dict()


def test_wrong_options_are_refused(built):
    with pytest.raises(ValueError, match="verify must be none or crc, not 'yes'"):
        loaders.open_dataset(built.path, verify="yes")
    with pytest.raises(ValueError, match="check must be one of size, index, full, not 'deep'"):
        loaders.open_dataset(built.path, check="deep")
