import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.checks import (
    Checks,
    ManyExtensions,
    MissingMembers,
    check_extensions,
    check_unreadable,
    drop_samples,
    parse_required,
    parse_skip_budget,
    require_members,
)
from packer.group import CaseCollisions, DottedNames, GroupOptions, KeylessNames, group_files
from packer.sources.files import SkipReason, Skips, SourceFiles
from shards.errors import SourceError
from shards.keys import FIRST_DOT

GROUPING = GroupOptions(
    key_rule=FIRST_DOT, dotted=DottedNames.ALLOW, keyless=KeylessNames.ERROR, case_collisions=CaseCollisions.ERROR
)


def sourced(*paths):
    files = SourceFiles()
    for path in sorted(path.encode() for path in paths):
        files.append(path, 1, 1)
    return group_files(files, GROUPING)[0], files


def members_of(samples):
    return {samples.keys[n]: [extension for extension, _ in samples.members(n)] for n in range(len(samples))}


def required(paths, text, missing="error", added=()):
    skips = Skips()
    checks = Checks(required=parse_required(text), missing=MissingMembers(missing))
    return members_of(require_members(sourced(*paths)[0], checks, skips, frozenset(added))), skips


PATHS = ["a.jpg", "a.cls", "b.jpg", "c.cls", "c.jpg", "d/e.txt"]


def test_incomplete_samples_are_all_named_with_what_they_lack_and_what_there_is():
    with pytest.raises(SourceError) as refusal:
        required(PATHS, "jpg,cls")
    text = str(refusal.value)
    assert "2 of 4 samples lack a member of --require jpg,cls" in text
    assert "  b: no cls\n  d/e: no jpg, cls\n" in text
    assert "extensions found: cls, jpg, txt" in text
    assert "--on-missing skip" in text


def test_incomplete_samples_are_skipped_counted_and_named():
    kept, skips = required(PATHS, "jpg,cls", "skip")
    assert kept == {"a": ["cls", "jpg"], "c": ["cls", "jpg"]}
    assert skips.counts == {SkipReason.MISSING_MEMBER: 2}
    assert skips.names == {SkipReason.MISSING_MEMBER: ["b", "d/e"]}


def test_incomplete_samples_may_be_allowed():
    kept, skips = required(PATHS, "jpg,cls", "allow")
    assert len(kept) == 4
    assert skips.total == 0


def test_extension_that_no_sample_has_is_refused_even_when_skipping():
    with pytest.raises(SourceError, match=r"none of the 4 samples has all of caption(?s:.*)extensions found: cls, jpg"):
        required(PATHS, "caption", "skip")


def test_member_that_packing_adds_counts_as_present():
    kept, _ = required(["a/1.jpg", "b/2.jpg"], "jpg,cls", added=["cls"])
    assert len(kept) == 2


@pytest.mark.parametrize("text", ["", "jpg,", "jpg,,cls", "jpg,JPG"])
def test_bad_requirements_are_refused(text):
    with pytest.raises(ValueError, match="extension"):
        parse_required(text)


def test_requirements_are_read_as_users_write_them():
    assert parse_required(".JPG, seg.png") == ("jpg", "seg.png")


@given(st.sets(st.integers(0, 9)))
def test_dropping_samples_keeps_the_others_whole(dropped):
    samples, _ = sourced(*(f"{n}.{e}" for n in range(10) for e in "abc"[: n % 3 + 1]))
    whole = members_of(samples)
    kept = drop_samples(samples, dropped)
    assert members_of(kept) == {key: found for key, found in whole.items() if int(key) not in dropped}
    assert [file for n in range(len(kept)) for _, file in kept.members(n)] == list(kept.file_numbers)


@pytest.mark.parametrize(
    "paths",
    [
        [f"img.{n:06d}" for n in range(30)],
        [f"Track {n}.{n} (Mix).mp3" for n in range(30)],
        [f"Track {n}.{n} (Mix).{e}" for n in range(30) for e in ("mp3", "json")],
        [f"sub-{n:02d}_T1w.2024-01-{n:02d}.nii.gz" for n in range(10, 40)],
    ],
)
def test_names_split_in_the_wrong_place_stop_with_advice(paths):
    samples, files = sourced(*paths)
    with pytest.raises(SourceError) as refusal:
        check_extensions(samples, files, ManyExtensions.ERROR)
    text = str(refusal.value)
    assert "different extensions" in text
    assert "--key-rule last-dot" in text
    assert "regex:" in text
    assert "%2E" in text
    assert "… and " in text
    check_extensions(samples, files, ManyExtensions.ALLOW)


@pytest.mark.parametrize(
    "paths",
    [
        [f"clip{c}.{n:03d}.jpg" for c in range(4) for n in range(60)],
        [f"{n}.{e}" for n in range(100) for e in ("jpg", "json", "cls")],
        [f"a.{e}" for e in ("jpg", "json", "cls", "left.png", "right.png")],
        [f"{n}.jpg" for n in range(500)] + [f"odd{n}.{n}.mp3" for n in range(30)],
    ],
)
def test_usual_sources_are_not_suspicious(paths):
    check_extensions(*sourced(*paths), ManyExtensions.ERROR)


@pytest.mark.parametrize(
    ("text", "num_skipped", "num_found", "is_allowed"),
    [
        ("0", 0, 5, True),
        ("0", 1, 5, False),
        ("3", 3, 5, True),
        ("3", 4, 5, False),
        ("50%", 5, 5, True),
        ("50%", 6, 5, False),
        ("0.5%", 1, 199, True),
        ("0.5%", 1, 198, False),
        ("0%", 0, 5, True),
    ],
)
def test_budget_of_unreadable_files(text, num_skipped, num_found, is_allowed):
    budget = parse_skip_budget(text)
    assert budget.allows(num_skipped, num_found) is is_allowed
    skips = Skips()
    for number in range(num_skipped):
        skips.add(SkipReason.UNREADABLE, b"%d" % number)
    if is_allowed:
        check_unreadable(skips, num_found, budget)
    else:
        with pytest.raises(SourceError, match=f"{num_skipped} files(?s:.*)--max-skipped {text}"):
            check_unreadable(skips, num_found, budget)


@pytest.mark.parametrize("text", ["", "%", "-1", "1.5", "101%", "x%", "1%%", "٣"])
def test_bad_budget_is_refused(text):
    with pytest.raises(ValueError, match=r"neither|more than 100"):
        parse_skip_budget(text)
