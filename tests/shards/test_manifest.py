import dataclasses
import json
import os
import pickle
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import FormatError, ManifestFormatError, UnsupportedVersionError
from shards.manifest import ExtensionEntry, Manifest, ShardEntry, SplitEntry, canonical_content

DIGEST = "blake3:" + "0123456789abcdef" * 4


def make_shard(name: str = "train-000000.tar", **changes: object) -> ShardEntry:
    values = {
        "name": name,
        "size_bytes": 10240,
        "digest": DIGEST,
        "num_samples": 3,
        "index_name": f"{name}.index.arrow",
        "index_size_bytes": 2000,
        "index_digest": DIGEST,
    }
    return ShardEntry(**{**values, **changes})


def make_split(name: str = "train", num_shards: int = 2, **changes: object) -> SplitEntry:
    values = {
        "name": name,
        "num_samples": 3 * num_shards,
        "size_bytes": 10240 * num_shards,
        "shards": tuple(make_shard(f"{name}-{place:06d}.tar") for place in range(num_shards)),
        "extensions": {"jpg": ExtensionEntry(num_present=3 * num_shards, num_missing=0, size_bytes=99)},
    }
    return SplitEntry(**{**values, **changes})


def make_manifest(**changes: object) -> Manifest:
    values = {
        "shard_format": "tar",
        "block_bytes": 8 << 20,
        "splits": (make_split("train", 4), make_split("val", 1)),
        "classes": ("cat", "dog"),
        "packer": {"shuffle_seed": None, "shard_size_bytes": 1 << 28, "nested": {"a": [1, 2.5, "x", True]}},
        "source": {"path": "images"},
    }
    return Manifest(**{**values, **changes})


def document() -> dict:
    return json.loads(make_manifest().to_json())


def refused(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    with pytest.raises(ManifestFormatError) as caught:
        Manifest.from_json(data, name="dir/manifest.json")
    assert "dir/manifest.json" in str(caught.value)
    assert str(caught.value).isprintable()
    return caught.value.reason


def test_a_manifest_is_the_same_after_a_round_trip() -> None:
    manifest = make_manifest()
    data = manifest.to_json()
    again = Manifest.from_json(data, name="m")
    assert again == manifest
    assert again.to_json() == data
    assert again.dataset_id == manifest.dataset_id
    assert pickle.loads(pickle.dumps(again)) == manifest
    assert data.endswith(b"}\n")
    assert data.isascii()


def test_totals_and_lookups() -> None:
    manifest = make_manifest()
    assert (manifest.num_samples, manifest.num_shards, manifest.size_bytes) == (15, 5, 51200)
    assert [(split.name, shard.name) for split, shard in manifest.shards()][-2:] == [
        ("train", "train-000003.tar"),
        ("val", "val-000000.tar"),
    ]
    assert manifest.split("val").num_samples == 3
    with pytest.raises(ValueError, match="train, val"):
        manifest.split("test")


def test_the_dataset_id_is_the_digest_of_the_documented_content() -> None:
    manifest = make_manifest(splits=(make_split("t", 1),), classes=("é",))
    expected = (
        '{"block_bytes":8388608,"classes":["\\u00e9"],"format_major_version":1,"shard_format":"tar","splits":[{"name":"t",'
        f'"shards":[{{"digest":"{DIGEST}","name":"t-000000.tar","num_samples":3,"size_bytes":10240}}]}}]}}'
    )
    assert canonical_content(manifest) == expected.encode()
    assert manifest.dataset_id == "blake3:7c993672ca7426915ffb1f1b35884afe329d21634b6c760ad1bb80a8fad98836"


def test_only_content_enters_the_dataset_id() -> None:
    manifest = make_manifest()
    same = [
        make_manifest(packer={"jobs": 2}),
        make_manifest(source={"path": "elsewhere"}),
        make_manifest(extra={"comment": "x"}),
        make_manifest(format_version="1.7"),
        make_manifest(splits=(make_split("train", 4, extensions={}), make_split("val", 1, extra={"a": 1}))),
        make_manifest(
            splits=tuple(
                dataclasses.replace(
                    split,
                    shards=tuple(
                        dataclasses.replace(shard, index_digest="blake3:" + "9" * 64, index_size_bytes=7)
                        for shard in split.shards
                    ),
                )
                for split in manifest.splits
            )
        ),
    ]
    other = [
        make_manifest(classes=("dog", "cat")),
        make_manifest(block_bytes=16 << 20),
        make_manifest(shard_format="tfrecord"),
        make_manifest(splits=manifest.splits[::-1]),
        make_manifest(splits=manifest.splits[:1]),
        make_manifest(splits=(make_split("Train", 4), make_split("val", 1))),
        make_manifest(splits=(make_split("train", 1, shards=(make_shard(digest="blake3:" + "9" * 64),)),)),
    ]
    assert {one.dataset_id for one in same} == {manifest.dataset_id}
    assert len({one.dataset_id for one in other} | {manifest.dataset_id}) == len(other) + 1


def test_the_file_does_not_depend_on_hash_seed_locale_or_time_zone() -> None:
    code = (
        "import sys; from shards.manifest import Manifest; "
        "sys.stdout.buffer.write(Manifest.from_json(sys.stdin.buffer.read(), name='m').to_json())"
    )
    data = make_manifest(extra={name: {"b": 1, "a": 2} for name in "qwertz"}).to_json()
    for seed, locale, zone in (("1", "C", "UTC"), ("2", "tr_TR.UTF-8", "Asia/Kolkata")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "TZ": zone, "PYTHONUTF8": "0"}
        result = subprocess.run(
            [sys.executable, "-c", code], input=data, capture_output=True, check=True, env=environment
        )
        assert result.stdout == data


def test_unknown_fields_survive_at_every_level() -> None:
    value = document()
    unknown = {"deep": [{"a": None}, 2**80, -0.5, "\udcff", []]}
    value["licence"] = unknown
    value["format_version"] = "1.9"
    value["splits"][0]["weights"] = unknown
    value["splits"][0]["shards"][1]["mirror"] = unknown
    value["splits"][1]["extensions"]["jpg"]["mime"] = "image/jpeg"
    value["packer"]["new"] = unknown
    again = Manifest.from_json(json.dumps(value).encode(), name="m")
    assert json.loads(again.to_json()) == value
    assert Manifest.from_json(again.to_json(), name="m") == again


@pytest.mark.parametrize("version", ["2.0", "10.3", "2.99"])
def test_a_newer_major_version_is_refused_naming_both(version: str) -> None:
    # Nothing but the version needs to make sense.
    data = json.dumps({"format_version": version, "splits": "moved elsewhere"}).encode()
    with pytest.raises(UnsupportedVersionError) as caught:
        Manifest.from_json(data, name="m")
    assert version in str(caught.value)
    assert "1.0" in str(caught.value)


@pytest.mark.parametrize(
    "version", ["0.9", "1", "1.", "v1.0", "1.0.0", "01.0", "1.0 ", "-1.0", "1.x", "", "²·0", "1.0\n"]
)
def test_a_version_that_is_none_is_refused(version: str) -> None:
    assert refused({**document(), "format_version": version}).startswith("format_version: expected 1.N")


@pytest.mark.parametrize(
    ("data", "mentions"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\xff{}", "not UTF-8 at byte 0"),
        (b'{"a": "\xc3"}', "not UTF-8 at byte 7"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"null", "expected an object, found null"),
        (b"[]", "expected an object, found an array"),
        (b"{}", "format_version: missing"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too large"),
        (b'{"a": 1, "a": 1}', "'a' appears twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"<html><title>403 Forbidden</title></html>", "no JSON, or cut"),
        (b"{'a': 1}", "no JSON"),
        (b"{} {}", "Extra data"),
        (b'{"a": 01}', "no JSON"),
        (b"\0" * 4096, "no JSON"),
    ],
)
def test_what_is_no_strict_json_is_refused(data: bytes, mentions: str) -> None:
    assert mentions in refused(data)


def test_the_same_key_twice_is_refused_at_any_depth() -> None:
    data = make_manifest().to_json()
    assert "'digest' appears twice" in refused(data.replace(b'"digest"', b'"digest": "x", "digest"', 1))


def test_a_cut_anywhere_is_refused() -> None:
    data = make_manifest(splits=(make_split("train", 1),)).to_json()
    for size in range(len(data) - 2):
        refused(data[:size])


def test_a_flipped_bit_is_refused_or_changes_nothing_that_counts() -> None:
    manifest = make_manifest(splits=(make_split("train", 1),))
    data = manifest.to_json()
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            try:
                read = Manifest.from_json(bytes(damaged), name="m")
            except FormatError:
                continue
            assert read.dataset_id == manifest.dataset_id
            assert canonical_content(read) == canonical_content(manifest)


NUMBER_PATHS = [
    "block_bytes",
    "splits[0].num_samples",
    "splits[1].size_bytes",
    "splits[0].shards[3].size_bytes",
    "splits[0].shards[3].num_samples",
    "splits[1].shards[0].index_size_bytes",
    "splits[0].extensions.jpg.num_present",
    "splits[0].extensions.jpg.num_missing",
    "splits[1].extensions.jpg.size_bytes",
]
STRING_PATHS = [
    "format_version",
    "dataset_id",
    "shard_format",
    "classes[1]",
    "splits[1].name",
    "splits[0].shards[2].name",
    "splits[0].shards[2].digest",
    "splits[0].shards[2].index_name",
    "splits[0].shards[2].index_digest",
]
ARRAY_PATHS = ["classes", "splits", "splits[0].shards"]
OBJECT_PATHS = [
    "splits[0]",
    "splits[0].shards[1]",
    "splits[0].extensions",
    "splits[0].extensions.jpg",
    "packer",
    "source",
]
WRONG = {
    "a string": "7",
    "null": None,
    "a boolean": True,
    "an integer": 7,
    "a number": 7.0,
    "an array": [],
    "an object": {},
}


def replaced(path: str, value: object) -> dict:
    root = document()
    *parents, last = [int(step) if step.isdigit() else step for step in re.findall(r"\w+", path)]
    node = root
    for step in parents:
        node = node[step]
    assert last in node or isinstance(last, int)
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return root


@pytest.mark.parametrize(
    ("path", "expected"),
    [(path, "an integer") for path in NUMBER_PATHS]
    + [(path, "a string") for path in STRING_PATHS]
    + [(path, "an array") for path in ARRAY_PATHS]
    + [(path, "an object") for path in OBJECT_PATHS],
)
def test_a_wrong_type_is_refused_naming_the_json_path(path: str, expected: str) -> None:
    for kind, value in WRONG.items():
        if kind != expected:
            assert refused(replaced(path, value)) == f"{path}: expected {expected}, found {kind}"
    if not path.endswith("]") and path != "splits[0].extensions.jpg":
        assert refused(replaced(path, ...)) == f"{path}: missing"


@pytest.mark.parametrize("path", NUMBER_PATHS)
def test_a_number_that_is_no_size_is_refused_naming_the_json_path(path: str) -> None:
    assert refused(replaced(path, -1)).startswith(f"{path}: ")
    assert refused(replaced(path, 2**63)).startswith(f"{path}: ")
    assert refused(replaced(path, 10**4000)).startswith(f"{path}: ")


@pytest.mark.parametrize("path", [path for path in STRING_PATHS if "digest" in path])
@pytest.mark.parametrize("text", ["", "0" * 64, "blake3:0", "blake3:" + "F" * 64, "md5:" + "0" * 64, DIGEST + "\n"])
def test_a_digest_that_is_none_is_refused(path: str, text: str) -> None:
    assert refused(replaced(path, text)).startswith(f"{path}: expected blake3:")


BAD_NAMES = [
    "",
    ".",
    "..",
    "/",
    "/etc/passwd",
    "../x.tar",
    "a/../x.tar",
    "a/..",
    "a//b.tar",
    "a/",
    "./a.tar",
    "a/./b.tar",
    "a\\b.tar",
    "..\\b.tar",
    "a\0.tar",
    "a\n.tar",
    "a\x1b[31m.tar",
    "a\x7f.tar",
    "a\x85.tar",
    "C:x.tar",
    "c:/x.tar",
    ".stage",
    ".stage/x.tar",
    "a/.hidden/x.tar",
    ".x.0123456789abcdef.partial",
    "manifest.json",
    "MANIFEST.JSON",
    "manifest.json/x.tar",
    "Manifest.json/a/x.tar",
    "manife\u017ft.json",
    "\udcff.tar",
    "\ud800.tar",
    "n" * 256,
    "é" * 128,
    "/".join(["d" * 100] * 11),
]


@pytest.mark.parametrize("name", ["", "tar\x1b[2J", "tar\nok", "\ud800", "t r", "a" * 65])
def test_a_format_name_that_no_program_should_print_is_refused(name: str) -> None:
    assert refused(replaced("shard_format", name)).startswith("shard_format: ")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_escaping_or_reserved_name_is_refused(name: str) -> None:
    for field in ("name", "index_name"):
        path = f"splits[0].shards[2].{field}"
        assert refused(replaced(path, name)).startswith(f"{path}: the name ")
        with pytest.raises(ValueError, match=field):
            make_shard(**{field: name})
    assert refused(replaced("splits[1].name", name)).startswith("splits[1].name: the name ")


@pytest.mark.parametrize(
    "name", ["part.00000/shard.00007.tar", "a b.tar", "日本語.tar", "-rf", "xy:z.tar", "é" * 121, "a.b/c"]
)
def test_a_plain_relative_name_is_accepted(name: str) -> None:
    manifest = make_manifest(splits=(make_split("train", 1, shards=(make_shard(name),)),))
    assert Manifest.from_json(manifest.to_json(), name="m") == manifest


def test_a_split_is_one_component() -> None:
    assert "slash" in refused(replaced("splits[1].name", "a/b"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.tar", "a.tar"),
        ("a.tar", "A.tar"),
        ("straße.tar", "STRASSE.tar"),
        ("\u00e9.tar", "e\u0301.tar"),
        ("\u00c9.tar", "e\u0301.tar"),
        ("a", "a/b"),
        ("a/b/c", "A"),
        ("a/b", "a/b/c/d"),
        ("b.tar.index.arrow", "b.tar"),
        ("B.tar.index.arrow", "b.tar"),
    ],
)
def test_names_that_are_one_file_on_some_filesystem_are_refused(first: str, second: str) -> None:
    shards = (make_shard("x.tar"), make_shard(first, index_name="1.arrow"), make_shard(second))
    with pytest.raises(ValueError, match="name") as caught:
        make_manifest(splits=(make_split("train", 3, shards=shards),))
    assert "splits[0].shards[2]" in str(caught.value)
    assert "splits[0].shards[1].name" in str(caught.value)


def test_a_name_used_in_two_splits_is_refused() -> None:
    value = document()
    value["splits"][1]["shards"][0]["name"] = "train-000002.tar"
    assert refused(value).startswith("splits[1].shards[0].name: the name 'train-000002.tar' is used twice")
    value = document()
    value["splits"][1]["shards"][0]["index_name"] = "train-000002.tar.index.arrow"
    assert refused(value).startswith("splits[1].shards[0].index_name: the name")
    assert refused(replaced("splits[1].name", "Train")).startswith("splits[1].name: the name 'Train' clashes")


@pytest.mark.parametrize(
    ("path", "value", "mentions"),
    [
        ("splits[0].num_samples", 13, "splits[0].num_samples: is 13, but the shards add up to 12"),
        ("splits[0].size_bytes", 0, "splits[0].size_bytes: is 0, but the shards add up to 40960"),
        ("splits[1].shards[0].num_samples", 4, "splits[1].num_samples: is 3, but the shards add up to 4"),
        ("splits[0].extensions.jpg.num_missing", 1, "splits[0].extensions.jpg: 12 present and 1 missing"),
        ("splits[0].shards", [], "splits[0].num_samples: is 12, but the shards add up to 0"),
        ("splits", [], "splits: name no shard at all"),
        ("block_bytes", 0, "block_bytes: must lie between"),
        ("block_bytes", 2**31, "block_bytes: must lie between"),
        ("shard_format", "", "shard_format: '' cannot name a format"),
        ("classes[1]", "cat", "classes: holds an empty name, or one twice"),
        ("classes[1]", "", "classes: holds an empty name, or one twice"),
        ("dataset_id", DIGEST, "the content has blake3:"),
        ("dataset_id", "", "the content has blake3:"),
        ("classes[1]", "wolf", "dataset_id: is"),
        ("splits[0].shards[1].digest", "blake3:" + "9" * 64, "dataset_id: is"),
    ],
)
def test_what_does_not_add_up_is_refused(path: str, value: object, mentions: str) -> None:
    assert mentions in refused(replaced(path, value))


def test_an_empty_extension_is_refused() -> None:
    value = document()
    value["splits"][0]["extensions"][""] = value["splits"][0]["extensions"].pop("jpg")
    assert "empty extension" in refused(value)


def test_control_characters_of_an_extension_do_not_reach_the_message() -> None:
    value = document()
    value["splits"][0]["extensions"]["\x1b[31mjpg"] = 7
    assert "\\x1b[31mjpg: expected an object" in refused(value)


def test_a_split_may_be_empty_beside_others() -> None:
    manifest = make_manifest(splits=(make_split("train", 1), make_split("val", 0)))
    assert Manifest.from_json(manifest.to_json(), name="m") == manifest


@pytest.mark.parametrize(
    "extra",
    [{"name": 1}, {"a": float("nan")}, {"a": float("inf")}, {"a": {1}}, {"a": b"x"}, {1: 2}, {"a": {None: 1}}],
)
def test_extra_fields_must_be_json_and_unknown(extra: dict) -> None:
    with pytest.raises(ValueError):
        make_shard(extra=extra)
    with pytest.raises(ValueError):
        make_manifest(extra={"dataset_id": "x"})


@pytest.mark.parametrize("depth", [60, 70, 400])
def test_nesting_of_what_we_keep_for_others_is_bounded(depth: int) -> None:
    nested: object = "end"
    for _ in range(depth):
        nested = {"a": [nested]} if depth == 400 else [nested]
    value = {**document(), "other": nested}
    if depth <= 64:
        again = Manifest.from_json(json.dumps(value).encode(), name="m")
        assert json.loads(again.to_json())["other"] == nested
    else:
        assert "nested" in refused(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3),
    max_leaves=10,
)


@given(other=JSON, classes=st.lists(st.text(min_size=1, max_size=4), unique=True, max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_json_beside_ours_survives(other: object, classes: list[str]) -> None:
    manifest = make_manifest(extra={"other": other}, source={"x": other}, classes=tuple(classes))
    again = Manifest.from_json(manifest.to_json(), name="m")
    assert again == manifest
    assert again.to_json() == manifest.to_json()


@given(JSON)
@settings(deadline=None)
def test_any_other_json_is_refused_as_one(value: object) -> None:
    with pytest.raises(FormatError):
        Manifest.from_json(json.dumps(value).encode(), name="m")


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_one(data: bytes) -> None:
    with pytest.raises(FormatError):
        Manifest.from_json(data, name="m")


def test_ten_thousand_shards_have_a_line_each_and_are_read_quickly() -> None:
    manifest = make_manifest(splits=(make_split("train", 10_000),))
    data = manifest.to_json()
    assert data.count(b"\n") < 10_100
    started = time.perf_counter()
    assert Manifest.from_json(data, name="m").num_shards == 10_000
    assert time.perf_counter() - started < 5  # 0.2 s on an idle core


def test_reading_a_manifest_loads_no_arrow() -> None:
    code = "import sys, shards.manifest; print({'pyarrow', 'numpy', 'fsspec'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"set()\n"
