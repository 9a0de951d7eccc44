import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.columns import BytesColumn, TextColumn
from packer.sample_table import SampleTable

texts = st.lists(st.text().filter(lambda text: not any("\ud800" <= char <= "\udfff" for char in text)))


@given(st.lists(st.binary()))
def test_column_of_bytes_is_like_a_list(values):
    column = BytesColumn(values)
    assert list(column) == values
    assert column == values
    assert len(column) == len(values)
    assert [column[number] for number in range(-len(values), len(values))] == values * 2
    assert column[1:-1] == values[1:-1]
    assert column[::-2] == values[::-2]


@given(texts)
def test_column_of_text_is_like_a_list(values):
    column = TextColumn(values)
    assert list(column) == values
    assert [column[number] for number in range(-len(values), len(values))] == values * 2
    assert column[::-1] == values[::-1]
    assert (column == values[1:]) is (not values)


def test_undecodable_bytes_survive_in_text():
    assert TextColumn(["a\udce9b"])[0] == "a\udce9b"


@pytest.mark.parametrize("number", [2, -3])
def test_no_value_beyond_the_ends(number):
    with pytest.raises(IndexError):
        BytesColumn([b"a", b"b"])[number]


@given(st.lists(st.text("aAbB")), st.sampled_from([hash, len, lambda _: 0, lambda text: -len(text)]))
def test_keys_are_numbered_as_by_a_dictionary_whatever_the_hash(keys, hash_of):
    table, numbers = SampleTable(str.lower, hash_of), {}
    for key in keys:
        assert table.find_or_add(key) == numbers.setdefault(key.lower(), len(numbers))
    assert [key.lower() for key in table.keys] == list(numbers)
