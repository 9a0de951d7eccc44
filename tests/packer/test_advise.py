import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.advise import Topic, advise
from packer.measured import ReadingTime, Room
from packer.mixing import expected_distinct, mean_distinct, measure_mixing
from packer.plan_report import PlanReport
from packer.plan_text import COLUMNS, render_plan
from packer.propose import LEAST_BYTES, MOST_BYTES, Cluster, count_shards, fit_count, propose_shards, wanted_count
from packer.sources.files import SkipReason, Skips
from packer.splits import parse_split
from packer.survey import SIZE_BOUNDS, bin_sizes, find_missing, survey_plan
from shards.errors import printable
from shards.formats import FORMATS
from shards.strict_json import render_json

CLUSTER = Cluster(num_nodes=2, num_gpus=2, num_workers=2)
OTHERS = {name: [(other, FORMATS[other].sample_size) for other in FORMATS if other != name] for name in FORMATS}


def survey(plan, skips=None):
    return survey_plan(plan, skips or Skips(), OTHERS[plan.options.format_name])


def topics(plan, **known):
    return {found.topic for found in advise(survey(plan), **known)}


sources = st.dictionaries(
    st.builds(
        "{}{}.{}".format,
        st.sampled_from(["a/", "b/", "b/c/", "", "é/"]),
        st.integers(0, 30),
        st.sampled_from(["jpg", "txt", "cls"]),
    ),
    st.integers(0, 3000),
    min_size=1,
    max_size=40,
)


@given(sources, st.sampled_from(["tar", "tfrecord"]), st.integers(12_000, 40_000))
def test_facts_add_up_to_the_plan(plan_of, sizes, format_name, shard_size_bytes):
    plan = plan_of(sizes, format_name=format_name, shard_size_bytes=shard_size_bytes)
    facts = survey(plan)
    assert facts.num_files == len(sizes) == sum(found.num_present for found in facts.extensions)
    assert facts.member_bytes == sum(sizes.values()) == sum(found.size_bytes for found in facts.size_bins)
    assert facts.member_bytes + facts.overhead_bytes == plan.size_bytes
    assert 0 < facts.overhead_share <= 1
    assert all(found.num_present + found.num_missing == plan.num_samples for found in facts.extensions)
    assert sum(kind.num_samples for kind in facts.kinds) == plan.num_samples
    assert sum(split.num_shards for split in facts.splits) == len(plan.shards)
    assert facts.space_bytes > plan.size_bytes
    # with so few samples the other format is not estimated but computed
    [(other, estimate)] = facts.other_sizes
    real = plan_of(sizes, format_name=other, shard_size_bytes=10**9)
    assert estimate == real.size_bytes - real.options.end_marker_bytes


@given(sources, st.sampled_from(["tar", "tfrecord"]), st.booleans(), st.booleans())
def test_text_fits_80_columns_and_says_nothing_twice(plan_of, sizes, format_name, is_shuffled, has_cluster):
    plan = plan_of(sizes, format_name=format_name, shard_size_bytes=12_000, seed=0 if is_shuffled else None)
    skips = Skips()
    skips.add(SkipReason.HIDDEN, b"\xff.hidden\x1b")
    report = PlanReport(
        source="somewhere/\x1bdata",
        facts=survey(plan, skips),
        room=Room("out", 1000),
        reading=ReadingTime(num_files=3, seconds_a_file=0.01, one_by_one_seconds=12345.0, num_readers=32),
        proposal=propose_shards(plan, CLUSTER, FORMATS[format_name].sample_size) if has_cluster else None,
    )
    text = render_plan(report)
    assert all(len(line) <= COLUMNS for line in text.splitlines())
    assert printable(text.replace("\n", "")) == text.replace("\n", "")
    assert "\\x1b" in text
    words = " ".join(text.split())
    assert all(words.count(" ".join(found.text.split())) == 1 for found in report.advice)
    assert len({(found.topic, found.text) for found in report.advice}) == len(report.advice)
    as_json = json.loads(render_json(report.as_json()))
    assert as_json["num_samples"] == plan.num_samples
    assert [found["topic"] for found in as_json["advice"]] == [found.topic.value for found in report.advice]
    assert (as_json["proposal"] is not None) == has_cluster


def test_plan_that_needs_nothing_gets_no_advice(plan_of):
    plan = plan_of({f"{name}/{n}.jpg": 100_000 for name in "ab" for n in range(50)}, shard_size_bytes=10**6)
    assert topics(plan, room=Room("out", 10**9)) == set()


def test_sorted_classes_are_told_and_shuffled_ones_are_not(plan_of):
    sizes = {f"c{c:02d}/{n:02d}.jpg": 100_000 for c in range(20) for n in range(20)}
    sorted_plan = plan_of(sizes, seed=None, has_classes=True, shard_size_bytes=10**7)
    assert Topic.ORDER in topics(sorted_plan)
    assert Topic.ORDER not in topics(plan_of(sizes, seed=0, has_classes=True, shard_size_bytes=10**7))
    assert "leave out --no-shuffle" in next(f.text for f in advise(survey(sorted_plan)) if f.topic is Topic.ORDER)


def test_tiny_members_are_told_with_what_merging_saves(plan_of):
    plan = plan_of({f"{n}.{e}": 5 for n in range(50) for e in ("cls", "txt", "json")}, shard_size_bytes=10**6)
    found = {advice.topic: advice.text for advice in advise(survey(plan))}
    assert "cls, json, txt" in found[Topic.TINY_MEMBERS]
    assert "100.0 KiB" in found[Topic.TINY_MEMBERS]
    assert "--format tfrecord" in found[Topic.OVERHEAD]
    assert not {Topic.TINY_MEMBERS, Topic.OVERHEAD} & topics(plan_of({"1.cls": 5, "1.txt": 5}, format_name="tfrecord"))


def test_incomplete_samples_are_those_that_lack_what_a_more_frequent_kind_has(plan_of):
    sizes = {f"{n}.{e}": 9000 for n in range(9) for e in ("jpg", "txt")} | {"x.jpg": 9000, "y.png": 9000, "y.txt": 1}
    facts = survey(plan_of(sizes, shard_size_bytes=10**6))
    assert {kind.keys: kind.missing for kind in facts.kinds if kind.missing} == {("x",): ("txt",)}
    [found] = [advice for advice in advise(facts) if advice.topic is Topic.INCOMPLETE]
    assert "1 sample lacks txt" in found.text
    assert "--require txt would refuse 1 sample, with --on-missing skip leave it out" in found.text
    assert not [advice for advice in advise(facts, required=("txt",)) if advice.topic is Topic.INCOMPLETE]


def test_members_that_most_samples_lack_are_not_to_be_required(plan_of):
    sizes = {f"a{n}.ogg": 9000 for n in range(20)} | {f"b{n}.{e}": 9000 for n in range(5) for e in ("dat", "png")}
    facts = survey(plan_of({**sizes, "x.png": 9000}, shard_size_bytes=10**6))
    [found] = [advice for advice in advise(facts) if advice.topic is Topic.INCOMPLETE]
    assert "1 sample lacks dat" in found.text
    assert "--require" not in found.text


def test_full_destination_is_told_first(plan_of):
    facts = survey(plan_of({f"{n}.cls": 5 for n in range(9)}))
    assert advise(facts, room=Room("out", facts.space_bytes))[0].topic is not Topic.SPACE
    assert advise(facts, room=Room("out", facts.space_bytes - 1))[0].topic is Topic.SPACE


def test_much_that_is_left_out_and_big_files_are_told(plan_of):
    skips = Skips()
    for number in range(5):
        skips.add(SkipReason.KEYLESS, b"%d" % number)
    plan = plan_of({f"{n}.bin": 10**9 for n in range(9)}, shard_size_bytes=10**10)
    found = {advice.topic: advice.text for advice in advise(survey(plan, skips))}
    assert "--key-rule" in found[Topic.LEFT_OUT]
    assert "packing gains little" in found[Topic.BIG_FILES]


def test_empty_files_are_told_with_the_first_names(plan_of):
    plan = plan_of({f"{n}.jpg": 0 if n < 5 else 100_000 for n in range(9)}, shard_size_bytes=10**7)
    [found] = advise(survey(plan))
    assert found.topic is Topic.EMPTY_FILES
    assert found.text == "5 files are empty, as after a failed copy (0.jpg, 1.jpg, 2.jpg, …)"


@given(st.lists(st.integers(0, 2**40), max_size=50))
def test_every_size_is_in_its_bin(sizes):
    bins = bin_sizes(sizes)
    for found in bins:
        inside = [
            size
            for size in sizes
            if found.from_bytes <= size and (found.below_bytes is None or size < found.below_bytes)
        ]
        assert (found.num_files, found.size_bytes) == (len(inside), sum(inside))
    assert sum(found.num_files for found in bins) == len(sizes)
    assert not bins or (bins[0].num_files and bins[-1].num_files)
    assert list(SIZE_BOUNDS) == sorted(set(SIZE_BOUNDS))


@pytest.mark.parametrize(("kind", "missing"), [("a", "b"), ("ab", ""), ("c", ""), ("bx", ""), ("", "ab"), ("y", "xz")])
def test_missing_is_what_a_more_frequent_superset_has(kind, missing):
    assert find_missing(frozenset(kind), [frozenset("ab"), frozenset("xyz")]) == frozenset(missing)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60), st.integers(1, 40), st.sampled_from([0, 1024]))
def test_proposed_size_gives_the_proposed_count(sizes, wanted, end_marker_bytes):
    size_bytes, count = fit_count(sizes, wanted, end_marker_bytes)
    shards, used = 0, None
    for size in sizes:
        if used is None or used + size > size_bytes - end_marker_bytes:
            shards, used = shards + 1, 0
        used += size
    assert shards == count <= max(wanted, 1)
    assert size_bytes >= max(sizes) + end_marker_bytes
    smaller = size_bytes - 4096
    if smaller >= max(sizes) + end_marker_bytes:
        ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
        assert count_shards(ends, smaller - end_marker_bytes) > wanted


@given(st.integers(1, 10**15), st.integers(1, 10**9), st.integers(1, 10**4))
def test_wanted_count_is_a_multiple_of_the_readers_within_the_sizes(size_bytes, num_samples, num_readers):
    wanted = wanted_count(size_bytes, num_samples, num_readers)
    assert 1 <= wanted <= max(num_samples, 1)
    if wanted < num_samples:
        assert wanted % num_readers == 0
        assert size_bytes / wanted <= MOST_BYTES
        if wanted > num_readers and size_bytes <= 4 * num_readers * MOST_BYTES:
            assert size_bytes / wanted >= LEAST_BYTES or size_bytes / (wanted - num_readers) > MOST_BYTES


def test_proposal_is_what_a_build_with_that_size_makes(plan_of):
    sizes = {f"{n:04d}.jpg": 100 + n * 37 % 9000 for n in range(400)}
    plan = plan_of(sizes, shard_size_bytes=10**8)
    proposal = propose_shards(plan, CLUSTER, FORMATS["tar"].sample_size)
    assert proposal.is_even
    assert proposal.num_shards == 8
    assert len(plan_of(sizes, shard_size_bytes=proposal.shard_size_bytes).shards) == 8
    assert Topic.SHARDS in topics(plan, proposal=proposal)
    few = plan_of({"a.jpg": 1, "b.jpg": 1}, shard_size_bytes=10**6)
    assert not propose_shards(few, CLUSTER, FORMATS["tar"].sample_size).is_even


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 100))
def test_expected_number_of_groups_is_that_of_drawing(counts, window):
    expected = expected_distinct(counts, window)
    assert expected <= min(len(counts), window) + 1e-6
    assert expected_distinct(counts, 1) == pytest.approx(1)
    assert expected_distinct(counts, sum(counts)) == pytest.approx(len(counts))


def test_windows_are_counted_one_after_another():
    assert mean_distinct([1, 1, 1, 2, 2, 2], 3) == 1
    assert mean_distinct([1, 2, 3, 1, 2, 3, 9], 3) == 3
    assert mean_distinct([1, 2, 2], 10) == 2
    assert mean_distinct([], 10) == 0


def test_mixing_is_about_one_when_shuffled_and_low_when_sorted(plan_of):
    sizes = {f"c{c:03d}/{n:02d}.jpg": 10 for c in range(100) for n in range(30)}
    for how in ({"has_classes": True}, {"has_classes": False}):
        mixed = measure_mixing(plan_of(sizes, seed=0, shard_size_bytes=10**7, **how))
        assert 0.97 < mixed.quality < 1.03
        assert mixed.unshuffled_quality < 0.15
        assert measure_mixing(plan_of(sizes, seed=None, shard_size_bytes=10**7, **how)).quality < 0.15
        assert mixed.num_groups == 100


def test_mixing_looks_below_the_directory_that_all_share(plan_of):
    sizes = {f"data/train/{c}/{n}.jpg": 10 for c in "ab" for n in range(30)}
    assert measure_mixing(plan_of(sizes)).num_groups == 2
    assert measure_mixing(plan_of({f"data/{n}.jpg": 10 for n in range(30)})) is None
    by_directory = plan_of(
        {f"{s}/{c}/{n}.jpg": 10 for s in ("train", "val") for c in "ab" for n in range(9)}, split=parse_split("by-dir")
    )
    assert measure_mixing(by_directory).num_groups == 2


def test_counts_are_readable(plan_of):
    text = render_plan(
        PlanReport(source="s", facts=survey(plan_of({f"{n}.jpg": 10 for n in range(1234)}, shard_size_bytes=10**7)))
    )
    assert re.search(r"samples +1,234 from 1,234 files of 12\.1 KiB", text)
