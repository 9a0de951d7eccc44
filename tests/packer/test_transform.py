import json
import os
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.transform import account, apply_transform
from shards.errors import TransformError


def applied(function, key="k", members=(("jpg", b"1"), ("txt", b"2"))):
    return apply_transform("m:f", function, key, members)


def test_sample_is_given_and_taken_as_a_dictionary():
    seen = []
    assert applied(lambda sample: seen.append(sample) or sample) == [("k", [("jpg", b"1"), ("txt", b"2")])]
    assert seen == [{"__key__": "k", "jpg": b"1", "txt": b"2"}]


@pytest.mark.parametrize(
    ("result", "outputs"),
    [
        (None, []),
        ([], []),
        ({"cls": "é"}, [("k", [("cls", "é".encode())])]),
        ({"b": bytearray(b"2"), "a": memoryview(b"1")}, [("k", [("a", b"1"), ("b", b"2")])]),
        ([{"a": b""}, {"__key__": "k-2", "a": b""}], [("k", [("a", b"")]), ("k-2", [("a", b"")])]),
        (({"__key__": "k/x", "a": b""},), [("k/x", [("a", b"")])]),
    ],
)
def test_none_one_or_several_samples_come_out(result, outputs):
    assert applied(lambda _: result) == outputs


@pytest.mark.parametrize(
    ("result", "part"),
    [
        (b"bytes", "it gave bytes; a sample is a dictionary"),
        ([None], "it gave NoneType"),
        ({"__key__": "other", "a": b""}, "key 'other', which does not begin with the old"),
        ({"__key__": 7, "a": b""}, "key 7"),
        ({"__key__": "k"}, "without members"),
        ({"JPG": b""}, "extensions are lower case"),
        ({7: b""}, "extension 7"),
        ({"a": 7}, "member a is int"),
        ({"a": "\ud800"}, "no Unicode"),
        ([{"a": b""}, {"a": b""}], "same key"),
        ({"__key__": "k.1", "a": b""}, "would not be read back"),
    ],
)
def test_what_cannot_be_stored_names_transform_and_sample(result, part):
    with pytest.raises(TransformError, match="transform m:f of sample k: ") as refusal:
        applied(lambda _: result)
    assert part in str(refusal.value)


def test_failure_is_named_with_its_place():
    with pytest.raises(TransformError, match=r"of sample k: ZeroDivisionError: .* at .*test_transform.py:\d+"):
        applied(lambda _: 1 / 0)


@given(st.lists(st.integers(0, 2), max_size=12), st.randoms())
def test_account_follows_from_plan_and_results_alone(counts, random):
    keys = ["s" * number for number in range(1, len(counts) + 1)]  # each begins with those before it
    random.shuffle(keys)
    outputs = [
        (key if place == 0 else f"{key}-{place}", [("a", 3)])
        for key, count in zip(keys, counts, strict=True)
        for place in range(count)
    ]
    found = account(keys, iter(outputs))
    assert found.num_dropped == counts.count(0)
    assert list(found.dropped_keys) == [key for key, count in zip(keys, counts, strict=True) if not count]
    assert list(found.new_keys) == [key for key, _ in outputs if "-" in key]
    assert found.extensions == ({"a": (len(outputs), 3 * len(outputs))} if outputs else {})


@pytest.fixture
def transform(tmp_path, monkeypatch):
    """Write a module in the current directory; each call makes one of another name."""
    monkeypatch.chdir(tmp_path)
    numbers = iter(range(100))

    def write(code, name=None):
        name = name or f"own_{os.getpid()}_{tmp_path.name}_{next(numbers)}"
        Path(f"{name}.py").write_text(textwrap.dedent(code))
        return f"{name}:work"

    return write


MIXED = """
    def work(sample):
        number = int(sample["txt"])
        if number % 5 == 0:
            return None
        if number % 7 == 0:
            key = sample["__key__"]
            return [{"__key__": f"{key}-{part}", "half": sample["jpg"][part::2]} for part in range(2)]
        return {"jpg": sample["jpg"] * 2, "txt": "number " + sample["txt"].decode()}
"""


@pytest.fixture
def numbered():
    return {f"c{n % 2}/{n:03d}.{e}": d for n in range(90) for e, d in (("jpg", bytes([n]) * 900), ("txt", b"%d" % n))}


def expected_of(files):
    found = {}
    for key in sorted({name.rpartition(".")[0] for name in files}):
        jpg, number = files[f"{key}.jpg"], int(files[f"{key}.txt"])
        if number % 5 == 0:
            continue
        if number % 7 == 0:
            found |= {f"{key}-{part}": {"half": jpg[part::2]} for part in range(2)}
        else:
            found[key] = {"jpg": jpg * 2, "txt": b"number %d" % number}
    return found


@pytest.mark.parametrize("format_name", ["tar", "tfrecord"])
def test_transformed_samples_are_packed_the_same_with_any_jobs(
    pack_here, make_tree, numbered, tmp_path, read_dataset, transform, format_name
):
    source, function = make_tree(numbered), transform(MIXED)
    datasets = {}
    for jobs in ("1", "2"):
        out = str(tmp_path / f"out{jobs}")
        args = ("--transform", function, "--shard-size", "20000", "--format", format_name, "--jobs", jobs)
        done = pack_here("build", source, out, *args, "--json", "--quiet")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        datasets[jobs] = read_dataset(out)
        assert datasets[jobs].samples("train") == expected_of(numbered)
        assert report["skipped"]["transform"]["count"] == 18
        assert report["num_samples"] == len(expected_of(numbered))
        assert pack_here("verify", out, "--deep").returncode == 0
        again = json.loads(pack_here("build", source, out, *args, "--json").stdout)
        assert (again["is_new"], again["dataset_id"]) == (False, report["dataset_id"])
    assert datasets["1"].file_bytes() == datasets["2"].file_bytes()
    manifest = datasets["1"].manifest
    assert manifest.packer["options"]["transform"] == function
    assert manifest.source["skipped"] == {"transform": 18}
    [split] = manifest.splits
    assert {name: found.num_present for name, found in split.extensions.items()} == {"half": 20, "jpg": 62, "txt": 62}


def test_interrupted_transform_goes_on_to_the_same_bytes(
    pack_here, make_tree, numbered, tmp_path, read_dataset, transform
):
    source, function, out = make_tree(numbered), transform(MIXED), tmp_path / "out"
    args = ("--transform", function, "--shard-size", "20000", "--jobs", "1", "--quiet")
    assert pack_here("build", source, str(out), *args).returncode == 0
    whole = read_dataset(str(out)).file_bytes()
    shards = sorted(out.glob("*.tar"))
    for path in (out / "manifest.json", shards[0], shards[3]):
        path.unlink()
    os.chmod(shards[5], 0o644)
    shards[5].write_bytes(shards[5].read_bytes()[:-1] + b"x")
    done = pack_here("build", source, str(out), *args, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_kept"] == len(shards) - 3
    assert read_dataset(str(out)).file_bytes() == whole


def test_changed_code_is_another_plan(pack, make_tree, numbered, tmp_path, transform):
    source, out = make_tree(numbered), str(tmp_path / "out")
    function = transform(MIXED, "prepare")
    assert pack("build", source, out, "--transform", function).returncode == 0
    transform(MIXED + "\n    # more\n", "prepare")
    done = pack("build", source, out, "--transform", function)
    assert done.returncode == 73
    assert "option transform_code: was" in done.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_failure_in_a_worker_names_the_sample_and_leaves_no_partial(
    pack, make_tree, numbered, tmp_path, transform, jobs
):
    function = transform("def work(sample):\n    return {'a': b'x' * (3 - 4 // (int(sample['txt']) - 40))}\n")
    out = tmp_path / "out"
    args = ("--transform", function, "--shard-size", "20000", "--jobs", jobs)
    done = pack("build", make_tree(numbered), str(out), *args)
    assert done.returncode == 65
    assert f"transform {function} of sample c0/040: ZeroDivisionError" in done.stderr
    assert not list(out.glob(".*.partial"))
    assert not (out / "manifest.json").exists()


def test_random_transform_is_noticed(pack_here, make_tree, numbered, tmp_path, transform):
    function = transform("import os\ndef work(sample):\n    return {'a': os.urandom(8)}\n")
    done = pack_here("build", make_tree(numbered), str(tmp_path / "out"), "--transform", function)
    assert done.returncode == 65
    assert "it is not deterministic" in done.stderr


def test_keys_that_clash_with_other_samples_are_refused(pack_here, make_tree, tmp_path, transform):
    source = make_tree({"a.txt": b"1", "a-1.txt": b"2"})
    function = transform(
        "def work(sample):\n    return {**sample, '__key__': sample['__key__'].ljust(3, '1').replace('a11', 'a-1')}\n"
    )
    done = pack_here("build", source, str(tmp_path / "out"), "--transform", function)
    assert done.returncode == 65, done.stderr
    assert "1 key(s) that --transform made are those of other samples too:\n  a-1\n" in done.stderr
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_keys_that_begin_with_other_keys_are_no_clash(pack_here, make_tree, tmp_path, transform):
    source = make_tree({f"{number}.txt": b"%d" % number for number in range(1, 31)})
    function = transform(
        "def work(sample):\n"
        "    key = sample['__key__']\n"
        "    return None if key == '2' else [sample, {**sample, '__key__': key + '-1'}] if key == '1' else sample\n"
    )
    out = str(tmp_path / "out")
    done = pack_here("build", source, out, "--no-shuffle", "--transform", function, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["skipped"] == {"transform": {"count": 1, "names": ["2"]}}
    assert json.loads(done.stdout)["num_samples"] == 30


def test_transform_that_drops_all_is_refused(pack_here, make_tree, numbered, tmp_path, transform):
    function = transform("def work(sample):\n    return None\n")
    done = pack_here("build", make_tree(numbered), str(tmp_path / "out"), "--transform", function)
    assert done.returncode == 66
    assert "left no sample in split(s) train" in done.stderr


def test_shards_whose_samples_were_all_dropped_are_no_shards(
    pack_here, make_tree, numbered, tmp_path, read_dataset, transform
):
    function = transform("def work(sample):\n    return sample if sample['txt'] == b'7' else None\n")
    out = str(tmp_path / "out")
    args = ("--transform", function, "--shard-size", "20000", "--quiet")
    assert pack_here("build", make_tree(numbered), out, *args).returncode == 0
    dataset = read_dataset(out)
    assert set(dataset.samples("train")) == {"c1/007"}
    assert dataset.manifest.num_shards == 1
    assert len([name for name in os.listdir(out) if name.endswith(".tar")]) == 1
    assert "already packed" in pack_here("build", str(tmp_path / "source"), out, *args).stdout


@pytest.mark.parametrize("text", ["nothing", "no.such.module:work", "json:nothing", "json:__name__", ":x", "x:"])
def test_functions_that_are_not_there_are_usage_errors(pack_here, make_tree, text):
    done = pack_here("plan", make_tree({"a.jpg": b"x"}), "--transform", text)
    assert done.returncode == 2
    assert "--transform" in done.stderr


def test_sample_that_the_format_cannot_hold_is_named(pack_here, make_tree, tmp_path, transform):
    function = transform("def work(sample):\n    return {**sample, '__key__': sample['__key__'] + 'x' * 5000}\n")
    done = pack_here("build", make_tree({"a.txt": b"1"}), str(tmp_path / "out"), "--transform", function)
    assert done.returncode == 65
    assert "of sample a: tar cannot hold it" in done.stderr
    assert "Traceback" not in done.stderr


def test_sample_that_outgrows_the_buffer_is_written_in_pieces(pack_here, make_tree, tmp_path, transform, read_dataset):
    function = transform("def work(sample):\n    return {'big': sample['txt'] * (17 * 1024 * 1024), 'small': 'x'}\n")
    out = str(tmp_path / "out")
    args = ("--transform", function, "--shard-size", "4096", "--quiet")
    assert pack_here("build", make_tree({"a.txt": b"1", "b.txt": b"2"}), out, *args).returncode == 0
    found = read_dataset(out).samples("train")
    assert {key: (len(sample["big"]), sample["big"][-1:]) for key, sample in found.items()} == {
        "a": (17 * 1024**2, b"1"),
        "b": (17 * 1024**2, b"2"),
    }
    assert pack_here("verify", out, "--deep").returncode == 0
