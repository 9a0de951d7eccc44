"""Whatever the bytes are, the tar decoder gives members or raises its own error, the same for every stream."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import FormatError, SampleGroupError
from shards.tar import TarLimits, read_files, read_members
from shards.tar.format import layout_sample, scan_samples
from shards.tar.header import is_header

CASES = Path(__file__).parents[1] / "data" / "cases"
MOST_BYTES = 64 * 1024
LIMITS = TarLimits(
    max_name_bytes=5000,
    max_metadata_bytes=50_000,
    max_sparse_extents=1000,
    max_hole_bytes=1 << 20,
    max_member_bytes=1 << 21,
)


class Pipe(io.BytesIO):
    """Cannot seek, gives short reads."""

    def seekable(self) -> bool:
        return False

    def read(self, size: int | None = -1) -> bytes:
        return super().read(size if size is None or size < 0 else min(size, 700))


def load_seeds() -> dict[str, bytes]:
    cases = json.loads((CASES / "cases.json").read_text(encoding="utf-8"))
    seeds = {case["id"]: (CASES / case["file"]).read_bytes() for case in cases if case["kind"] == "tar"}
    layout = layout_sample("d" * 300, [("jpg", 10), ("cls", 0)])
    own = bytearray(layout.size)
    for offset, piece in layout.literals:
        own[offset : offset + len(piece)] = piece
    seeds["own"] = bytes(own) + bytes(1024)
    return {name: seed for name, seed in seeds.items() if len(seed) <= MOST_BYTES}


SEEDS = load_seeds()

BYTES = st.one_of(
    st.binary(max_size=24),
    st.sampled_from(
        [
            b"\x80" + b"\xff" * 11,
            b"\xff" * 12,
            b"77777777777\0",
            b"00000000000\0",
            b"99 size=12\n",
            b"19 size=99999999999\n"[:19],
            b"22 GNU.sparse.major=1\n",
            b"x",
            b"g",
            b"L",
            b"S",
            b"1",
            b"\0" * 24,
        ]
    ),
)


def overwrite(data: bytearray, at: int, piece: bytes) -> None:
    data[at : at + len(piece)] = piece


def insert(data: bytearray, at: int, piece: bytes) -> None:
    data[at:at] = piece


def cut(data: bytearray, at: int, piece: bytes) -> None:
    del data[at:]


def drop_block(data: bytearray, at: int, piece: bytes) -> None:
    del data[at & -512 : (at & -512) + 512]


def repeat_block(data: bytearray, at: int, piece: bytes) -> None:
    data[at & -512 : at & -512] = data[at & -512 : (at & -512) + 512]


def rewrite_header(data: bytearray, at: int, piece: bytes) -> None:
    """Overwrite a part of the first header from here on and give it the right checksum, to get past that check."""
    for start in range(at & -512, len(data) - 511, 512):
        if is_header(bytes(data[start : start + 512])):
            # The fields that matter: size, typeflag, old sparse map.
            for field in (124, 156, 386, 482):
                if at % 4 == (124, 156, 386, 482).index(field):
                    data[start + field : start + field + len(piece)] = piece
            block = data[start : start + 512]
            data[start + 148 : start + 156] = b"%06o\0 " % (sum(block) - sum(block[148:156]) + 256)
            return


Mutation = Callable[[bytearray, int, bytes], None]
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from([overwrite, insert, cut, drop_block, repeat_block, rewrite_header]),
        st.integers(0, MOST_BYTES),
        BYTES,
    ),
    max_size=4,
)


def observe(items: Iterator[Any]) -> tuple[list[Any], str]:
    """Collect items and the message of the error that ends them. Any other exception fails the test."""
    seen: list[Any] = []
    try:
        seen.extend(items)
    except (FormatError, SampleGroupError) as error:
        return seen, str(error)
    return seen, ""


def assert_agree(seekable: tuple[list[Any], str], pipe: tuple[list[Any], str]) -> None:
    if seekable == pipe:
        return
    # A pipe cannot resolve hard links, so it may end at one. Damage of a compressed stream is found with the piece
    # it is in, so it may be found some members earlier or later.
    assert pipe[1]
    assert "hard link" in pipe[1] or (seekable[1] and " stream is " in pipe[1] + seekable[1])
    shorter = min(len(seekable[0]), len(pipe[0]))
    assert seekable[0][:shorter] == pipe[0][:shorter]


def check(data: bytes) -> None:
    streams: list[BinaryIO] = [io.BytesIO(data), Pipe(data)]
    walks = [observe(read_members(stream, "s.tar", limits=LIMITS)) for stream in streams]
    assert_agree(*walks)
    members, _ = walks[0]
    for member in members:
        assert 0 <= member.header_offset < member.offset
        assert member.stored_size == sum(size for _, size, _ in member.extents) or not member.extents
    streams = [io.BytesIO(data), Pipe(data)]
    files = [observe(read_files(stream, "s.tar", limits=LIMITS)) for stream in streams]
    assert_agree(*files)
    for member, content in files[0][0]:
        assert len(content) == member.size or member.link_name
    assert all(message.isprintable() for _, message in (*walks, *files))
    if not any(member.size > LIMITS.max_member_bytes for member in members):
        observe(scan_samples(io.BytesIO(data), "s.tar"))


@settings(deadline=None)
@given(st.sampled_from(sorted(SEEDS)), MUTATIONS)
def test_mutated_shard_gives_members_or_our_error(seed: str, mutations: list[tuple[Mutation, int, bytes]]) -> None:
    data = bytearray(SEEDS[seed])
    for mutate, at, piece in mutations:
        mutate(data, at % (len(data) + 1), piece)
    check(bytes(data))


@settings(deadline=None)
@given(st.binary(max_size=3000))
def test_random_bytes_give_our_error(data: bytes) -> None:
    check(data)
    members, error = observe(read_members(io.BytesIO(data), "s.tar"))
    assert error or data.count(0) == len(data)
    assert not members
