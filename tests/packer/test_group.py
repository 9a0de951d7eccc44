import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.group import CaseCollisions, DottedNames, GroupOptions, KeylessNames, escape_dots, group_files
from packer.labels import classify_samples, split_samples
from packer.plain_names import plain_dot, split_plain
from packer.sources.files import SourceFiles
from packer.splits import OneSplit, SplitByDirectory, parse_split
from shards.errors import DuplicateKeyError, SourceError
from shards.keys import FIRST_DOT, Keyless, is_storable, parse_key_rule, split_name


def files_of(*paths):
    files = SourceFiles()
    for number, path in enumerate(sorted(path if isinstance(path, bytes) else path.encode() for path in paths)):
        files.append(path, number + 1, number)
    return files


def options(key_rule=FIRST_DOT, dotted="error", keyless="error", case_collisions="error"):
    rule = parse_key_rule(key_rule) if isinstance(key_rule, str) else key_rule
    return GroupOptions(
        key_rule=rule,
        dotted=DottedNames(dotted),
        keyless=KeylessNames(keyless),
        case_collisions=CaseCollisions(case_collisions),
    )


def grouped(*paths, **how):
    """Key → extension → path."""
    files = files_of(*paths)
    samples, _ = group_files(files, options(**how))
    return {
        samples.keys[number]: {extension: files.paths[file].decode() for extension, file in samples.members(number)}
        for number in range(len(samples))
    }


def test_files_that_differ_in_extension_are_one_sample():
    assert grouped("b/1.txt", "b/1.JPG", "a.txt") == {
        "a": {"txt": "a.txt"},
        "b/1": {"jpg": "b/1.JPG", "txt": "b/1.txt"},
    }


def test_dots_in_directories_do_not_count():
    assert set(grouped("train.v1/1.png", "train.v1/2.png", "22.0/1.png")) == {"train.v1/1", "train.v1/2", "22.0/1"}


def test_samples_are_found_together_whatever_lies_between_their_files():
    assert grouped("a.jpg", "a.k/x.jpg", "a.txt", "a!.jpg") == {
        "a": {"jpg": "a.jpg", "txt": "a.txt"},
        "a!": {"jpg": "a!.jpg"},
        "a.k/x": {"jpg": "a.k/x.jpg"},
    }


def test_members_are_ordered_by_extension_and_samples_by_key():
    files = files_of("b.Z", "b.a", "B/x.m", "é.m", "a.m")
    samples, _ = group_files(files, options())
    assert samples.keys == ["B/x", "a", "b", "é"]
    assert [extension for extension, _ in samples.members(2)] == ["a", "z"]


def test_compound_extensions_are_refused_unless_allowed():
    with pytest.raises(SourceError, match=r"1 file name\(s\) with several dots(?s:.*)--dotted-names allow"):
        grouped("foo0.left.png", "foo1.png")
    assert grouped("foo0.left.png", "foo0.right.png", dotted="allow") == {
        "foo0": {"left.png": "foo0.left.png", "right.png": "foo0.right.png"}
    }


def test_dots_of_names_can_be_escaped():
    name = "235342 Track 2.0 (Clean 100%).mp3"
    with pytest.raises(SourceError, match="key 235342 Track 2\n"):
        grouped(name)
    with pytest.raises(SourceError, match="no reader would see again"):
        grouped(name, key_rule="last-dot", dotted="allow")
    assert grouped(name, "a.b/x.y", key_rule="last-dot", dotted="escape") == {
        "235342 Track 2%2E0 (Clean 100%25)": {"mp3": name},
        "a.b/x": {"y": "a.b/x.y"},
    }


def test_escaping_under_the_first_dot_rule_lets_no_dots_into_extensions():
    with pytest.raises(SourceError, match=r"key Track 2\n(?s:.*)--key-rule last-dot --dotted-names escape"):
        grouped("Track 2.0 (Clean).mp3", dotted="escape")
    assert grouped("a.b/50%.jpg", dotted="escape") == {"a.b/50%25": {"jpg": "a.b/50%.jpg"}}


def test_pattern_splits_names():
    assert grouped("s1_img.png", "s1_mask.png", key_rule=r"regex:(?P<key>.+)_(?P<extension>img|mask)\.png") == {
        "s1": {"img": "s1_img.png", "mask": "s1_mask.png"}
    }


@pytest.mark.parametrize("key", ["/x", "../x", "a//x", "a/../x"])
def test_pattern_cannot_make_a_key_that_escapes(key):
    pattern = f"regex:.*(?P<key>{key})\\.(?P<extension>jpg)"
    with pytest.raises(SourceError, match="no reader would see again"):
        grouped(f"q{key}.jpg", key_rule=pattern)


def test_all_keyless_files_are_listed_with_advice_or_skipped():
    paths = [f"README{number:02d}" for number in range(25)] + ["a.jpg", "b."]
    with pytest.raises(SourceError) as refusal:
        grouped(*paths)
    text = str(refusal.value)
    assert "26 file(s) give no key" in text
    assert "README00: no-extension" in text
    assert "… and 6 more" in text
    assert "--on-keyless skip" in text
    assert "--key-rule" in text
    samples, skips = group_files(files_of(*paths), options(keyless="skip"))
    assert samples.keys == ["a"]
    assert skips.total == 26


def test_names_that_are_not_utf8_are_listed():
    with pytest.raises(SourceError, match=r"1 file name\(s\) are not UTF-8:\n  caf\\udce9.jpg\n.*convmv"):
        group_files(files_of(b"caf\xe9.jpg", "b.jpg"), options())


@pytest.mark.parametrize(
    "paths", [("A.jpg", "a.jpg"), ("A.jpg", "a.txt"), ("dir/x.jpg", "Dir/x.jpg"), ("e\u0301.jpg", "\u00e9.jpg")]
)
def test_keys_that_some_filesystems_do_not_tell_apart_are_refused(paths):
    with pytest.raises(DuplicateKeyError) as refusal:
        grouped(*paths)
    assert all(path.rpartition(".")[0] in str(refusal.value) for path in paths)
    assert len(grouped(*paths, case_collisions="allow")) == 2


def test_extensions_that_are_equal_in_lower_case_are_refused_with_both_paths():
    with pytest.raises(DuplicateKeyError, match=r"g\.JPEG and g\.jpeg"):
        grouped("g.JPEG", "g.jpeg", "h.jpeg")


def test_same_member_by_a_pattern_is_refused_with_both_paths():
    with pytest.raises(DuplicateKeyError, match=r"a/1\.jpg and b/1\.jpg"):
        grouped("a/1.jpg", "b/1.jpg", key_rule=r"regex:.*/(?P<key>\w+)\.(?P<extension>jpg)")


def labels_of(function, paths, rule):
    files = files_of(*paths)
    samples, _ = group_files(files, options())
    labels = function(samples, files, rule)
    return {key: labels.names[number] for key, number in zip(samples.keys, labels.numbers, strict=True)}, labels.names


def test_top_directories_are_splits():
    found, names = labels_of(split_samples, ["train/c/1.jpg", "val/c/1.jpg"], SplitByDirectory())
    assert found == {"train/c/1": "train", "val/c/1": "val"}
    assert names == ("train", "val")


@pytest.mark.parametrize(
    ("paths", "part"),
    [
        (["train/1.jpg", "2.jpg"], "lie in no split directory:\n  2.jpg"),
        (["tra in/1.jpg"], "cannot be splits"),
        (["train/1.jpg", "Train/2.jpg"], "differ only in case"),
    ],
)
def test_directories_that_cannot_be_splits_are_listed(paths, part):
    with pytest.raises(SourceError, match=part):
        labels_of(split_samples, paths, SplitByDirectory())


def test_split_that_would_be_empty_is_refused():
    with pytest.raises(SourceError, match=r"split\(s\) val would get none of the 1 samples"):
        labels_of(split_samples, ["a.jpg"], parse_split("train=0.999999,val=0.000001"))


def test_adding_files_moves_no_sample_to_another_split():
    rule = parse_split("train=0.7,val=0.3")
    few, _ = labels_of(split_samples, [f"{number}.jpg" for number in range(50)], rule)
    many, _ = labels_of(split_samples, [f"{number}.jpg" for number in range(500)], rule)
    assert {key: many[key] for key in few} == few


def test_class_is_the_first_directory_below_the_split():
    found, names = labels_of(classify_samples, ["cat/a/1.jpg", "Dog/1.jpg"], OneSplit("train"))
    assert found == {"cat/a/1": "cat", "Dog/1": "Dog"}
    assert names == ("Dog", "cat")
    found, names = labels_of(classify_samples, ["train/cat/1.jpg", "val/dog/1.jpg"], SplitByDirectory())
    assert found == {"train/cat/1": "cat", "val/dog/1": "dog"}


def test_files_without_a_class_and_files_named_cls_are_refused():
    with pytest.raises(SourceError, match=r"lie in no class directory:\n  1\.jpg"):
        labels_of(classify_samples, ["1.jpg", "a/2.jpg"], OneSplit("train"))
    with pytest.raises(DuplicateKeyError, match="already have the extension cls"):
        labels_of(classify_samples, ["a/1.cls", "a/1.jpg"], OneSplit("train"))


def test_sample_torn_between_two_classes_is_refused():
    files = files_of("a/1.jpg", "b/1.txt")
    samples, _ = group_files(files, options(key_rule=r"regex:.*/(?P<key>\w+)\.(?P<extension>\w+)"))
    with pytest.raises(SourceError, match="different directories"):
        classify_samples(samples, files, OneSplit("train"))


names = st.text("aAbB.% é_-\n\t\\", min_size=1, max_size=6).filter(
    lambda name: name[0] != "." and name not in {".", ".."}
)
paths = st.lists(st.lists(names, min_size=1, max_size=3).map("/".join), unique=True, max_size=12)


@given(paths, st.sampled_from(["first-dot", "last-dot"]), st.sampled_from(["error", "allow", "escape"]))
def test_every_file_is_one_member_or_skipped_or_refused(found, rule, dotted):
    files = files_of(*found)
    try:
        samples, skips = group_files(
            files, options(key_rule=rule, dotted=dotted, keyless="skip", case_collisions="allow")
        )
    except (SourceError, DuplicateKeyError):
        return
    used = list(samples.file_numbers)
    assert sorted(used) == sorted(set(used))
    assert len(used) + skips.total == len(files)
    assert samples.keys == sorted(set(samples.keys))
    for number, key in enumerate(samples.keys):
        extensions = [extension for extension, _ in samples.members(number)]
        assert extensions == sorted(set(extensions))
        assert extensions
        assert all(is_storable(key, extension) for extension in extensions)


@given(st.text())
def test_escaping_dots_is_reversible(key):
    directory, slash, base = escape_dots(key).rpartition("/")
    assert "." not in base
    assert f"{directory}{slash}{base.replace('%2E', '.').replace('%25', '%')}" == key


def test_collision_does_not_reach_the_files_that_follow():
    with pytest.raises(DuplicateKeyError, match=r"2 key\(s\)") as refusal:
        grouped("A.jpg", "a.jpg", "a.txt", "b.jpg")
    assert "a.jpg and A.*" in str(refusal.value)
    assert "a.txt and A.*" in str(refusal.value)


@given(
    st.lists(st.text("aA.é/_", min_size=1, max_size=9), unique=True),
    st.sampled_from(["first-dot", "last-dot"]),
)
def test_quick_way_through_usual_names_gives_what_the_rule_says(found, rule):
    for path in [*found, *(f"x/{name}.jpg" for name in found), "__MACOSX/a.jpg", "/a.jpg", "./a.jpg", "a/__MACOSX/b.c"]:
        dot = plain_dot(path.encode())
        named = split_name(path, parse_key_rule(rule))
        if dot >= 0:
            assert not isinstance(named, Keyless)
            assert named == (path[:dot], path[dot + 1 :].lower())
            assert is_storable(*named) or not {"", ".", ".."}.isdisjoint(path.split("/"))


@given(st.lists(st.text("aA.é/_%\n", min_size=1, max_size=9), min_size=1, max_size=6))
def test_many_names_are_plain_when_each_of_them_is(found):
    paths = [path.encode() for path in found]
    dots = [plain_dot(path) for path in paths]
    expected = [(path[:dot], path[dot + 1 :]) for path, dot in zip(found, dots, strict=True)]
    assert split_plain(paths) == (expected if all(dot >= 0 for dot in dots) else None)


@pytest.mark.parametrize("odd", [[], ["00000.tar.gz"], ["05000.x.y"], ["04096_é.jpg"], ["09999.tar.gz"]])
def test_files_beside_odd_ones_are_grouped_as_without_them(odd):
    """Files are taken some thousands at a time; neither the seams nor a span with an odd name shall show."""
    names = [f"{number:05d}.{ending}" for number in range(10_000) for ending in ("JPG", "txt", "json")[: number % 4]]
    files = files_of(*names, *odd)
    samples, _ = group_files(files, options(dotted=DottedNames.ALLOW))
    expected = {}
    for number, path in enumerate(files.paths):
        key, extension = split_name(path.decode(), FIRST_DOT)
        expected.setdefault(key, {})[extension] = number
    assert list(samples.keys) == sorted(expected)
    for number, key in enumerate(samples.keys):
        assert list(samples.members(number)) == sorted(expected[key].items())
