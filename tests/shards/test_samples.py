import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.errors import SampleGroupError
from shards.keys import LAST_DOT, KeylessReason
from shards.samples import KEPT_KEYLESS_NAMES, GroupedSample, SampleGrouper, group_samples

EXTENSIONS = st.lists(st.sampled_from(["jpg", "txt", "seg.png", "cls", "json"]), min_size=1, unique=True)


def place(names: list[str]) -> list[tuple[str, int, int]]:
    return [(name, 512 * number, number) for number, name in enumerate(names)]


@given(st.lists(EXTENSIONS, max_size=6))
def test_neighbours_with_one_key_become_one_sample(extensions: list[list[str]]) -> None:
    names = [(f"dir.v1/{number:03d}", extension) for number, found in enumerate(extensions) for extension in found]
    samples = list(group_samples(place([f"{key}.{extension}" for key, extension in names]), "s.tar"))
    assert [(sample.key, extension) for sample in samples for extension, _ in sample.members] == names
    assert [payload for sample in samples for _, payload in sample.members] == list(range(len(names)))
    assert [sample.offset for sample in samples] == [512 * sample.members[0][1] for sample in samples]


def test_nothing_gives_nothing() -> None:
    assert list(group_samples([], "s.tar")) == []


def test_key_that_re_appears_is_refused_also_far_apart() -> None:
    names = [f"{number}.txt" for number in range(50)]
    samples = group_samples(place([*names, "0.jpg"]), "s.tar")
    got: list[GroupedSample[int]] = []
    with pytest.raises(SampleGroupError, match=r"s\.tar at byte offset 25600: key re-appears: 0 ") as caught:
        got.extend(samples)
    assert caught.value.offset == 25600
    assert [sample.key for sample in got] == [str(number) for number in range(49)]


def test_extensions_that_collide_in_lower_case_are_both_named() -> None:
    with pytest.raises(SampleGroupError, match=r"extension twice: g jpeg, from the members g\.JPEG and g\.jpeg"):
        list(group_samples(place(["g.JPEG", "g.jpeg"]), "s.tar"))


def test_same_name_twice_is_refused() -> None:
    with pytest.raises(SampleGroupError, match="extension twice"):
        list(group_samples(place(["g.txt", "g.txt"]), "s.tar"))


def test_keyless_members_are_counted_and_do_not_end_a_sample() -> None:
    grouper: SampleGrouper[int] = SampleGrouper("s.tar")
    for name, offset, payload in place(["a.txt", "README", ".hidden", "._a.txt", "a.jpg", "b."]):
        assert grouper.add(name, offset, payload) is None
    assert grouper.finish() == GroupedSample("a", 0, (("txt", 0), ("jpg", 4)))
    assert grouper.num_keyless == 4
    assert grouper.keyless[KeylessReason.HIDDEN] == 1
    assert grouper.keyless_names == ["README", ".hidden", "._a.txt", "b."]


def test_members_but_no_sample_is_refused_with_reasons_and_names() -> None:
    names = [f"file{number}" for number in range(KEPT_KEYLESS_NAMES + 5)]
    with pytest.raises(SampleGroupError, match=r"members but no sample \(25 no-extension\): file0, file1") as caught:
        list(group_samples(place(names), "s.tar"))
    assert "file19" in str(caught.value)
    assert "file20" not in str(caught.value)


def test_only_members_without_data_is_refused_too() -> None:
    grouper: SampleGrouper[int] = SampleGrouper("s.tar")
    grouper.num_others = 40
    with pytest.raises(SampleGroupError, match="40 directories, links or devices"):
        grouper.finish()


def test_another_rule_groups_otherwise() -> None:
    names = place(["a.seg.png", "a.txt"])
    assert [sample.key for sample in group_samples(names, "s.tar")] == ["a"]
    assert [sample.key for sample in group_samples(names, "s.tar", LAST_DOT)] == ["a.seg", "a"]


def test_names_in_messages_are_printable() -> None:
    with pytest.raises(SampleGroupError) as caught:
        list(group_samples(place(["\udcff\n.txt", "\udcff\n.TXT"]), "s\udcfe.tar"))
    assert str(caught.value).isprintable()
