"""What we think that the webdataset library sees in a name is what it sees."""

import io
import tarfile
import warnings

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from packer.foreign_view import webdataset_view


@pytest.fixture(scope="module")
def tariterators():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("webdataset.tariterators")


def seen_by_the_library(tariterators, name):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo(name)
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    stream.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        files = list(tariterators.tar_file_iterator(stream))
        try:
            samples = list(tariterators.group_by_keys({**file, "__url__": "u"} for file in files))
        except ValueError:
            return None  # a member that clashes with a field of the library's own
    fields = [(sample["__key__"], field) for sample in samples for field in sample if not field.startswith("__")]
    return fields[0] if fields else None


names = st.lists(
    st.sampled_from(["__", "_", "a", "B", ".", "/", "\n", "key", "data", "é", "%"]), min_size=1, max_size=9
)


@given(names.map("".join).filter(lambda name: name.strip("/") == name and "//" not in name))
@example("__data__/a.jpg")
@example("__a__.b__")
@example("a.__key__")
@example("v1.0\n/a.jpg")
@example("a.b/c\n/d.jpg")
@example("x/__y__/a.jpg")
def test_our_view_of_a_name_is_that_of_the_library(tariterators, name):
    ours = webdataset_view(name)
    # fields that begin like the library's own cannot be told from them in what it gives
    assert (None if ours and ours[1].startswith("__") else ours) == seen_by_the_library(tariterators, name)
