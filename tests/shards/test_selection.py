"""Which shards a node wants: splits, patterns, parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.digests import hash_bytes
from shards.manifest import Manifest, ShardEntry, SplitEntry
from shards.selection import NodePart, Selection, select_shards


def shard(name):
    return ShardEntry(
        name=name,
        size_bytes=10,
        digest=hash_bytes(name.encode()),
        num_samples=1,
        index_name=f"{name}.index.arrow",
        index_size_bytes=1,
        index_digest=hash_bytes(b""),
    )


def manifest_of(**splits):
    entries = tuple(
        SplitEntry(
            name=name,
            num_samples=num,
            size_bytes=10 * num,
            shards=tuple(shard(f"{name}/{name}-{number:06d}.tar") for number in range(num)),
            extensions={},
        )
        for name, num in splits.items()
    )
    return Manifest(shard_format="tar", block_bytes=64, splits=entries)


MANIFEST = manifest_of(train=12, val=3)


def names(**selection):
    return [entry.name for _, entry in select_shards(MANIFEST, Selection(**selection))]


def test_nothing_said_is_everything():
    assert len(names()) == 15
    assert Selection().is_all
    assert Selection().to_text() == "all"


def test_splits_and_patterns_narrow_one_another():
    assert names(splits=("val",)) == [f"val/val-{number:06d}.tar" for number in range(3)]
    assert names(globs=("*-000001.tar",)) == ["train/train-000001.tar", "val/val-000001.tar"]
    assert names(globs=("*-000001.tar", "train/*2.tar"), splits=("train",)) == [
        "train/train-000001.tar",
        "train/train-000002.tar",
    ]
    assert names(globs=("nothing*",)) == []


def test_a_pattern_is_compared_with_the_whole_name_only_when_it_has_a_slash():
    assert names(globs=("val-*",)) == names(globs=("val/*",))
    assert names(globs=("*/val-000000.tar",)) == ["val/val-000000.tar"]
    assert names(globs=("VAL-*",)) == []


def test_an_unknown_split_is_an_error_that_lists_those_there_are():
    with pytest.raises(ValueError, match="no split 'test'; the dataset has: train, val"):
        names(splits=("test",))


@given(num_train=st.integers(1, 40), num_val=st.integers(0, 9), count=st.integers(1, 12))
def test_parts_are_disjoint_complete_and_equal_in_each_split(num_train, num_val, count):
    manifest = manifest_of(train=num_train, val=num_val)
    parts = [select_shards(manifest, Selection(part=NodePart(index, count))) for index in range(count)]
    chosen = [entry.name for part in parts for _, entry in part]
    assert sorted(chosen) == sorted(entry.name for _, entry in manifest.shards())
    for name in ("train", "val"):
        loads = [sum(split.name == name for split, _ in part) for part in parts]
        assert max(loads) - min(loads) <= 1


def test_the_order_is_the_manifests():
    chosen = names(part=NodePart(1, 2))
    assert chosen == [entry.name for _, entry in MANIFEST.shards() if entry.name in chosen]


@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0), (0, 65537)])
def test_impossible_parts_are_refused(index, count):
    with pytest.raises(ValueError, match="nodes"):
        NodePart(index, count)


def test_text_names_all_that_narrows():
    selection = Selection(splits=("train",), globs=("a*", "b*"), part=NodePart(0, 4))
    assert selection.to_text() == "split=train glob=a* glob=b* rank=0/4"
    assert not selection.is_all
    assert Selection(part=NodePart(0, 1)).is_all
