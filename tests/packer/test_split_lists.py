import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.checks import Checks, UnlistedSamples
from packer.group import CaseCollisions, DottedNames, GroupOptions, KeylessNames, group_files
from packer.sources.files import SkipReason, Skips, SourceFiles
from packer.split_lists import is_split_list, parse_split_lists, split_by_list
from shards.errors import DuplicateKeyError, SourceError
from shards.keys import FIRST_DOT

GROUPING = GroupOptions(
    key_rule=FIRST_DOT, dotted=DottedNames.ERROR, keyless=KeylessNames.ERROR, case_collisions=CaseCollisions.ERROR
)
PATHS = [f"d/{n}.{e}" for n in "abc" for e in ("jpg", "txt")]


def rule_of(text, **lists):
    return parse_split_lists(text, lists.__getitem__)


def split(rule, on_unlisted="error"):
    files = SourceFiles()
    for path in PATHS:
        files.append(path.encode(), 1, 1)
    samples, _ = group_files(files, GROUPING)
    skips = Skips()
    kept, labels = split_by_list(samples, files, rule, Checks(unlisted=UnlistedSamples(on_unlisted)), skips)
    return {key: labels.names[n] for key, n in zip(kept.keys, labels.numbers, strict=True)}, skips


EXPECTED = {"d/a": "train", "d/b": "val", "d/c": "train"}


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        ("@table", {"table": "d/a\ttrain\nd/b\tval\nd/c\ttrain\n"}),
        ("@table", {"table": "\ufeffd/c\ttrain\r\n\r\n./d/b\tval\r\nd/a\ttrain"}),
        ("train=@one,val=@two", {"one": "d/a\nd/c\n", "two": "d/b\n"}),
        ("train=@one,val=@two", {"one": "./d/a.jpg\nd/a.txt\nd/a\nd/c.txt", "two": "d/b.jpg\n"}),
    ],
)
def test_lists_name_samples_by_key_or_by_file(text, lists):
    assert is_split_list(text)
    assert split(rule_of(text, **lists))[0] == EXPECTED


def test_what_is_recorded_depends_on_what_the_lists_say_alone():
    one = rule_of("@t", t="d/a\ttrain\nd/b\tval\nd/c\ttrain\n")
    assert one.text == rule_of("val=@v,train=@x", v="d/b", x="d/c\nd/a\nd/a").text
    assert one.text.startswith("list:")
    assert one.text != rule_of("@t", t="d/a\ttrain\nd/b\tval\nd/c\tval\n").text


def test_sample_in_two_splits_is_refused_also_when_named_by_its_files():
    for val in ("d/a", "d/a.txt"):
        with pytest.raises(DuplicateKeyError, match=r"1 sample\(s\) are listed for several splits:\n  d/a: train, val"):
            split(rule_of("train=@t,val=@v", t="d/a\nd/b\nd/c", v=val))


def test_lines_that_name_nothing_are_listed():
    with pytest.raises(SourceError, match=r"2 line\(s\)(?s:.*)\n  d/x\n  d/y.jpg\n"):
        split(rule_of("train=@t", t="d/a\nd/b\nd/c\nd/x\nd/y.jpg"))


def test_samples_in_no_list_are_an_error_or_counted():
    rule = rule_of("train=@t", t="d/a")
    with pytest.raises(SourceError, match=r"2 of 3 samples are in no list(?s:.*)  d/b\n  d/c\n.*--on-unlisted skip"):
        split(rule)
    found, skips = split(rule, "skip")
    assert found == {"d/a": "train"}
    assert skips.counts == {SkipReason.UNLISTED: 2}
    assert skips.names == {SkipReason.UNLISTED: ["d/b", "d/c"]}


@pytest.mark.parametrize(
    ("text", "lists", "part"),
    [
        ("@t", {"t": "d/a train\n"}, "line 1 of 't' has no tab"),
        ("@t", {"t": "d/a\ttrain\n\nd/b\t../up\n"}, "line 3 of 't': .* cannot name a split"),
        ("train=@t,0.1", {"t": ""}, "is no list"),
        ("train=@", {}, "is no list"),
        ("a b=@t", {"t": ""}, "cannot name a split"),
        ("train=@t,Train=@v", {"t": "x", "v": "y"}, "differ only in case"),
    ],
)
def test_bad_lists_are_refused(text, lists, part):
    with pytest.raises(ValueError, match=part):
        rule_of(text, **lists)


def test_empty_lists_are_refused():
    with pytest.raises(SourceError, match="3 of 3 samples are in no list"):
        split(rule_of("train=@t", t="\n"), "skip")


@given(st.dictionaries(st.sampled_from(["d/a", "d/b", "d/c"]), st.sampled_from(["x", "y"]), min_size=3), st.randoms())
def test_order_of_lines_changes_nothing(wanted, random):
    lines = [f"{key}\t{name}" for key, name in wanted.items()]
    shuffled = random.sample(lines, len(lines))
    assert split(rule_of("@t", t="\n".join(lines)))[0] == split(rule_of("@t", t="\n".join(shuffled)))[0] == wanted
