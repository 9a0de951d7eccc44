import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders import open_dataset
from packer.adopt.run import ADVICE
from packer.adopt.scan import scan_source
from shards.digests import BlockHasher
from shards.errors import ForeignShardsError
from shards.foreign.names import choose_files, parse_split_globs
from shards.foreign.scan import HashingReader
from shards.tfrecord.frames import frame_record

CASES = Path(__file__).parent.parent / "data" / "cases"


def write_tar(path, members, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, **options) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def write_shards(directory, names, start=0):
    for number, name in enumerate(names, start):
        write_tar(directory / name, [(f"{number:04d}.txt", b"%d" % number), (f"{number:04d}.cls", b"1")])
    return directory


def tree_state(path):
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_mode)
        for file in Path(path).rglob("*")
        if file.is_file()
    }


# names


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train-000000.tar", "train-000001.tar", "val-000000.tar"], ["train", "train", "val"]),
        (["00000.tar", "00001.tar"], ["train", "train"]),
        (["imagenet_train_0.tar", "imagenet_test_0.tar"], ["test", "train"]),
        (["train/0.tar", "valid/0.tar"], ["train", "valid"]),
        (["mnist-train.tfrecord-00000-of-00001", "mnist-test.tfrecord-00000-of-00001"], ["test", "train"]),
        (["validation-00000-of-00001"], ["validation"]),
    ],
)
def test_splits_are_told_from_names(names, splits):
    assert [file.split for file in choose_files(names, ADVICE).files] == splits


def test_shards_come_in_the_order_of_their_numbers():
    names = [f"a{number}.tar" for number in (10, 9, 1, 2, 100, 0, 3, 4, 5, 6, 7, 8)]
    found = choose_files(names, ADVICE)
    assert [file.name for file in found.files][:4] == ["a0.tar", "a1.tar", "a2.tar", "a3.tar"]
    assert found.remarks == ("numbers missing in a*: 11-99",)


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(0, 3))
def test_every_missing_number_is_reported(numbers, seed):
    order = sorted(numbers, key=lambda number: hash((number, seed)))
    [*remarks] = choose_files([f"x-{number:03d}.tar" for number in order], ADVICE).remarks
    start = min({0} if 0 in numbers else {1} | numbers)
    missing = set(range(start, max(numbers))) - numbers
    told = set()
    for part in remarks[0].rpartition(": ")[2].split(", ") if remarks else []:
        first, _, last = part.partition("-")
        if not part.startswith("and "):
            told |= set(range(int(first), int(last or first) + 1))
    assert told == missing or "more" in "".join(remarks)


def test_incomplete_sets_are_refused_unless_allowed():
    names = ["train-00000-of-00004", "train-00002-of-00004"]
    with pytest.raises(ForeignShardsError, match=r"of 4 shards these are missing: 1, 3"):
        choose_files(names, ADVICE)
    assert "missing: 1, 3" in choose_files(names, ADVICE, allows_incomplete=True).remarks[0]
    with pytest.raises(ForeignShardsError, match="sets of 4 and 5 are mixed"):
        choose_files(["train-00000-of-00004", "train-00000-of-00005"], ADVICE)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["train-0.tar", "extra-0.tar"], "cannot be told from their names"),
        (["train-val-0.tar"], "train, val"),
        (["a.tar", "b.tfrecord"], "choose with --format"),
        (["a.tar.gz", "b.tar"], "are compressed"),
        (["a.tgz"], "are compressed"),
        (["readme.txt"], "there is no shard"),
        ([], "there is no shard"),
        (["a\\b.tar"], "backslash"),
    ],
)
def test_what_names_do_not_say_is_refused(names, message):
    with pytest.raises(ForeignShardsError, match=message):
        choose_files(names, ADVICE)


def test_patterns_say_the_splits_and_leave_the_rest_out():
    globs = parse_split_globs(["one=a*.tar", "two=b*"])
    found = choose_files(["a1.tar", "b1.tar", "c1.tar"], ADVICE, globs=globs)
    assert [(file.name, file.split) for file in found.files] == [("a1.tar", "one"), ("b1.tar", "two")]
    assert found.left_out == ("c1.tar",)
    with pytest.raises(ForeignShardsError, match="several splits"):
        choose_files(["a1.tar"], ADVICE, globs=parse_split_globs(["one=a*", "two=*1.tar"]))
    for bad in ("train", "train=", "a/b=*"):
        with pytest.raises(ValueError):
            parse_split_globs([bad])


# scanning


class Plain:
    def __init__(self, data):
        self.data, self.size_bytes = data, len(data)

    def read_at(self, num_bytes, offset):
        return self.data[offset : offset + num_bytes]


@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 320), st.integers(0, 100)), max_size=12))
def test_every_byte_is_hashed_once_in_order_however_it_is_read(data, reads):
    reader = HashingReader(Plain(data))
    for offset, count in reads:
        assert reader.read_at(count, offset) == data[offset : offset + count]
    expected = BlockHasher()
    expected.update(data)
    assert reader.finish() == expected.finish()


@pytest.mark.parametrize("case", sorted(path.name for path in (CASES / "tar").iterdir()))
def test_damaged_tar_is_a_result_and_never_an_index(case):
    """What the strict reader takes has an index; what it refuses has a fault; nothing else happens."""
    found = scan_source(str(CASES / "tar"), case, "tar")
    assert bool(found.fault) != bool(found.index_bytes)
    if found.index_bytes:
        assert found.size_bytes == (CASES / "tar" / case).stat().st_size


# the command


def test_adopted_tars_are_staged_and_loaded_and_the_shards_untouched(tmp_path, pack_here):
    source = write_shards(tmp_path / "shards", ["train-0.tar", "train-1.tar", "val-0.tar"])
    before = tree_state(source)
    done = pack_here("adopt", str(source), "--quiet", "--json", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["splits"] == {
        "train": {"num_samples": 2, "num_shards": 2},
        "val": {"num_samples": 1, "num_shards": 1},
    }
    assert before.items() <= tree_state(source).items()
    assert pack_here("verify", str(source), "--deep", "--readers", "--quiet").returncode == 0
    cache = tmp_path / "cache"
    subprocess.run(
        [sys.executable, "-m", "stager", "run", str(source), "--cache-dir", str(cache), "--quiet"], check=True
    )
    [staged] = (cache / "datasets").iterdir()
    with open_dataset(str(staged), split="train") as dataset:
        assert [bytes(dataset[number]["txt"]) for number in range(2)] == [b"0", b"1"]


def test_second_run_is_refused_and_repeats_with_overwrite(tmp_path, pack_here):
    source = write_shards(tmp_path / "shards", ["0.tar"])
    first = pack_here("adopt", str(source), "--json", "--quiet", "--jobs", "1")
    again = pack_here("adopt", str(source), "--json", "--quiet", "--jobs", "1")
    assert again.returncode == 73
    assert "is a dataset" in again.stderr
    renewed = pack_here("adopt", str(source), "--json", "--quiet", "--jobs", "1", "--overwrite")
    assert json.loads(renewed.stdout)["dataset_id"] == json.loads(first.stdout)["dataset_id"]


def test_several_processes_give_the_same_dataset(tmp_path, pack):
    source = write_shards(tmp_path / "shards", [f"{number:03d}.tar" for number in range(6)])
    ids = []
    for jobs in ("1", "2"):
        done = pack("adopt", str(source), "--json", "--quiet", "--overwrite", "--jobs", jobs)
        assert done.returncode == 0, done.stderr
        ids.append(json.loads(done.stdout)["dataset_id"])
    assert ids[0] == ids[1]


def test_all_damaged_shards_are_listed_and_nothing_is_written(tmp_path, pack_here):
    source = write_shards(tmp_path / "shards", ["0.tar", "1.tar", "2.tar", "3.tar"])
    os.truncate(source / "1.tar", 700)
    data = bytearray((source / "3.tar").read_bytes())
    data[3] ^= 1
    (source / "3.tar").write_bytes(data)
    before = tree_state(source)
    done = pack_here("adopt", str(source), "--quiet", "--jobs", "1")
    assert done.returncode == 65
    assert "2 of 4 shard(s)" in done.stderr
    assert "1.tar" in done.stderr
    assert "3.tar" in done.stderr
    assert tree_state(source) == before


@pytest.mark.parametrize("link", ["hard", "symbolic"])
def test_output_is_a_directory_of_links(tmp_path, pack_here, link):
    source = write_shards(tmp_path / "shards", ["train/0.tar", "val/0.tar"])
    before = tree_state(source)
    output = tmp_path / "out"
    done = pack_here("adopt", str(source), "--output", str(output), "--link", link, "--quiet", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert tree_state(source) == before
    assert (output / "train/0.tar").is_symlink() == (link == "symbolic")
    assert os.path.samefile(output / "train/0.tar", source / "train/0.tar")
    assert pack_here("verify", str(output), "--deep", "--quiet").returncode == 0
    assert pack_here("adopt", str(source), "--output", str(output), "--quiet").returncode == 73


def test_read_only_source_is_told_what_to_do(tmp_path, pack_here):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    source = write_shards(tmp_path / "shards", ["0.tar"])
    source.chmod(0o555)
    done = pack_here("adopt", str(source), "--quiet")
    assert done.returncode == 73
    assert "--output DIR" in done.stderr


def test_compressed_content_under_a_plain_name_is_refused(tmp_path, pack_here):
    source = tmp_path / "shards"
    source.mkdir()
    shutil.copy(CASES / "tar" / "gz-content-named.tar", source / "0.tar")
    done = pack_here("adopt", str(source), "--quiet", "--jobs", "1")
    assert done.returncode == 66
    assert "0.tar" in done.stderr
    assert "gzip -d" in done.stderr


def test_sparse_members_are_named(tmp_path, pack_here):
    source = tmp_path / "shards"
    source.mkdir()
    shutil.copy(CASES / "tar" / "sparse-S-posix.tar", source / "0.tar")
    done = pack_here("adopt", str(source), "--quiet", "--jobs", "1")
    assert done.returncode == 65
    assert "is sparse" in done.stderr
    assert "without --sparse" in done.stderr


def test_foreign_records_get_members_named_by_what_they_are(tmp_path, pack_here):
    source = tmp_path / "shards"
    source.mkdir()
    shutil.copy(CASES / "tfrecord" / "icons.tfrecord", source / "train-00000-of-00002")
    (source / "train-00001-of-00002").write_bytes(frame_record(b"just text") * 2)
    done = pack_here("adopt", str(source), "--json", "--quiet", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert not json.loads(done.stdout)["remarks"]  # the numbers of records are no keys that could repeat
    kinds = {line.split("\t")[1] for line in pack_here("ls", str(source)).stdout.splitlines()}
    assert kinds == {"example", "record"}
    assert pack_here("verify", str(source), "--deep", "--quiet").returncode == 0


def test_repeated_keys_keyless_members_and_other_files_are_remarked(tmp_path, pack_here):
    source = tmp_path / "shards"
    write_tar(source / "0.tar", [("a.txt", b"1"), ("b.txt", b"2"), ("README", b"3")])
    write_tar(source / "1.tar", [("b.txt", b"4")])
    (source / "notes.md").write_bytes(b"x")
    done = pack_here("adopt", str(source), "--json", "--quiet", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    text = "\n".join(json.loads(done.stdout)["remarks"])
    assert "1 key(s) stand for samples in several shards of a split: b" in text
    assert "1 member(s) without a key" in text
    assert "README" in text
    assert "notes.md" in text


def test_members_of_hard_links_point_at_the_file(tmp_path, pack_here):
    source = tmp_path / "shards"
    source.mkdir()
    shutil.copy(CASES / "tar" / "hardlinks.tar", source / "0.tar")
    assert pack_here("adopt", str(source), "--quiet", "--jobs", "1").returncode == 0
    assert pack_here("verify", str(source), "--deep", "--quiet").returncode == 0
    assert pack_here("extract", str(source), str(tmp_path / "files"), "--quiet").returncode == 0


@pytest.mark.parametrize("name", ["energon", "img2dataset"])
def test_sets_of_other_packers_are_adopted(tmp_path, pack_here, name):
    source = tmp_path / "shards"
    shutil.copytree(CASES / "sets" / name, source)
    done = pack_here("adopt", str(source), "--quiet", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert pack_here("verify", str(source), "--deep", "--readers", "--quiet").returncode in {0, 65}
    assert pack_here("verify", str(source), "--deep", "--quiet").returncode == 0
