import json
import pickle
import re
import tarfile
import timeit
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.errors import KeyGrammarError
from shards.keys import (
    FIRST_DOT,
    LAST_DOT,
    Keyless,
    KeylessReason,
    SampleName,
    is_storable,
    member_name,
    parse_key_rule,
    readers_agree,
    split_name,
)

SHARED_CASES = Path(__file__).parents[3] / "shared" / "cases"
PARTS = st.text(st.sampled_from("ab.B/_-é \udcff"), max_size=12)


@pytest.mark.parametrize(
    ("name", "key", "extension"),
    [
        ("a.jpg", "a", "jpg"),
        ("b.seg.png", "b", "seg.png"),
        ("foo0.left.png", "foo0", "left.png"),
        ("f.tar.gz", "f", "tar.gz"),
        ("B.JPG", "B", "jpg"),
        ("g.JPEG", "g", "jpeg"),
        ("./c.jpg", "c", "jpg"),
        ("/myfile.patch.jpeg", "myfile", "patch.jpeg"),
        ("/data/icons/add.png", "data/icons/add", "png"),
        (".//.//./c.jpg", "c", "jpg"),
        ("train.v1/0001.jpg", "train.v1/0001", "jpg"),
        ("some/22.0/1.1.png", "some/22.0/1", "1.png"),
        (".hidden/a.jpg", ".hidden/a", "jpg"),
        ("../a.jpg", "../a", "jpg"),
        ("235342 Track 2.0 (Clean Version).mp3", "235342 Track 2", "0 (clean version).mp3"),
        ("{000..001}.txt", "{000", ".001}.txt"),
        ("y..z", "y", ".z"),
        ("new\nline.txt", "new\nline", "txt"),
        ("back\\slash.txt", "back\\slash", "txt"),
        ("\udcff\udcfe.T\udcffT", "\udcff\udcfe", "t\udcfft"),
        ("日本語/画像.PNG", "日本語/画像", "png"),
        ("n" * 251 + ".txt", "n" * 251, "txt"),
        ("my__MACOSX/a.jpg", "my__MACOSX/a", "jpg"),
        ("__MACOSX.jpg", "__MACOSX", "jpg"),
    ],
)
def test_first_dot_of_the_base_name_splits(name: str, key: str, extension: str) -> None:
    assert split_name(name) == SampleName(key, extension)


@pytest.mark.parametrize("rule", [FIRST_DOT, LAST_DOT, parse_key_rule("regex:(?P<key>.*)[.](?P<extension>.*)")])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".hidden.jpg", "hidden"),
        ("dir/.DS_Store", "hidden"),
        ("dir/..", "hidden"),
        ("..", "hidden"),
        ("._b.jpg", "apple-double"),
        ("dir/._a.jpg", "apple-double"),
        ("__MACOSX/dir/a.jpg", "apple-double"),
        ("x/__MACOSX/a.jpg", "apple-double"),
        ("", "empty-name"),
        ("./", "empty-name"),
        ("dir.v1/", "empty-name"),
        ("a.", "empty-extension"),
    ],
)
def test_names_that_belong_to_no_sample_say_why_under_every_rule(rule, name: str, reason: str) -> None:
    assert split_name(name, rule) == Keyless(KeylessReason(reason))


@pytest.mark.parametrize("name", ["noext", "dir/noext", "Makefile", "dir.v2/README"])
def test_a_base_name_without_a_dot_has_no_extension(name: str) -> None:
    assert split_name(name) == split_name(name, LAST_DOT) == Keyless(KeylessReason.NO_EXTENSION)


def test_composed_and_decomposed_letters_are_two_keys() -> None:
    assert split_name("\u00e9.txt") != split_name("e\u0301.txt")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("22.0/1.1.png", SampleName("22.0/1.1", "png")),
        ("235342 Track 2.0 (Clean Version).mp3", SampleName("235342 Track 2.0 (Clean Version)", "mp3")),
        ("y..z", SampleName("y.", "z")),
        ("a.JPG", SampleName("a", "jpg")),
        ("a.b.", Keyless(KeylessReason.EMPTY_EXTENSION)),
    ],
)
def test_last_dot_rule(name: str, expected: object) -> None:
    assert split_name(name, LAST_DOT) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("./images/0001_left.PNG", SampleName("0001", "left.png")),
        ("images/readme", Keyless(KeylessReason.RULE_MISMATCH)),
        ("images/_left.png", Keyless(KeylessReason.EMPTY_KEY)),
        ("images/0001_", Keyless(KeylessReason.EMPTY_EXTENSION)),
    ],
)
def test_a_regular_expression_must_match_the_whole_name(name: str, expected: object) -> None:
    rule = parse_key_rule(r"regex:images/(?P<key>[0-9]*)_(?P<extension>.*)")
    assert split_name(name, rule) == expected


def test_an_optional_group_that_took_no_part_is_empty() -> None:
    rule = parse_key_rule("regex:(?P<key>[a-z]+)(:(?P<extension>.+))?")
    assert split_name("abc", rule) == Keyless(KeylessReason.EMPTY_EXTENSION)


@pytest.mark.parametrize("text", ["first-dot", "last-dot", r"regex:(?P<key>.+)-(?P<extension>[^.]+)[.]txt"])
def test_a_rule_gives_its_text_back_and_travels_to_workers(text: str) -> None:
    rule = parse_key_rule(text)
    assert rule.text == text
    assert pickle.loads(pickle.dumps(rule)) == parse_key_rule(rule.text) == rule
    assert split_name("a.b-c.txt", pickle.loads(pickle.dumps(rule))) == split_name("a.b-c.txt", rule)


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("", "first-dot"),
        ("First-Dot", "unknown key rule"),
        ("regex:(", "not a regular expression"),
        ("regex:" + "(" * 5000 + ")" * 5000, "not a regular expression"),
        ("regex:(?P<key>.)", "(?P<extension>…)"),
        ("regex:.*", "(?P<key>…) and (?P<extension>…)"),
        ("regex:", "(?P<key>…)"),
    ],
)
def test_an_unusable_rule_is_refused(text: str, mentions: str) -> None:
    with pytest.raises(KeyGrammarError, match=re.escape(mentions)):
        parse_key_rule(text)


@pytest.mark.parametrize(
    ("name", "agree"),
    [("a.jpg", True), ("a.b.jpg", False), ("d.v1/a.jpg", True), ("noext", True), ("._a.jpg", True), ("a..b", False)],
)
def test_readers_that_split_at_different_dots_agree_on_one_dot_only(name: str, agree: bool) -> None:
    assert readers_agree(name) is agree


@pytest.mark.parametrize(
    ("key", "extension", "storable"),
    [
        ("a", "jpg", True),
        ("d.v1/a", "seg.png", True),
        ("a.b", "jpg", False),
        ("/a", "jpg", False),
        ("./a", "jpg", False),
        ("", "jpg", False),
        ("d/", "jpg", False),
        ("a", "JPG", False),
        ("a", "b/c", False),
        ("._a", "jpg", False),
        ("a\0", "jpg", False),
        ("a", "jp\0g", False),
        ("a", "", False),
        ("\udcff", "txt", True),
    ],
)
def test_a_key_is_storable_when_its_name_gives_it_back(key: str, extension: str, storable: bool) -> None:
    assert is_storable(key, extension) is storable


@given(PARTS)
def test_every_name_has_a_result_and_what_was_split_joins_again(name: str) -> None:
    for rule in (FIRST_DOT, LAST_DOT):
        result = split_name(name, rule)
        if isinstance(result, SampleName):
            stripped = name
            while stripped.startswith(("/", "./")):
                stripped = stripped.removeprefix("/") if stripped[0] == "/" else stripped[2:]
            assert member_name(result.key, result.extension).lower() == stripped.lower()
            assert result.extension == result.extension.lower() != ""
            assert not result.key.startswith("/")


@given(PARTS)
def test_a_split_name_is_storable_and_splits_the_same_again(name: str) -> None:
    result = split_name(name)
    if isinstance(result, SampleName):
        assert is_storable(*result)
        assert split_name(member_name(*result)) == result


@pytest.mark.skipif(not SHARED_CASES.is_dir(), reason="needs the folder of shared cases beside the repository")
def test_names_of_the_shared_cases() -> None:
    cases = {case["id"]: case for case in json.loads((SHARED_CASES / "cases.json").read_text())}
    for case_id in ("names-legal", "dotted-directory", "names-keyless", "names-bytes", "icons-dotslash"):
        case = cases[case_id]
        with tarfile.open(SHARED_CASES / case["file"]) as archive:
            names = [member.name for member in archive if member.isfile()]
        results = [split_name(name) for name in names]
        keys = list(dict.fromkeys(result.key for result in results if isinstance(result, SampleName)))
        keyless = [result for result in results if isinstance(result, Keyless)]
        assert len(keys) == case["expect"]["num_samples"], case_id
        assert len(keyless) == case["expect"].get("num_keyless", 0), case_id
        if "samples" in case["expect"]:
            assert sorted(keys) == sorted(key for key, _ in case["expect"]["samples"])


def test_splitting_takes_about_a_microsecond() -> None:
    best = min(timeit.repeat(lambda: split_name("n01440764/n01440764_10026.JPEG"), number=20_000, repeat=7)) / 20_000
    assert best < 5e-6  # 0.6e-6 on an idle core; the margin is for slow and busy machines
