"""tf.data gives the same samples as the index, for both formats, in the same order."""

import importlib
import os
import warnings

import pytest

import loaders


@pytest.fixture(scope="module")
def tf():
    """TensorFlow; its import warns about things that are not ours."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensorflow = pytest.importorskip("tensorflow")
        # its lazy parts are imported at first use and warn as well
        list(tensorflow.data.Dataset.range(1))
    return tensorflow


@pytest.fixture(scope="module")
def framework(tf):
    """Our module for TensorFlow, imported when TensorFlow is."""
    return importlib.import_module("loaders.tensorflow")


def elements(dataset):
    return [
        {name: value.item() if hasattr(value, "item") else value for name, value in element.items()}
        for element in dataset.as_numpy_iterator()
    ]


def expected(samples, extensions=("cls", "jpg", "seg.png")):
    return [
        {
            "__key__": os.fsencode(key),
            **{extension: members.get(extension, b"") for extension in extensions},
        }
        for key, members in samples
    ]


def test_elements_are_the_samples_in_order(tf, framework, built):
    with loaders.open_dataset(built.path) as dataset:
        elements_of_split = framework.dataset(dataset)
        assert elements_of_split.cardinality() == 23
        assert elements_of_split.element_spec == {
            name: tf.TensorSpec([], tf.string) for name in ("__key__", "cls", "jpg", "seg.png")
        }
        assert elements(elements_of_split) == expected(built.samples)
        assert elements(elements_of_split) == expected(built.samples)


def test_slices_keep_their_order(framework, built):
    with loaders.open_dataset(built.path) as dataset:
        for part in (slice(3, 19), slice(None, None, -2), slice(5, 5)):
            assert elements(framework.dataset(dataset[part])) == expected(built.samples[part])


def test_only_the_wanted_extensions_are_read(framework, built):
    dataset = framework.dataset(built.path, split="train", extensions=["cls"])
    assert elements(dataset) == expected(built.samples, ["cls"])
    with pytest.raises(ValueError, match=r"no such extension: txt; the split has: cls, jpg, seg\.png"):
        framework.dataset(built.path, extensions=["cls", "txt"])


def test_bytes_are_kept_whatever_they_are(framework, build, tmp_path):
    samples = [
        (os.fsdecode(b"k\xff\xe9"), {"bin": b"tail\0\0", "x": b""}),
        ("sch\u00f6n", {"bin": b"\0", "x": bytes(range(256))}),
    ]
    for format_name in ("tar", "tfrecord"):
        built = build(tmp_path / format_name, {"all": samples}, format_name=format_name)
        assert elements(framework.dataset(built.path)) == expected(samples, ["bin", "x"])


def test_more_samples_than_a_read_takes(framework, build, samples_of, tmp_path):
    samples = samples_of(2 * framework.BATCH_SAMPLES + 1)
    built = build(tmp_path / "long", {"all": samples}, shard_samples=50)
    dataset = framework.dataset(built.path).batch(32)
    assert sum(len(batch["cls"]) for batch in dataset.as_numpy_iterator()) == len(samples)


def test_split_and_cache_are_only_for_opening(framework, built):
    with loaders.open_dataset(built.path) as dataset, pytest.raises(ValueError, match="pass only one of both"):
        framework.dataset(dataset, split="train")
