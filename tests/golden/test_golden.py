"""Today's packer makes yesterday's bytes; today's readers read every format version that was ever written."""

import runpy
from pathlib import Path

import pytest

from loaders import open_dataset
from shards.formats import find_format
from shards.index import ShardIndex
from shards.manifest import MANIFEST_NAME, Manifest

HERE = Path(__file__).parent
CURRENT = HERE / "1.0"
FORMATS = ("tar", "tfrecord")
EVERY_GOLDEN = sorted(path.parent for path in HERE.glob("*/*/manifest.json"))


@pytest.fixture(scope="module")
def generator():
    return runpy.run_path(str(HERE / "generate.py"))


@pytest.fixture(scope="module")
def packed_today(generator, tmp_path_factory):
    directory = tmp_path_factory.mktemp("golden")
    generator["generate"](directory)
    return directory


def read_manifest(directory):
    return Manifest.from_json((directory / MANIFEST_NAME).read_bytes(), name=str(directory))


def describe_index(path):
    with ShardIndex.open(str(path)) as index:
        index.validate()
        rows = [(index.key(i), index.sample_offset(i), index.members(i)) for i in range(index.num_samples)]
        return index.header, rows


@pytest.mark.parametrize("shard_format", FORMATS)
def test_todays_packer_makes_the_committed_shards_byte_for_byte(packed_today, shard_format):
    expected, actual = CURRENT / shard_format, packed_today / shard_format
    suffix = find_format(shard_format, where="test").suffix
    names = sorted(path.name for path in expected.glob(f"*{suffix}"))
    assert names == sorted(path.name for path in actual.glob(f"*{suffix}"))
    for name in names:
        assert (actual / name).read_bytes() == (expected / name).read_bytes(), name


@pytest.mark.parametrize("shard_format", FORMATS)
def test_todays_packer_makes_the_committed_dataset_id_and_index_content(packed_today, shard_format):
    expected, actual = CURRENT / shard_format, packed_today / shard_format
    manifest = read_manifest(expected)
    assert read_manifest(actual).dataset_id == manifest.dataset_id
    for _, shard in manifest.shards():
        # Content, not bytes: another release of Arrow may encode the same table differently.
        assert describe_index(actual / shard.index_name) == describe_index(expected / shard.index_name)


@pytest.mark.parametrize("directory", EVERY_GOLDEN, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_golden_dataset_is_read_with_the_bytes_of_its_source(directory, generator, tmp_path):
    generator["write_source"](tmp_path)
    classes = read_manifest(directory).classes
    seen = {}
    for split in read_manifest(directory).splits:
        with open_dataset(str(directory), split=split.name, check="full") as dataset:
            for sample in dataset:
                for extension in sample:
                    seen[f"{sample.key}.{extension}"] = bytes(sample[extension])
    source = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    by_lower_case = {f"{path.parent}/{path.stem}{path.suffix.lower()}": path for path in source}
    labels = {name: data for name, data in seen.items() if name.endswith(".cls")}
    assert {name for name in seen if name not in labels} == set(by_lower_case)
    for name, path in by_lower_case.items():
        assert seen[name] == (tmp_path / path).read_bytes(), name
        assert classes[int(labels[f"{name.rpartition('.')[0]}.cls"])] == path.parts[0]


@pytest.mark.parametrize("directory", EVERY_GOLDEN, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_golden_shard_holds_what_its_index_says(directory):
    manifest = read_manifest(directory)
    scan = find_format(manifest.shard_format, where="test").scan_samples
    for _, shard in manifest.shards():
        with (directory / shard.name).open("rb") as stream:
            scanned = [
                (sample.key, sample.offset, [(m.extension, m.offset, m.size, m.crc32c) for m in sample.members])
                for sample in scan(stream, shard.name)
            ]
        _, rows = describe_index(directory / shard.index_name)
        assert scanned == [(key, offset, [tuple(member) for member in members]) for key, offset, members in rows]
