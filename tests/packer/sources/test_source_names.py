"""Globs, and the two rules about trees that they stand beside."""

import os

import pytest

from packer.sources.names import Globs, NameFilter, check_patterns
from packer.sources.options import parse_columns
from packer.sources.tree import TreeOptions, scan_tree
from shards.errors import SourceError


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.jpg", "a.jpg", True),
        ("*.jpg", "deep/er/a.jpg", True),
        ("*.jpg", "a.jpgx", False),
        ("*.JPG", "a.jpg", False),
        ("a/*.jpg", "a/1.jpg", True),
        ("a/*.jpg", "a/b/1.jpg", False),
        ("a/*.jpg", "x/a/1.jpg", False),
        ("a/**/*.jpg", "a/1.jpg", True),
        ("a/**/*.jpg", "a/b/c/1.jpg", True),
        ("**/b/*.jpg", "a/b/1.jpg", True),
        ("**/b/*.jpg", "b/1.jpg", True),
        ("/top.txt", "top.txt", True),
        ("/top.txt", "a/top.txt", False),
        ("a/**", "a/b/c", True),
        ("?.txt", "é.txt", False),  # bytes, as the kernel has them
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("[!ab].txt", "c.txt", True),
        ("[.txt", "[.txt", True),
        ("a+(b).txt", "a+(b).txt", True),
        ("*", "new\nline", True),
    ],
)
def test_pattern_means_what_it_says(pattern, path, matches):
    assert NameFilter(Globs((pattern,))).admits(path.encode()) is matches
    assert NameFilter(Globs((), (pattern,))).admits(path.encode()) is not matches


def scan(root, **options):
    return scan_tree(root, TreeOptions(**options))


def test_excluded_directory_is_not_entered(make_tree):
    root = make_tree({"keep/a.jpg": b"1", "skip/deep/b.jpg": b"2", "skip/c.jpg": b"3", "keep/d.txt": b"4"})
    os.chmod(f"{root}/skip/deep", 0)
    found = scan(root, globs=Globs(("*.jpg",), ("skip",)))
    os.chmod(f"{root}/skip/deep", 0o755)
    assert found.files.paths == [b"keep/a.jpg"]
    assert found.skips.names == {"excluded": ["skip", "keep/d.txt"]} or found.skips.counts == {"excluded": 2}
    assert found.num_directories == 2


def test_include_without_a_match_is_refused(make_tree):
    with pytest.raises(SourceError, match=r"1 pattern.*\n  \*\.jpge\n"):
        scan(make_tree({"a.jpg": b"1"}), globs=Globs(("*.jpg", "*.jpge")))


def test_unreadable_files_are_left_out_when_asked(make_tree):
    root = make_tree({"a.jpg": b"1"})
    for name in ("x", "y"):
        os.symlink("nowhere", f"{root}/{name}.jpg")
    with pytest.raises(SourceError, match=r"nothing was written.*\n(.*\n)*.*--on-unreadable skip"):
        scan(root)
    found = scan(root, skips_unreadable=True)
    assert found.files.paths == [b"a.jpg"]
    assert found.skips.names == {"unreadable": ["x.jpg", "y.jpg"]}


@pytest.mark.parametrize("pattern", ["", "/", "[z-a]"])
def test_bad_pattern_is_a_mistake_of_the_user(pattern):
    with pytest.raises(ValueError, match="is no pattern"):
        check_patterns([pattern])


@pytest.mark.parametrize("texts", [("caption",), ("=txt",), ("a=",), ("a=x/y",), ("a=x", "a=y"), ("a=x", "b=X")])
def test_bad_column_is_a_mistake_of_the_user(texts):
    with pytest.raises(ValueError):
        parse_columns(texts)


def test_columns_may_hold_equal_signs():
    assert parse_columns(("a=b=.TXT",)) == (("a=b", "txt"),)
