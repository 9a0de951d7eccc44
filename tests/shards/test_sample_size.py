from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.formats import FORMATS
from shards.sample_columns import SampleColumns

keys = st.one_of(
    st.text("ab./\0é", max_size=8),
    st.integers(80, 120).map(lambda length: "k" * length),
    st.integers(80, 300).map(lambda length: "d" * (length // 2) + "/" + "k" * (length - length // 2)),
    st.text(),
).filter(lambda text: not any("\ud800" <= char <= "\udfff" for char in text))
extensions = st.one_of(st.sampled_from(["jpg", "JPG", "cls", "left.png", "", "a/b", "a\0", "é", "e" * 20]))
sizes = st.one_of(st.integers(0, 2000), st.sampled_from([-1, 511, 512, 513, 8**11 - 1, 8**11, 2**70]))
columns_sizes = st.one_of(
    st.integers(0, 2000), st.sampled_from([511, 512, 2**14, 2**21, 2**31, 8**11 - 1, 8**11, 2**62])
)


@pytest.mark.parametrize("name", FORMATS)
@given(key=keys, members=st.lists(st.tuples(extensions, sizes), max_size=4))
def test_size_is_that_of_the_layout_or_the_same_refusal(name, key, members):
    def ask(function):
        try:
            return function(key, members)
        except ValueError as error:
            return str(error)

    layout = ask(FORMATS[name].layout_sample)
    assert ask(FORMATS[name].sample_size) == (layout if isinstance(layout, str) else layout.size)


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data(), samples=st.lists(st.tuples(keys, st.integers(0, 3)), max_size=6))
def test_sizes_of_many_samples_are_those_of_each(name, data, samples):
    names = data.draw(st.lists(extensions, min_size=3, max_size=6, unique=True))
    codes = [code for _, count in samples for code in data.draw(st.permutations(range(len(names))))[:count]]
    member_sizes = data.draw(st.lists(columns_sizes, min_size=len(codes), max_size=len(codes)))
    raw = [key.encode() for key, _ in samples]
    columns = SampleColumns(
        key_data=b"".join(raw),
        key_bounds=np.array([0, *accumulate(map(len, raw))], np.uint64),
        first_member=np.array([0, *accumulate(count for _, count in samples)], np.uint32),
        extensions=tuple(names),
        codes=np.array(codes, np.uint32),
        sizes=np.array(member_sizes, np.uint64),
    )
    found = FORMATS[name].sample_sizes(columns).tolist()
    assert len(found) == len(samples)
    for (key, _), size, start, end in zip(samples, found, columns.first_member, columns.first_member[1:], strict=False):
        members = [(names[code], int(member)) for code, member in zip(codes[start:end], member_sizes[start:end])]
        try:
            expected = FORMATS[name].sample_size(key, members)
        except ValueError:
            expected = 0
        assert size in (0, expected)


@pytest.mark.parametrize("name", FORMATS)
def test_sizes_of_usual_samples_need_no_second_look(name):
    columns = SampleColumns(
        key_data="a/0b/é".encode(),
        key_bounds=np.array([0, 3, 7]),
        first_member=np.array([0, 1, 3]),
        extensions=("cls", "jpg"),
        codes=np.array([1, 0, 1]),
        sizes=np.array([20_000, 1, 0]),
    )
    sample_size = FORMATS[name].sample_size
    expected = [sample_size("a/0", [("jpg", 20_000)]), sample_size("b/é", [("cls", 1), ("jpg", 0)])]
    assert FORMATS[name].sample_sizes(columns).tolist() == expected
