"""What every source promises, whatever it is."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

import pytest

from packer.build import build
from packer.config import PackConfig
from packer.preview import preview_build
from packer.sources.files import INLINE
from packer.sources.names import Globs
from packer.sources.options import SourceOptions
from packer.stop import StopFlag
from shards.digests import crc32c
from shards.errors import PackError, SourceChangedError, SourceError, StoppedError


def scan(kept):
    return kept.source().scan(lambda: None)


def read_all(found, reader):
    data = {}
    locators = found.files.paths if found.files.locators is None else found.files.locators
    for file, locator in zip(found.files, locators, strict=True):
        if file.stamp == INLINE:
            data[file.path.decode()] = locator
            continue
        target = memoryview(bytearray(file.size_bytes + 8))
        crc = reader.read_into(locator, file.size_bytes, file.stamp, target, 4)
        read = bytes(target[4:-4])
        assert crc == crc32c(read)
        assert bytes(target[:4]) == bytes(target[-4:]) == bytes(4), "a neighbour was written to"
        assert b"".join(reader.pieces(locator, file.size_bytes, file.stamp)) == read
        data[file.path.decode()] = read
    return data


class Silent:
    def advance(self, **_):
        pass


def pack(kept, destination, **options):
    config = PackConfig(
        source=kept.path,
        destination=str(destination),
        shard_size_bytes=12 * 1024 * 1024,
        source_options=SourceOptions(**kept.options),
        **options,
    )
    return build(config, preview_build(config, StopFlag()), StopFlag(), lambda *_: nullcontext(Silent()))


def test_every_member_is_found_and_read_back(keep, files):
    found = scan(keep(files))
    reader = found.origin.open_reader()
    assert read_all(found, reader) == files
    reader.close()


def test_names_come_in_byte_order_however_the_source_is_ordered(keep, files):
    forward = scan(keep(files)).files
    backward = scan(keep(dict(reversed(files.items())))).files
    assert forward.paths == backward.paths == sorted(name.encode() for name in files)
    assert forward.sizes == backward.sizes


def test_origin_travels_to_another_process_and_opens_nothing_before(keep, files):
    found = scan(keep(files))
    data = pickle.dumps(found.origin)
    assert len(data) < 1000
    reader = pickle.loads(data).open_reader()
    assert read_all(found, reader) == files
    reader.close()


def test_threads_share_a_reader(keep, files):
    found = scan(keep(files))
    reader = found.origin.open_reader()
    with ThreadPoolExecutor(4) as pool:
        for data in pool.map(lambda _: read_all(found, reader), range(4)):
            assert data == files
    reader.close()


@pytest.mark.parametrize("data", [b'{"n": 7}', b"longer than it was before", b""], ids=["same size", "longer", "empty"])
def test_change_after_the_scan_is_an_error_that_names_what_changed(keep, files, data):
    kept = keep(files)
    found = scan(kept)
    reader = found.origin.open_reader()
    kept.change("cats/1.json", data)
    with pytest.raises(SourceChangedError) as caught:
        read_all(found, reader)
    assert caught.value.expected != caught.value.actual
    reader.close()


def test_source_that_went_away_is_an_error(keep, files):
    kept = keep(files)
    found = scan(kept)
    kept.remove()
    reader = found.origin.open_reader()
    with pytest.raises(PackError):
        read_all(found, reader)
    reader.close()


def test_leftovers_are_left_out_and_counted(keep, files):
    leftovers = {".hidden": b"1", "cats/._1.jpg": b"2", "cats/.DS_Store": b"3", "dogs/.nfs0001": b"4"}
    kept = keep({**files, **leftovers})
    if not kept.has_names:
        pytest.skip("holds only what it was asked to hold")
    found = scan(kept)
    assert found.files.paths == sorted(name.encode() for name in files)
    assert {reason.value: count for reason, count in found.skips.counts.items()} == {
        "hidden": 1,
        "apple-double": 2,
        "nfs-leftover": 1,
    }


def test_globs_leave_out_and_count(keep, files):
    kept = keep(files)
    if not kept.has_names:
        with pytest.raises(SourceError, match="--include, --exclude mean"):
            replace(kept, options={"globs": Globs(("*.jpg",), ("cats",))}).source()
        return
    options = {**kept.options, "globs": Globs(include=("*.jpg", "*.json"), exclude=("cats",))}
    found = replace(kept, options=options).source().scan(lambda: None)
    assert found.files.paths == [b"dogs/big.jpg", "dogs/é.jpg".encode(), "dogs/é.json".encode()]
    assert found.skips.counts["excluded"] >= 2


def test_scan_can_be_stopped(keep, files):
    def stop():
        raise StoppedError("SIGTERM")

    with pytest.raises(StoppedError):
        keep(files).source().scan(stop)


def test_shards_hold_what_the_source_holds_with_any_number_of_jobs(keep, files, tmp_path, read_dataset):
    kept = keep(files)
    one = pack(kept, tmp_path / "one", jobs=1)
    if not kept.path.startswith("memory:"):  # which is there for one process only
        assert pack(kept, tmp_path / "two", jobs=2).dataset_id == one.dataset_id
    samples = read_dataset(tmp_path / "one").samples("train")
    assert {f"{key}.{ext}": data for key, members in samples.items() for ext, data in members.items()} == files
    assert read_dataset(tmp_path / "one").manifest.source["kind"] == kept.source().kind


def test_repeated_build_finds_all_done(keep, files, tmp_path):
    kept = keep(files)
    assert pack(kept, tmp_path / "out", jobs=1).is_new
    assert not pack(kept, tmp_path / "out").is_new
