import os
import pickle
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.sources.files import INLINE
from packer.splits import parse_split
from shards.errors import OversizeSampleError, SourceError
from shards.formats import FORMATS

sources = st.dictionaries(
    st.builds("{}{}.{}".format, st.sampled_from(["a/", "b/", ""]), st.integers(0, 30), st.sampled_from(["jpg", "txt"])),
    st.integers(0, 3000),
    min_size=1,
    max_size=40,
)


@given(
    sources, st.sampled_from(["tar", "tfrecord"]), st.integers(10_000, 40_000), st.one_of(st.none(), st.integers(0, 9))
)
def test_every_member_is_planned_once_and_no_shard_is_too_big(plan_of, sizes, format_name, shard_size_bytes, seed):
    plan = plan_of(sizes, format_name=format_name, shard_size_bytes=shard_size_bytes, seed=seed)
    shard_format = FORMATS[format_name]
    planned = []
    for number, shard in enumerate(plan.shards):
        unfolded = plan.shard_plan(number)
        assert shard.name == unfolded.name == f"train-{number:06d}{shard_format.suffix}"
        assert shard.size_bytes <= shard_size_bytes
        encoded, first = len(shard_format.end_marker), 0
        for key, count in zip(unfolded.keys, unfolded.num_members, strict=True):
            members = list(zip(unfolded.extensions, unfolded.sizes, strict=True))[first : first + count]
            encoded += shard_format.layout_sample(key, members).size
            first += count
        assert encoded == unfolded.size_bytes == shard.size_bytes
        planned += zip(map(bytes.decode, unfolded.sources), unfolded.sizes, strict=True)
    assert sorted(planned) == sorted(sizes.items())


@given(sources, st.integers(0, 9))
def test_shards_are_filled_before_the_next_is_begun(plan_of, sizes, seed):
    plan = plan_of(sizes, seed=seed)
    for shard, following in zip(plan.shards, plan.shards[1:], strict=False):
        first = plan.order[following.start]
        key, members = plan.content.samples.keys[first], plan.content.members(first)
        assert shard.size_bytes + FORMATS["tar"].layout_sample(key, members).size > 10_000


@given(sources, st.integers(0, 9))
def test_same_files_give_the_same_plan_and_a_seed_another_order(plan_of, sizes, seed):
    def digests(plan):
        return [plan.shard_plan(number).digest() for number in range(len(plan.shards))]

    assert digests(plan_of(sizes, seed=seed)) == digests(plan_of(dict(reversed(sizes.items())), seed=seed))


def test_shuffled_order_mixes_directories_and_unshuffled_keeps_keys(plan_of):
    sizes = {f"{name}/{number:02d}.jpg": 10 for name in "ab" for number in range(40)}
    kept = plan_of(sizes, seed=None, shard_size_bytes=10**6)
    assert list(kept.order) == list(range(80))
    mixed = plan_of(sizes, seed=0, shard_size_bytes=10**6)
    assert sorted(mixed.order) == list(range(80))
    assert 10 < sum(number < 40 for number in mixed.order[:40]) < 30
    assert mixed.order != plan_of(sizes, seed=1, shard_size_bytes=10**6).order


def test_adding_files_keeps_the_order_of_the_others(plan_of):
    def order(count):
        plan = plan_of({f"{number}.jpg": 10 for number in range(count)}, shard_size_bytes=10**6)
        return [plan.content.samples.keys[number] for number in plan.order]

    few = order(30)
    assert [key for key in order(60) if key in set(few)] == few


def test_each_split_has_its_own_shards(plan_of):
    sizes = {f"{number}.jpg": 2000 for number in range(60)}
    plan = plan_of(sizes, split=parse_split("val=0.3,train=0.7"))
    names = [shard.name for shard in plan.shards]
    assert names == sorted(names)
    assert {shard.split for shard in plan.shards} == {"train", "val"}
    for shard in plan.shards:
        splits = {
            plan.content.splits.names[plan.content.splits.numbers[n]] for n in plan.order[shard.start : shard.end]
        }
        assert splits == {shard.split}


def test_class_numbers_are_members_in_the_plan_itself(plan_of):
    plan = plan_of({"cat/1.jpg": 5, "ant/1.jpg": 5, "ant/1.ab": 5}, has_classes=True, seed=None).shard_plan(0)
    assert plan.extensions == ("ab", "cls", "jpg", "cls", "jpg")
    inline = [source for source, stamp in zip(plan.sources, plan.stamps, strict=True) if stamp == INLINE]
    assert inline == [b"0", b"1"]


def test_samples_that_do_not_fit_are_listed_with_the_size_that_would_do(plan_of):
    with pytest.raises(OversizeSampleError, match=r"1 sample\(s\)(?s:.*)b: 10752 bytes encoded\n.*--shard-size 11776"):
        plan_of({"a.jpg": 10, "b.jpg": 10_000})
    assert plan_of({"a.jpg": 10, "b.jpg": 10_000}, shard_size_bytes=11_776).shards


def test_sample_that_the_format_cannot_hold_is_listed(plan_of):
    with pytest.raises(SourceError, match="cannot be stored as tar"):
        plan_of({"/".join(["d" * 200] * 25) + "/a.jpg": 10})


def test_plan_of_a_shard_pickles_small(plan_of):
    plan = plan_of({f"{number:06d}.jpg": 10 for number in range(1000)}, shard_size_bytes=10**8)
    unfolded = plan.shard_plan(0)
    data = pickle.dumps(unfolded)
    assert pickle.loads(data) == unfolded
    assert len(data) < 60 * 1000


def test_plan_does_not_depend_on_pythons_hash_seed(plan_of):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from conftest import make_plan; "
        "plan = make_plan({f'{n}.{e}': n for n in range(50) for e in ('jpg', 'txt', 'cls')}); "
        "print([plan.shard_plan(n).digest() for n in range(len(plan.shards))])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script, os.path.dirname(__file__)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1


def test_plan_takes_at_most_300_bytes_a_file_while_it_is_made_and_half_of_that_afterwards(plan_of):
    def memory(num_files):
        sizes = {
            f"class{number % 100:03d}/image{number // 2:08d}.{('jpg', 'json')[number % 2]}": 20_000
            for number in range(num_files)
        }
        tracemalloc.start()
        try:
            plan = plan_of(sizes, shard_size_bytes=100_000_000)
            assert plan.num_files == num_files
            return tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    memory(1000)  # caches are filled once
    (few_after, few_most), (many_after, many_most) = memory(10_000), memory(110_000)
    assert (many_most - few_most) / 100_000 < 300
    assert (many_after - few_after) / 100_000 < 150
