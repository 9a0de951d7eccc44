import io
import json
import os
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.group import escape_dots
from packer.unpack.names import Collisions, Selection, file_parts, unescape_dots
from packer.unpack.target import Existing, TargetDirectory
from shards.digests import BlockHasher, crc32c, hash_bytes
from shards.errors import DestinationError
from shards.index import IndexBuilder
from shards.manifest import Manifest, ShardEntry, SplitEntry

KEYS = st.text(st.sampled_from("ab%25E./é"), min_size=1, max_size=12)


@given(KEYS)
def test_escaping_dots_is_undone(key):
    assert unescape_dots(escape_dots(key)) == key


@given(key=st.text(max_size=30), extension=st.text(max_size=10))
def test_parts_never_lead_out_of_the_target(key, extension):
    try:
        parts = file_parts(key, extension)
    except ValueError:
        return
    assert all(part not in {"", ".", ".."} and "/" not in part and "\0" not in part for part in parts)


@given(st.lists(st.sampled_from(["a", "A", "b", "é", "e\u0301", "É"]), max_size=8))
def test_collisions_are_those_of_a_dictionary(names):
    import unicodedata

    found = Collisions(folds=True)
    for name in names:
        found.add(name)
    folded = [unicodedata.normalize("NFC", name).casefold() for name in names]
    assert len(list(found.find(names))) == len(folded) - len(set(folded))


def test_selection_takes_keys_members_and_patterns():
    selection = Selection(frozenset({"a/1", "b/2.jpg"}), ("c/*.txt",))
    assert selection.wants("a/1", "jpg")
    assert selection.wants("b/2", "jpg")
    assert not selection.wants("b/2", "txt")
    assert selection.wants("c/d/3", "txt")
    assert not selection.wants("d", "txt")


@pytest.fixture
def packed(make_tree, many_files, pack_here, tmp_path):
    source, destination = make_tree(many_files), str(tmp_path / "out")
    done = pack_here("build", source, destination, "--shard-size", "100KB", "--quiet")
    assert done.returncode == 0, done.stderr
    return source, destination


def hostile_dataset(path, members, name="train-000000.tar"):
    """A dataset whose digests are all right and whose names are not; returns its directory."""
    os.makedirs(path)
    buffer, index, hasher = io.BytesIO(), IndexBuilder(), BlockHasher()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for key, extension, data in members:
            info = tarfile.TarInfo(f"{key}.{extension}")
            info.size = len(data)
            start = buffer.tell()
            tar.addfile(info, io.BytesIO(data))
            index.add(key, start, [(extension, start + 512, len(data), crc32c(data))])
    shard = buffer.getvalue()
    hasher.update(shard)
    blocks = hasher.finish()
    index_bytes = index.finish(shard_name=name, format_name="tar", blocks=blocks)
    entry = ShardEntry(
        name=name,
        size_bytes=len(shard),
        digest=blocks.shard_digest,
        num_samples=len(members),
        index_name=f"{name}.index.arrow",
        index_size_bytes=len(index_bytes),
        index_digest=hash_bytes(index_bytes),
    )
    split = SplitEntry(name="train", num_samples=len(members), size_bytes=len(shard), shards=(entry,), extensions={})
    manifest = Manifest(shard_format="tar", block_bytes=blocks.block_bytes, splits=(split,))
    for file, data in {name: shard, entry.index_name: index_bytes, "manifest.json": manifest.to_json()}.items():
        Path(path, file).write_bytes(data)
    return str(path)


def files_below(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}


@pytest.mark.parametrize("format_name", ["tar", "tfrecord"])
def test_extracted_files_are_the_source_files(packed, pack_here, tmp_path, format_name):
    source, _ = packed
    destination, target = str(tmp_path / format_name), str(tmp_path / "back")
    assert pack_here("build", source, destination, "--format", format_name, "--quiet").returncode == 0
    done = pack_here("extract", destination, target, "--quiet", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_files"] == 240
    assert files_below(target) == files_below(source)


def test_escaped_names_come_back(make_tree, pack_here, tmp_path):
    files = {"v1.2/a 50%25.x.jpg": b"1", "b.c.d.txt": b"2", "plain.txt": b"3"}
    source, destination, target = make_tree(files), str(tmp_path / "out"), str(tmp_path / "back")
    options = ("--key-rule", "last-dot", "--dotted-names", "escape", "--quiet")
    assert pack_here("build", source, destination, *options).returncode == 0
    assert pack_here("extract", destination, target, "--quiet").returncode == 0
    assert files_below(target) == files
    stored = str(tmp_path / "stored")
    assert pack_here("extract", destination, stored, "--stored-names", "--quiet").returncode == 0
    assert "b%2Ec%2Ed.txt" in files_below(stored)


def test_modes_do_not_depend_on_the_umask(packed, pack, tmp_path):
    _, destination = packed
    target = tmp_path / "back"
    assert pack("extract", destination, str(target), "class0/img0000.jpg", umask=0o077).returncode == 0
    assert stat.S_IMODE((target / "class0/img0000.jpg").stat().st_mode) == 0o644
    assert stat.S_IMODE((target / "class0").stat().st_mode) == 0o755


def test_keys_and_patterns_choose_members(packed, pack_here, tmp_path):
    _, destination = packed
    target = str(tmp_path / "back")
    done = pack_here("extract", destination, target, "class1/img0001", "--glob", "class2/*2.json", "--quiet")
    assert done.returncode == 0
    found = set(files_below(target))
    assert {"class1/img0001.jpg", "class1/img0001.json"} <= found
    assert all(name.endswith("2.json") for name in found if name.startswith("class2/"))
    assert not any(name.startswith("class0") for name in found)


def test_missing_keys_are_listed_and_nothing_is_written(packed, pack_here, tmp_path):
    _, destination = packed
    target = tmp_path / "back"
    done = pack_here("extract", destination, str(target), "class1/img0001", "none/1", "none/2")
    assert done.returncode == 66
    assert "none/1" in done.stderr
    assert "none/2" in done.stderr
    assert not target.exists()
    assert pack_here("extract", destination, str(target), "--glob", "zzz*").returncode == 66


@pytest.mark.parametrize("key", ["../evil", "/abs", "a/../../evil", "a//b", "./x", "a/./b", ".."])
def test_names_that_lead_elsewhere_are_refused_before_anything_is_written(pack_here, tmp_path, key):
    destination = hostile_dataset(tmp_path / "bad", [("good", "txt", b"1"), (key, "txt", b"2")])
    target = tmp_path / "below" / "target"
    done = pack_here("extract", destination, str(target), "--quiet")
    if key == "..":  # becomes the harmless file "...txt"
        assert done.returncode == 0
        return
    assert done.returncode == 65
    assert "nothing was written" in done.stderr
    assert not target.exists()
    assert not (tmp_path / "below").exists()
    assert pack_here("extract", destination, str(target), "good", "--quiet").returncode == 0
    assert files_below(target) == {"good.txt": b"1"}


def test_case_collisions_are_refused_unless_allowed(pack_here, tmp_path):
    destination = hostile_dataset(tmp_path / "bad", [("a/X", "txt", b"1"), ("a/x", "txt", b"2")])
    done = pack_here("extract", destination, str(tmp_path / "one"), "--quiet")
    assert done.returncode == 65
    assert "a/X.txt and a/x.txt" in done.stderr
    done = pack_here("extract", destination, str(tmp_path / "two"), "--case-collisions", "allow", "--quiet")
    assert done.returncode == 0
    assert files_below(tmp_path / "two") == {"a/X.txt": b"1", "a/x.txt": b"2"}


def test_links_in_the_target_are_not_followed(packed, pack_here, tmp_path):
    _, destination = packed
    target, elsewhere = tmp_path / "back", tmp_path / "elsewhere"
    target.mkdir()
    elsewhere.mkdir()
    (target / "class1").symlink_to(elsewhere)
    for existing in ("error", "skip", "overwrite"):
        done = pack_here("extract", destination, str(target), "class1/img0001", "--existing", existing, "--quiet")
        assert done.returncode == 73, existing
        assert "not followed" in done.stderr
    assert not list(elsewhere.iterdir())


def test_link_at_a_file_name_is_replaced_not_written_through(packed, pack_here, tmp_path):
    source, destination = packed
    target, victim = tmp_path / "back", tmp_path / "victim"
    (target / "class1").mkdir(parents=True)
    victim.write_bytes(b"precious")
    (target / "class1" / "img0001.json").symlink_to(victim)
    name = "class1/img0001.json"
    assert pack_here("extract", destination, str(target), name, "--quiet").returncode == 73
    assert pack_here("extract", destination, str(target), name, "--existing", "overwrite", "--quiet").returncode == 0
    assert victim.read_bytes() == b"precious"
    assert (target / name).read_bytes() == Path(source, name).read_bytes()


def test_files_that_are_there_stay_unless_asked(packed, pack_here, tmp_path):
    source, destination = packed
    target = tmp_path / "back"
    (target / "class1").mkdir(parents=True)
    mine = target / "class1" / "img0001.json"
    mine.write_bytes(b"mine")
    done = pack_here("extract", destination, str(target), "--quiet")
    assert done.returncode == 73
    assert "class1/img0001.json" in done.stderr
    assert files_below(target) == {"class1/img0001.json": b"mine"}
    done = pack_here("extract", destination, str(target), "--existing", "skip", "--quiet", "--json")
    assert json.loads(done.stdout)["num_skipped"] == 1
    assert mine.read_bytes() == b"mine"
    assert pack_here("extract", destination, str(target), "--existing", "overwrite", "--quiet").returncode == 0
    assert files_below(target) == files_below(source)


def test_damaged_member_leaves_no_file(packed, pack_here, tmp_path):
    _, destination = packed
    done = pack_here("inspect", destination, "class1/img0001", "--json")
    [sample] = json.loads(done.stdout)["samples"]
    path = Path(destination, sample["shard"])
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[sample["members"][0]["offset"]] ^= 1
    path.write_bytes(data)
    target = tmp_path / "back"
    done = pack_here("extract", destination, str(target), "class1/img0001", "--quiet")
    assert done.returncode == 65
    assert files_below(target) == {}


def test_file_that_appears_meanwhile_is_not_overwritten(tmp_path):
    with TargetDirectory(str(tmp_path / "t"), Existing.ERROR) as target:

        def pieces():
            yield b"ours"
            Path(tmp_path, "t", "a", "b").write_bytes(b"theirs")

        with pytest.raises(DestinationError, match="exists already"):
            target.write(("a", "b"), pieces())
    assert files_below(tmp_path / "t") == {"a/b": b"theirs"}


def test_listing_has_every_member_once(packed, pack_here, many_files):
    _, destination = packed
    short = pack_here("ls", destination).stdout.splitlines()
    listed = {f"{key}.{ext}" for key, exts in (line.split("\t") for line in short) for ext in exts.split(",")}
    assert listed == set(many_files)
    long = {
        line.split()[4]: int(line.split()[0]) for line in pack_here("ls", destination, "--long").stdout.splitlines()
    }
    assert long == {name: len(data) for name, data in many_files.items()}
    objects = [json.loads(line) for line in pack_here("ls", destination, "--json").stdout.splitlines()]
    assert len(objects) == 120
    assert {m["extension"] for sample in objects for m in sample["members"]} == {"jpg", "json"}
    assert pack_here("ls", destination, "--split", "nothing").returncode == 66


def test_verify_against_finds_each_kind_of_difference(packed, pack_here):
    source, destination = packed
    done = pack_here("verify", destination, "--against", source, "--quiet", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["comparison"]["num_compared"] == 240
    changed = Path(source, "class1/img0001.json")
    status = changed.stat()
    changed.write_bytes(bytes(changed.stat().st_size))  # same size, same date
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    Path(source, "class1/img0004.jpg").unlink()
    Path(source, "class1/new.jpg").write_bytes(b"1")
    Path(source, "class1/img0007.png").write_bytes(b"1")
    done = pack_here("verify", destination, "--against", source, "--quiet", "--json")
    assert done.returncode == 65
    comparison = json.loads(done.stdout)["comparison"]
    assert comparison["different"] == ["class1/img0001.json"]
    assert comparison["extra"] == ["class1/img0004.jpg"]
    assert sorted(comparison["missing"]) == ["class1/img0007.png", "class1/new.jpg"]


def test_first_twenty_differences_are_named_and_all_counted(packed, pack_here):
    source, destination = packed
    for number in range(0, 90, 3):
        Path(source, f"class0/img{number:04d}.json").write_bytes(b"other")
    done = pack_here("verify", destination, "--against", source, "--quiet")
    assert done.returncode == 65
    assert done.stderr.count("different from the source") == 21
    assert "… and 10 more" in done.stderr


def test_verify_against_compares_classes(make_tree, many_files, pack_here, tmp_path):
    source, destination = make_tree(many_files), str(tmp_path / "out")
    assert pack_here("build", source, destination, "--class-from-dir", "--quiet").returncode == 0
    assert pack_here("verify", destination, "--against", source, "--quiet").returncode == 0
    os.rename(os.path.join(source, "class0"), os.path.join(source, "aaa"))
    assert pack_here("verify", destination, "--against", source, "--quiet").returncode == 65


def test_readers_that_disagree_are_named(make_tree, pack_here, tmp_path):
    source, destination = make_tree({"a.left.png": b"1", "a.right.png": b"2", "b.jpg": b"3"}), str(tmp_path / "out")
    assert pack_here("build", source, destination, "--dotted-names", "allow", "--quiet").returncode == 0
    assert pack_here("verify", destination, "--quiet").returncode == 0
    done = pack_here("verify", destination, "--readers", "--quiet")
    assert done.returncode == 65
    assert "last dot see another key or extension: a.left.png" in done.stderr
    records = str(tmp_path / "records")
    assert pack_here("build", source, records, "--dotted-names", "allow", "--format", "tfrecord").returncode == 0
    assert pack_here("verify", records, "--readers", "--quiet").returncode == 0


def test_names_with_which_webdataset_makes_a_sample_of_its_own_are_found(pack_here, tmp_path):
    destination = hostile_dataset(tmp_path / "bad", [("dir/a", "jpg", b"1"), ("dir/", "_a.jpg", b"2")])
    done = pack_here("verify", destination, "--readers", "--quiet")
    assert done.returncode == 65
    assert "dir/._a.jpg (key dir/, extension _a.jpg)" in done.stderr


def test_archive_is_compared_like_a_tree(pack_here, tmp_path):
    for name, data in (("a.tar", b"one"), ("b.tar", b"two")):
        with tarfile.open(tmp_path / name, "w") as archive:
            info = tarfile.TarInfo("x.jpg")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    destination = str(tmp_path / "out")
    assert pack_here("build", str(tmp_path / "a.tar"), destination, "--quiet").returncode == 0
    assert pack_here("verify", destination, "--against", str(tmp_path / "a.tar"), "--quiet").returncode == 0
    done = pack_here("verify", destination, "--against", str(tmp_path / "b.tar"), "--quiet")
    assert done.returncode == 65
    assert "different from the source: x.jpg" in done.stderr


def test_names_that_webdataset_takes_for_metadata_or_its_own_are_found(pack_here, tmp_path):
    members = [("__data__/a", "jpg", b"1"), ("b", "__url__", b"2"), ("c", "jpg", b"3")]
    done = pack_here("verify", hostile_dataset(tmp_path / "bad", members), "--readers", "--quiet")
    assert done.returncode == 65
    assert "__data__/a.jpg (left out)" in done.stderr
    assert "b.__url__ (left out)" in done.stderr
    assert "c.jpg" not in done.stderr
