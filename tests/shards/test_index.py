import os
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.digests import BlockDigests
from shards.errors import IndexFormatError, UnsupportedVersionError
from shards.index import IndexBuilder, IndexedMember, ShardIndex, index_name

BLOCKS = BlockDigests(3 << 30, 1 << 30, (b"\x01" * 32, b"\x02" * 32, b"\x03" * 32))
SAMPLES = [
    ("a/0001", 0, [("jpg", 512, 100, 7), ("cls", 1536, 2, 8)]),
    ("a/0002", 2048, [("jpg", 2560, 200, 9)]),
    ("b/0001", 4096, []),
    ("b/0002", 6000, [("cls", 6512, 0, 0), ("seg.png", 7000, 30, 2**32 - 1), ("jpg", 512, 100, 7)]),
]


def build(samples: list, blocks: BlockDigests = BLOCKS) -> bytes:
    builder = IndexBuilder()
    for key, offset, members in samples:
        builder.add(key, offset, members)
    assert builder.num_samples == len(samples)
    return builder.finish(shard_name="train-000000.tar", format_name="tar", blocks=blocks)


def read(index: ShardIndex) -> list:
    return [
        (index.key(i), index.sample_offset(i), [tuple(member) for member in index.members(i)])
        for i in range(index.num_samples)
    ]


def rewrite(data: bytes, change) -> bytes:
    """The same index after ``change(batch)``, written by Arrow."""
    batch = change(pa.ipc.open_file(data).get_batch(0))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def with_metadata(data: bytes, **changes: str | None) -> bytes:
    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        metadata = {key.decode(): value for key, value in batch.schema.metadata.items()}
        metadata.update({key.replace("index_version", "shardferry.index"): value for key, value in changes.items()})
        return batch.replace_schema_metadata({key: value for key, value in metadata.items() if value is not None})

    return rewrite(data, change)


@pytest.fixture(scope="module")
def large() -> bytes:
    builder = IndexBuilder()
    for i in range(100_000):
        builder.add(f"{i:08d}", i << 10, (("jpg", (i << 10) + 512, 400, i), ("cls", (i << 10) + 1000, 1, 5)))
    return builder.finish(shard_name="train-000000.tar", format_name="tar", blocks=BLOCKS)


def test_what_was_added_is_read() -> None:
    with ShardIndex.from_bytes(build(SAMPLES), name="x") as index:
        assert read(index) == [(key, offset, list(members)) for key, offset, members in SAMPLES]
        assert index.members(1) == (IndexedMember("jpg", 2560, 200, 9),)
        assert index.extensions == ("jpg", "cls", "seg.png")
        assert index.header.shard_name == "train-000000.tar"
        assert index.header.format_name == "tar"
        assert index.header.blocks == BLOCKS
        assert index.num_samples == 4
        index.validate()


def test_no_samples_are_an_index_too() -> None:
    for blocks in (BLOCKS, BlockDigests(0, 1 << 30, ())):
        index = ShardIndex.from_bytes(build([], blocks), name="x")
        index.validate()
        assert (index.num_samples, index.extensions, index.find("a")) == (0, (), None)
        assert index.first_member.tolist() == [0]
        assert index.header.blocks == blocks


def test_samples_without_members_are_an_index_too() -> None:
    index = ShardIndex.from_bytes(build([("a", 0, []), ("b", 1, [])]), name="x")
    index.validate()
    assert index.members(1) == ()


def test_arrow_itself_reads_the_documented_columns() -> None:
    table = pa.ipc.open_file(build(SAMPLES)).read_all()
    fields = [
        "extension: dictionary<values=string, indices=int32, ordered=0> not null",
        "offset: uint64 not null",
        "size: uint32 not null",
        "crc32c: uint32 not null",
    ]
    assert [(field.name, str(field.type), field.nullable) for field in table.schema] == [
        ("key", "string", False),
        ("offset", "uint64", False),
        ("members", f"list<item: struct<{', '.join(fields)}> not null>", False),
    ]
    assert table.schema.metadata == {
        b"shardferry.index": b"1",
        b"format": b"tar",
        b"shard_name": b"train-000000.tar",
        b"shard_bytes": b"3221225472",
        b"block_bytes": b"1073741824",
        b"block_digests": b"01" * 32 + b"02" * 32 + b"03" * 32,
    }
    assert table.to_pylist()[0] == {
        "key": "a/0001",
        "offset": 0,
        "members": [
            {"extension": "jpg", "offset": 512, "size": 100, "crc32c": 7},
            {"extension": "cls", "offset": 1536, "size": 2, "crc32c": 8},
        ],
    }


def test_two_builds_give_the_same_bytes_in_any_process() -> None:
    code = (
        "import sys; from tempfile import mkdtemp\n"
        "from shards.index import IndexBuilder\nfrom shards.digests import BlockDigests\n"
        "b = IndexBuilder()\n"
        "for i in range(500): b.add(f'k{i}', i * 10, [(f'x{i * 7 % 90}', i * 10, 1, i), ('jpg', i * 10 + 1, 2, i)])\n"
        "sys.stdout.buffer.write(b.finish(shard_name='s', format_name='tar', blocks=BlockDigests(9, 9, (bytes(32),))))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "MALLOC_PERTURB_": seed},
        ).stdout
        for seed, locale in (("1", "C"), ("2", "C.UTF-8"))
    }
    assert len(outputs) == 1


def test_size_is_within_16_bytes_a_sample_20_a_member_and_the_key(large: bytes) -> None:
    budget = 100_000 * (16 + 2 * 20 + 8)
    assert budget <= len(large) <= budget + 4096
    one = len(build([("k", 0, [])])) - len(build([]))
    assert one <= 64


def test_thousands_of_extensions_cost_what_their_names_cost() -> None:
    samples = [("s", 0, [(f"extension-{i:05d}", i, 1, i) for i in range(5000)])]
    data = build(samples)
    assert len(data) < 5000 * (20 + 15 + 4) + 4096
    index = ShardIndex.from_bytes(data, name="x")
    index.validate()
    assert len(index.extensions) == 5000
    assert index.members(0)[4321] == IndexedMember("extension-04321", 4321, 1, 4321)


def test_keys_and_extensions_that_are_not_utf8() -> None:
    samples = [
        ("plain", 0, [("jpg", 0, 1, 0)]),
        ("caf\udce9", 5, [("j\udcffg", 5, 1, 0)]),
        ("é", 9, [("jpg", 9, 1, 0)]),
    ]
    data = build(samples)
    index = ShardIndex.from_bytes(data, name="x")
    index.validate()
    assert read(index) == samples
    assert [index.find(key) for key, *_ in samples] == [0, 1, 2]
    assert pa.ipc.open_file(data).schema.field("key").type == pa.binary()
    assert pa.ipc.open_file(build(samples[::2])).schema.field("key").type == pa.utf8()


def test_a_key_that_is_neither_text_nor_bytes_is_refused() -> None:
    with pytest.raises(ValueError):
        IndexBuilder().add("\ud800", 0, [])
    assert ShardIndex.from_bytes(build(SAMPLES), name="x").find("\ud800") is None


@pytest.mark.parametrize("member", [("jpg", -1, 1, 1), ("jpg", 2**64, 1, 1), ("jpg", 1, -1, 1), ("jpg", 1, 1, 2**32)])
def test_a_number_that_does_not_fit_is_refused(member: tuple) -> None:
    with pytest.raises(OverflowError):
        IndexBuilder().add("k", 0, [member])
    with pytest.raises(OverflowError):
        IndexBuilder().add("k", -1, [])


@pytest.mark.parametrize(("size", "dtype"), [(2**32 - 1, np.uint32), (2**32, np.uint64)])
def test_a_member_of_4_gib_widens_the_sizes(size: int, dtype: type) -> None:
    blocks = BlockDigests(2**33, 2**33, (bytes(32),))
    index = ShardIndex.from_bytes(build([("k", 0, [("bin", 512, size, 1), ("txt", 5, 6, 7)])], blocks), name="x")
    index.validate()
    assert index.member_sizes.dtype == dtype
    assert [member.size for member in index.members(0)] == [size, 6]


def test_columns_are_read_only_views_into_the_mapped_file(tmp_path: Path, large: bytes) -> None:
    path = tmp_path / "x.index.arrow"
    path.write_bytes(large)
    with ShardIndex.open(path) as index:
        views = {
            "sample_offsets": (index.sample_offsets, np.uint64, 100_000),
            "first_member": (index.first_member, np.int32, 100_001),
            "extension_codes": (index.extension_codes, np.int32, 200_000),
            "member_offsets": (index.member_offsets, np.uint64, 200_000),
            "member_sizes": (index.member_sizes, np.uint32, 200_000),
            "member_crc32cs": (index.member_crc32cs, np.uint32, 200_000),
        }
        mapped = [
            tuple(int(part, 16) for part in line.split(" ")[0].split("-"))
            for line in Path("/proc/self/maps").read_text().splitlines()
            if line.endswith(str(path))
        ]
        assert len(mapped) == 1
        for array, dtype, length in views.values():
            assert array.dtype == dtype
            assert len(array) == length
            assert not array.flags.writeable
            assert array.flags.aligned
            address = array.__array_interface__["data"][0]
            assert mapped[0][0] <= address <= address + array.nbytes <= mapped[0][1]
        codes = views["extension_codes"][0]
    assert codes[-1] == 1  # still mapped for who kept an array
    assert str(path) in Path("/proc/self/maps").read_text()
    views.clear()
    del codes, array
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_an_open_index_keeps_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "x.index.arrow"
    path.write_bytes(build(SAMPLES))
    before = len(os.listdir("/proc/self/fd"))
    indexes = [ShardIndex.open(path) for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before
    path.unlink()  # evicted while in use
    assert read(indexes[-1])[1][0] == "a/0002"


def test_opening_reads_none_of_the_columns(tmp_path: Path) -> None:
    """1 M samples of 2 members, 70 MB, open in a few milliseconds and touch a few pages."""
    count = 1_000_000
    builder = IndexBuilder()
    started = time.perf_counter()
    for i in range(count):
        builder.add(f"{i:07d}/{i:07d}", i << 10, (("jpg", (i << 10) + 512, 400, i), ("cls", (i << 10) + 1000, 1, 5)))
    per_sample = (time.perf_counter() - started) / count
    path = tmp_path / index_name("train-000000.tar")
    path.write_bytes(builder.finish(shard_name="train-000000.tar", format_name="tar", blocks=BLOCKS))
    code = (
        "import re, sys, time; from shards.index import ShardIndex; from pathlib import Path\n"
        "started = time.perf_counter(); index = ShardIndex.open(sys.argv[1]); took = time.perf_counter() - started\n"
        "smaps = Path('/proc/self/smaps').read_text().split(sys.argv[1])[1]\n"
        "print(index.num_samples, took, re.search(r'Rss: +(\\d+) kB', smaps)[1])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, check=True, text=True
        ).stdout.split()
        for _ in range(3)
    ]
    assert {run[0] for run in runs} == {"1000000"}
    assert min(float(run[1]) for run in runs) < 0.010
    # The kernel maps cached pages around each fault, up to 2 MB at a time; 70 MB would be all.
    assert min(int(run[2]) for run in runs) < 20_000
    assert per_sample < 15e-6  # 1.0e-6 on an idle core


def test_find_knows_every_key_and_no_other(large: bytes) -> None:
    index = ShardIndex.from_bytes(large, name="x")
    for i in random.Random(1).sample(range(100_000), 500):
        assert index.find(f"{i:08d}") == i
    for key in ("", "0", "00000000 ", "99999999", "\udcff"):
        assert index.find(key) is None


def test_numbers_out_of_range_are_index_errors() -> None:
    index = ShardIndex.from_bytes(build(SAMPLES), name="x")
    for number in (-1, 4, 2**70):
        for method in (index.key, index.members, index.sample_offset):
            with pytest.raises(IndexError):
                method(number)


def test_a_closed_index_says_so() -> None:
    index = ShardIndex.from_bytes(build(SAMPLES), name="x")
    index.close()
    index.close()
    for call in (lambda: index.key(0), lambda: index.num_samples, lambda: index.find("a"), lambda: pickle.dumps(index)):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_an_index_pickles_as_its_path_or_its_bytes(tmp_path: Path, large: bytes) -> None:
    path = tmp_path / "x.index.arrow"
    path.write_bytes(large)
    with ShardIndex.open(path) as index:
        assert len(pickle.dumps(index)) < 500
        with pickle.loads(pickle.dumps(index)) as other:
            assert other.key(77) == index.key(77)
    in_memory = pickle.loads(pickle.dumps(ShardIndex.from_bytes(memoryview(build(SAMPLES)), name="x")))
    assert read(in_memory) == [(key, offset, list(members)) for key, offset, members in SAMPLES]


def test_a_path_that_is_not_utf8_opens(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.index.arrow")
    Path(path).write_bytes(build(SAMPLES))
    with ShardIndex.open(path) as index:
        assert index.num_samples == 4
    Path(path).write_bytes(b"")
    with pytest.raises(IndexFormatError) as caught:
        ShardIndex.open(path)
    assert str(caught.value).isprintable()


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ShardIndex.open(tmp_path / "none")


KEY = st.text(st.sampled_from("abé/\udcff"), min_size=1, max_size=6)


@given(
    st.dictionaries(
        KEY,
        st.dictionaries(
            KEY, st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 2**32 - 1)), max_size=4
        ),
        max_size=12,
    )
)
@settings(deadline=None)
def test_round_trip(content: dict) -> None:
    samples = [
        (key, 3 * place, [(extension, *numbers) for extension, numbers in members.items()])
        for place, (key, members) in enumerate(content.items())
    ]
    index = ShardIndex.from_bytes(build(samples), name="x")
    index.validate()
    assert read(index) == samples
    assert [index.find(key) for key in content] == list(range(len(content)))


@pytest.mark.parametrize(
    ("samples", "mentions"),
    [
        ([("a", 5, []), ("b", 5, [])], "do not ascend"),
        ([("a", 5, []), ("b", 4, [])], "do not ascend"),
        ([("a", 3 << 30, [])], "behind the shard's end"),
        ([("a", 0, [("x", 3 << 30, 1, 0)])], "outside the shard"),
        ([("a", 0, [("x", (3 << 30) - 1, 2, 0)])], "outside the shard"),
        ([("a", 0, [("x", 2**64 - 1, 1, 0)])], "outside the shard"),
        ([("a", 0, [("x", 2**64 - 1, 2**33, 0)])], "outside the shard"),
        ([("a", 0, []), ("b", 1, [("x", 0, 1, 0), ("y", 0, 1, 0), ("x", 0, 1, 0)])], "sample 1 has an extension twice"),
        ([("a", 0, []), ("b", 1, []), ("a", 2, [])], "samples 0 and 2 have the same key"),
    ],
)
def test_validate_refuses_what_cannot_be(samples: list, mentions: str) -> None:
    with pytest.raises(IndexFormatError, match=mentions):
        ShardIndex.from_bytes(build(samples), name="x").validate()


def test_an_empty_member_at_the_end_of_the_shard_is_inside() -> None:
    ShardIndex.from_bytes(build([("a", 0, [("x", 3 << 30, 0, 0)])]), name="x").validate()


@pytest.mark.parametrize(
    ("changes", "mentions"),
    [
        ({"index_version": None}, "no shard index"),
        ({"index_version": "x"}, "not a count"),
        ({"index_version": "-1"}, "not a count"),
        ({"shard_bytes": "1e3"}, "not a count"),
        ({"shard_bytes": "²"}, "not a count"),
        ({"shard_bytes": "9" * 30}, "not a count"),
        ({"shard_bytes": "1"}, "1 blocks, not 3"),
        ({"block_bytes": "0"}, "no blocks"),
        ({"block_digests": "zz"}, "damaged"),
        ({"block_digests": "01" * 33}, "blocks, not 2"),
        ({"block_digests": "01" * 80}, "32 bytes"),
        ({"block_digests": None}, "lack block_digests"),
        ({"shard_name": None}, "lack shard_name"),
        ({"format": None}, "lack format"),
    ],
)
def test_damaged_metadata_are_refused(changes: dict, mentions: str) -> None:
    with pytest.raises(IndexFormatError, match=mentions):
        ShardIndex.from_bytes(with_metadata(build(SAMPLES), **changes), name="x")


def test_a_newer_version_is_refused_naming_both() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"version 2 .* up to 1"):
        ShardIndex.from_bytes(with_metadata(build(SAMPLES), index_version="2"), name="x")


def test_unknown_metadata_are_ignored() -> None:
    ShardIndex.from_bytes(with_metadata(build(SAMPLES), later="x"), name="x").validate()


def test_other_columns_compression_nulls_and_batches_are_refused() -> None:
    data = build(SAMPLES)
    batch = pa.ipc.open_file(data).get_batch(0)

    def written(schema: pa.Schema, *batches: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema, options=options) as writer:
            for one in batches:
                writer.write_batch(one)
        return bytes(sink.getvalue())

    nullable = pa.schema([batch.schema.field(0).with_nullable(True), *list(batch.schema)[1:]], batch.schema.metadata)
    null = pa.RecordBatch.from_pylist([{"key": None, "offset": 1, "members": []}], schema=batch.schema)
    cases = {
        "columns are not": written(nullable, batch.cast(nullable)),
        "columns are not those": rewrite(data, lambda batch: batch.select([0, 1])),
        "instead of one": written(batch.schema),
        "2 record batches": written(batch.schema, batch, batch),
        "compressed": written(batch.schema, batch, options=pa.ipc.IpcWriteOptions(compression="zstd")),
        "nulls": written(batch.schema, null),
    }
    for mentions, damaged in cases.items():
        with pytest.raises(IndexFormatError, match=mentions):
            ShardIndex.from_bytes(damaged, name="x")


def test_bytes_before_the_first_key_are_refused() -> None:
    data = build(SAMPLES)
    place = data.index(np.array([0, 6, 12, 18, 24], np.int32).tobytes())
    with pytest.raises(IndexFormatError, match="text column"):
        ShardIndex.from_bytes(data[:place] + b"\1" + data[place + 1 :], name="x")


def test_an_arrow_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    with pa.ipc.new_file(path, pa.schema([("a", pa.int64())])) as writer:
        writer.write_table(pa.table({"a": [1]}))
    with pytest.raises(IndexFormatError, match="an Arrow file, but no shard index"):
        ShardIndex.open(path)


FUZZ = """
import random, sys
from shards.errors import IndexFormatError, UnsupportedVersionError
from shards.index import IndexBuilder, ShardIndex
from shards.digests import BlockDigests

def build(count, tail, size):
    builder = IndexBuilder()
    for i in range(count):
        builder.add(f"k{i}{tail}", i * 100, [(f"e{j}", i * 100 + j, size + j, i) for j in range(i % 4)])
    return builder.finish(shard_name="s", format_name="tar", blocks=BlockDigests(2**34, 2**33, (bytes(32),) * 2))

def mutate(data, r):
    data, kind = bytearray(data), r.randrange(8)
    if kind == 0:
        return data[: r.randrange(len(data))]
    if kind == 1:
        return r.randbytes(r.randrange(1500))
    if kind == 2:
        return b"ARROW1\\0\\0" + r.randbytes(400) + r.randrange(500).to_bytes(4, "little") + b"ARROW1"
    for _ in range(r.choice((1, 1, 1, 2, 6))):
        place = r.randrange(len(data) - 8)
        if kind == 3:
            place &= ~7
            value = r.choice((0, 2**64 - 1, 2**63, 2**62, 2**40, len(data), r.randrange(2**64)))
            data[place : place + 8] = value.to_bytes(8, "little")
        elif kind == 4:
            place &= ~3
            value = r.choice((0, 1, 2**32 - 1, 2**31, 2**16, len(data), r.randrange(64), r.randrange(2**32)))
            data[place : place + 4] = value.to_bytes(4, "little")
        elif kind == 5:
            source, size = r.randrange(len(data)), r.randrange(1, 80)
            data[place : place + size] = data[source : source + size]
        else:
            data[place] ^= 1 << r.randrange(8)
    return data

def use(index):
    for i in range(index.num_samples):
        for call in (index.key, index.members, index.sample_offset):
            try:
                call(i)
            except IndexFormatError:
                if i > 300:
                    return
    index.find("k3")

seeds = [build(0, "", 0), build(6, "", 1), build(50, "\\udcff", 2**32), build(300, "", 9)]
outcomes = {"refused": 0, "damaged": 0, "valid": 0}
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    r = random.Random(seed)
    data = bytes(mutate(r.choice(seeds), r))
    print(seed, file=sys.stderr)
    try:
        index = ShardIndex.from_bytes(data, name="x")
    except (IndexFormatError, UnsupportedVersionError):
        outcomes["refused"] += 1
        continue
    try:
        use(index)
        index.validate()
        outcomes["valid"] += 1
    except IndexFormatError:
        outcomes["damaged"] += 1
        continue
    for i in range(index.num_samples):  # what was validated can be used
        assert index.find(index.key(i)) == i
        for member in index.members(i):
            assert 0 <= member.offset <= member.offset + member.size <= index.header.shard_bytes
print(outcomes)
"""


def fuzz(start: int, end: int) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
    result = subprocess.run(
        [sys.executable, "-c", limit + FUZZ, str(start), str(end)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{result.returncode} after {result.stderr[-2000:]}"
    outcomes = eval(result.stdout)
    assert min(outcomes.values()) > (end - start) / 20, outcomes


def test_no_damaged_file_crashes_the_process() -> None:
    fuzz(0, 4000)


@pytest.mark.slow
def test_no_damaged_file_crashes_the_process_however_many() -> None:
    for start in range(10_000, 210_000, 50_000):
        fuzz(start, start + 50_000)


def test_a_cut_anywhere_is_refused(tmp_path: Path) -> None:
    data = build(SAMPLES)
    path = tmp_path / "x.index.arrow"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(IndexFormatError):
            ShardIndex.open(path)
