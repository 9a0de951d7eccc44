import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.splits import OneSplit, SplitByDirectory, SplitByShare, keyed_hash, parse_split


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("train", OneSplit("train")),
        ("by-dir", SplitByDirectory()),
        ("train=0.9,val=0.1", SplitByShare((("train", 0.9), ("val", 0.1)))),
        ("a=1", SplitByShare((("a", 1.0),))),
    ],
)
def test_split_text_is_understood_and_given_back(text, rule):
    assert parse_split(text) == rule
    assert rule.text == text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "cannot name a split"),
        ("../up", "cannot name a split"),
        (".hidden", "cannot name a split"),
        ("a/b", "cannot name a split"),
        ("x" * 65, "cannot name a split"),
        ("train=0.9,val=0.2", "sum to 1.1"),
        ("train=0.9,Train=0.1", "named twice"),
        ("train=much", "not a share"),
        ("train=1.5,val=-0.5", "more than 0"),
        ("train=nan", "more than 0"),
        ("train=0.5,=0.5", "cannot name a split"),
    ],
)
def test_bad_split_text_is_refused(text, part):
    with pytest.raises(ValueError, match=part):
        parse_split(text)


def test_hash_is_the_same_everywhere_and_for_ever():
    # golden values: a change would move samples to other splits and shards
    assert keyed_hash("a/b", 0, purpose=b"shuffle") == 9383035335091927216
    assert keyed_hash("a/b", 1, purpose=b"shuffle") == 6282559407309208132
    assert keyed_hash("a/b", 0, purpose=b"split") == 4958258878022430232


@given(st.lists(st.text(min_size=1), unique=True, max_size=50), st.integers(0, 2**63))
def test_split_of_a_key_depends_on_nothing_else(keys, seed):
    rule = parse_split("train=0.8,val=0.1,test=0.1", seed=seed)
    assert isinstance(rule, SplitByShare)
    alone = {key: rule.number_of(key) for key in keys}
    assert alone == {key: rule.number_of(key) for key in reversed(keys)}
    assert set(alone.values()) <= {0, 1, 2}


def test_shares_are_about_what_was_asked_for():
    rule = parse_split("train=0.9,val=0.1")
    assert isinstance(rule, SplitByShare)
    num_val = sum(rule.number_of(f"sample{number}") for number in range(10_000))
    assert 900 < num_val < 1100
