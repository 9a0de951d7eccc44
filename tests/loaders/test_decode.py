"""Members decoded by their extensions."""

import io
import json
import pickle

import numpy as np
import pytest

from loaders.decode import Decode
from loaders.sample import MemoryStore, Sample
from shards.errors import DecodeError, MissingMemberError


def sample_of(**members):
    members = {name.replace("__", "."): data for name, data in members.items()}
    return Sample(MemoryStore("roses/0001", members), 0, 0)


def encode_png(color=(200, 10, 30)):
    image = pytest.importorskip("PIL.Image").new("RGB", (4, 3), color)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def encode_npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def test_a_sample_becomes_a_dict_of_decoded_members():
    found = Decode()(
        sample_of(
            png=encode_png(), cls=b"7", txt="grün".encode(), json=b'{"a": [1, 2.5]}', jsonl=b"1\n\n[2]\n", xyz=b"raw"
        )
    )
    assert found.pop("png").getpixel((0, 0)) == (200, 10, 30)
    assert found == {
        "__key__": "roses/0001",
        "cls": 7,
        "txt": "grün",
        "json": {"a": [1, 2.5]},
        "jsonl": [1, [2]],
        "xyz": b"raw",
    }


def test_arrays():
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    packed = io.BytesIO()
    np.savez(packed, a=array, b=array[0])
    found = Decode()(sample_of(npy=encode_npy(array), npz=packed.getvalue()))
    np.testing.assert_array_equal(found["npy"], array)
    assert found["npy"].dtype == np.int16
    np.testing.assert_array_equal(found["npz"]["b"], array[0])


def test_tensors():
    torch = pytest.importorskip("torch")
    buffer = io.BytesIO()
    torch.save({"x": torch.arange(3)}, buffer)
    assert Decode()(sample_of(pth=buffer.getvalue()))["pth"]["x"].tolist() == [0, 1, 2]


class Bomb:
    """Says so when it is unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


@pytest.mark.parametrize("extension", ["npy", "npz", "pt", "pth", "json", "txt", "png"])
def test_no_pickle_is_ever_loaded(extension):
    data = encode_npy(np.array([Bomb()], dtype=object)) if extension == "npy" else pickle.dumps(Bomb())
    with pytest.raises(DecodeError, match=extension):
        Decode()(sample_of(**{extension: data}))


def test_pickles_stay_bytes_unless_asked_for_by_name():
    data = pickle.dumps([1])
    assert Decode()(sample_of(pkl=data, pyd=data)) == {"__key__": "roses/0001", "pkl": data, "pyd": data}
    assert Decode(pkl=pickle.loads)(sample_of(pkl=data))["pkl"] == [1]


def test_decoders_are_overridden_by_name_and_compound_extensions_by_their_end():
    sample = sample_of(png=b"1", left__png=b"2", mask__png=b"3", cls=b"x")
    found = Decode({"mask.png": bytes.hex}, png=len, cls=None)(sample)
    assert found == {"__key__": "roses/0001", "png": 1, "left.png": 1, "mask.png": "33", "cls": b"x"}


def test_a_tuple_reads_only_what_is_wanted(built_alternatives):
    wanted = Decode(jpg=bytes.decode, png=bytes.decode).to_tuple("jpg;png", "cls", "__key__")
    assert [wanted(sample) for sample in built_alternatives] == [("a", 0, "k0"), ("b", 1, "k1")]


@pytest.fixture
def built_alternatives(tmp_path, build):
    from loaders import open_dataset

    samples = [
        ("k0", {"cls": b"0", "jpg": b"a", "json": b"{damaged"}),
        ("k1", {"cls": b"1", "json": b"{damaged", "png": b"b"}),
    ]
    build(str(tmp_path / "ds"), {"train": samples})
    with open_dataset(tmp_path / "ds") as dataset:
        yield dataset


def test_a_member_that_is_not_there_lists_those_that_are(built_alternatives):
    with pytest.raises(MissingMemberError, match=r"k0 has no member wav or flac; it has: cls, jpg, json"):
        Decode().to_tuple("wav;flac")(built_alternatives[0])


def test_an_error_names_sample_shard_and_offset(built_alternatives):
    with pytest.raises(
        DecodeError, match=r"member json of sample k1 \(.*train-000000\.tar at byte offset \d+\).*JSON"
    ) as caught:
        Decode().to_tuple("json")(built_alternatives[1])
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.key, again.extension) == (str(caught.value), "k1", "json")


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(DecodeError, match="soundfile is not installed: pip install soundfile"):
        Decode()(sample_of(wav=b"RIFF"))


@pytest.mark.parametrize("data", [b"", b"seven", b"\xff"])
def test_what_is_no_number_is_an_error(data):
    with pytest.raises(DecodeError, match="cls"):
        Decode()(sample_of(cls=data))


def test_transforms_can_be_pickled():
    decode = Decode(png=None)
    assert pickle.loads(pickle.dumps(decode.to_tuple("png")))(sample_of(png=b"x")) == (b"x",)
    assert json.dumps(pickle.loads(pickle.dumps(decode))(sample_of(cls=b"1")))
