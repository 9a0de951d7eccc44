import os
import socket
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.sources.files import SkipReason
from packer.sources.tree import SymlinkPolicy, TreeOptions, scan_tree
from shards.errors import SourceError, StoppedError


def scan(root, policy="follow", *, excluded=None, check=lambda: None, **options):
    return scan_tree(str(root), TreeOptions(symlinks=SymlinkPolicy(policy), **options), excluded=excluded, check=check)


def test_paths_come_in_byte_order_whatever_the_directory_order(make_tree):
    names = ["b/1.x", "a.jpg", "a/2.x", "a-b.x", "a/10.x", "B.x", "é.x", "z/y/x/w.v", "a!.x"]
    found = scan(make_tree(dict.fromkeys(reversed(names), b"data")))
    assert found.files.paths == sorted(name.encode() for name in names)
    assert found.num_directories == 6
    assert not found.skips.total


def test_sizes_and_times_are_those_of_the_files(make_tree):
    root = make_tree({"a.x": b"12345", "b.x": b""})
    os.utime(f"{root}/a.x", ns=(1, 1_700_000_000_123_456_789))
    found = scan(root)
    assert [(file.path, file.size_bytes) for file in found.files] == [(b"a.x", 5), (b"b.x", 0)]
    assert found.files[0].stamp == 1_700_000_000_123_456_789


NASTY_NAMES = [
    b"caf\xe9.jpg",
    "caf\u00e9.jpg".encode(),
    "cafe\u0301.jpg".encode(),
    b"new\nline.jpg",
    b"tab\t.jpg",
    b"back\\slash.jpg",
    b"quote'\".jpg",
    b" spaces .jpg",
    b"-rf.jpg",
    b"*.jpg",
    b"$(reboot).jpg",
    b"\x1b[31m.jpg",
    "\u202egpj.exe.jpg".encode(),
    ("😀" * 60).encode() + b".jpg",
    b"x" * 251 + b".jpg",
    b"no-extension",
    b"ends-with-dot.",
    b"two..dots.jpg",
    b"CON.jpg",
    b"%2E.jpg",
    b"~.jpg",
]


@pytest.mark.parametrize("name", NASTY_NAMES, ids=lambda name: repr(name[:20]))
def test_nasty_name_is_found_as_it_is(make_tree, name):
    assert scan(make_tree({b"dir/" + name: b"1"})).files.paths == [b"dir/" + name]


def test_what_is_left_out_is_counted_and_named(make_tree):
    names = [".hidden.jpg", ".git/config.txt", "._a.jpg", "a/.DS_Store", "__MACOSX/a.jpg", "a/.nfs000123", "a/b.jpg"]
    found = scan(make_tree(dict.fromkeys(names, b"1")))
    assert found.files.paths == [b"a/b.jpg"]
    assert found.skips.counts == {
        SkipReason.HIDDEN: 2,
        SkipReason.APPLE_DOUBLE: 3,
        SkipReason.NFS_LEFTOVER: 1,
    }
    assert set(found.skips.names[SkipReason.HIDDEN]) == {".hidden.jpg", ".git"}


def test_special_files_are_counted_and_never_opened(make_tree, tmp_path):
    root = make_tree({"a.jpg": b"1"})
    os.mkfifo(f"{root}/fifo.jpg")  # opening it would block for ever
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{root}/socket.jpg")
        os.symlink("/dev/zero", f"{root}/zero.jpg")
        found = scan(root)
    assert found.files.paths == [b"a.jpg"]
    assert found.skips.counts == {SkipReason.SPECIAL_FILE: 3}


def test_symlinks_to_files_and_directories_are_followed(make_tree, tmp_path):
    root = make_tree({"real/1.jpg": b"123"})
    make_tree({"2.jpg": b"45"}, name="elsewhere")
    os.symlink(tmp_path / "elsewhere", f"{root}/linked")
    os.symlink("real/1.jpg", f"{root}/again.jpg")
    found = scan(root)
    assert [(file.path, file.size_bytes) for file in found.files] == [
        (b"again.jpg", 3),
        (b"linked/2.jpg", 2),
        (b"real/1.jpg", 3),
    ]


def test_symlink_loops_end_and_are_counted(make_tree):
    root = make_tree({"a/1.jpg": b"1", "b/2.jpg": b"2"})
    os.symlink("..", f"{root}/a/up")
    os.symlink("../b", f"{root}/a/b")
    os.symlink("../a", f"{root}/b/a")
    os.symlink("self", f"{root}/self")
    with pytest.raises(SourceError, match="self: Too many levels of symbolic links"):
        scan(root)
    os.unlink(f"{root}/self")
    found = scan(root)
    assert found.files.paths == [b"a/1.jpg", b"a/b/2.jpg", b"b/2.jpg", b"b/a/1.jpg"]
    assert found.skips.counts[SkipReason.SYMLINK_LOOP] == 4


def test_symlinks_are_skipped_or_refused_when_asked(make_tree):
    root = make_tree({"a.jpg": b"1"})
    os.symlink("a.jpg", f"{root}/b.jpg")
    os.symlink("nowhere", f"{root}/c.jpg")
    found = scan(root, "skip")
    assert found.files.paths == [b"a.jpg"]
    assert found.skips.counts == {SkipReason.SYMLINK: 2}
    with pytest.raises(SourceError, match=r"2 symbolic link\(s\)(?s:.*)b\.jpg(?s:.*)--symlinks follow"):
        scan(root, "error")


def test_dangling_links_are_an_error_with_advice(make_tree):
    root = make_tree({"a.jpg": b"1"})
    os.symlink("nowhere", f"{root}/c.jpg")
    with pytest.raises(SourceError, match=r"c\.jpg: dangling symbolic link(?s:.*)--symlinks skip"):
        scan(root)


def test_destination_reached_through_a_link_is_refused(make_tree, tmp_path):
    root = make_tree({"a.jpg": b"1"})
    (tmp_path / "out").mkdir()
    os.symlink(tmp_path / "out", f"{root}/sneaky")
    with pytest.raises(SourceError, match="destination lies inside the source, at sneaky"):
        scan(root, excluded=str(tmp_path / "out"))


def test_trees_deeper_than_pythons_stack_are_walked(tmp_path):
    root = tmp_path / "deep"
    root.mkdir()
    before = os.getcwd()
    os.chdir(root)
    try:
        for _ in range(1200):
            os.mkdir("d")
            os.chdir("d")
        open("x.jpg", "wb").close()
    finally:
        os.chdir(before)
    try:
        assert scan(root).files.paths == [b"d/" * 1200 + b"x.jpg"]
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)  # too deep for shutil, and so for pytest


def test_walk_can_be_stopped(make_tree):
    def stop():
        raise StoppedError("SIGTERM")

    with pytest.raises(StoppedError):
        scan(make_tree({"a/b.jpg": b"1"}), check=stop)


@given(
    st.lists(st.lists(st.sampled_from([b"a", b"b", b"a-", b"a.", b"a!x", b"\xff"]), min_size=1, max_size=3), max_size=9)
)
def test_order_is_that_of_sorted_paths(tmp_path_factory, parts):
    root = os.fsencode(tmp_path_factory.mktemp("order"))
    expected = set()
    for names in parts:
        path = b"/".join([*names, b"f.x"])
        os.makedirs(os.path.dirname(root + b"/" + path), exist_ok=True)
        open(root + b"/" + path, "wb").close()
        expected.add(path)
    found = scan(os.fsdecode(root))
    assert found.files.paths == sorted(expected)
