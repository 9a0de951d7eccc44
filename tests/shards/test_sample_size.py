import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.formats import FORMATS

keys = st.one_of(
    st.text("ab./\0é", max_size=8),
    st.integers(80, 120).map(lambda length: "k" * length),
    st.integers(80, 300).map(lambda length: "d" * (length // 2) + "/" + "k" * (length - length // 2)),
    st.text(),
).filter(lambda text: not any("\ud800" <= char <= "\udfff" for char in text))
extensions = st.one_of(st.sampled_from(["jpg", "JPG", "cls", "left.png", "", "a/b", "a\0", "é", "e" * 20]))
sizes = st.one_of(st.integers(0, 2000), st.sampled_from([-1, 511, 512, 513, 8**11 - 1, 8**11, 2**70]))


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
