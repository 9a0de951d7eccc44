"""Packed datasets as ``tf.data.Dataset``.

::

    import loaders.tensorflow

    dataset = loaders.tensorflow.dataset("/data/flowers", split="train")
    dataset = dataset.map(lambda sample: (tf.io.decode_jpeg(sample["jpg"]), sample["cls"])).batch(64).prefetch(2)

An element is ``{"__key__": tf.string, extension: tf.string, …}``, scalars, with a field for each extension that occurs
in the split. A member that a sample does not have is an empty string. Tar and TFRecord shards give the same elements
in the same order, the order of the shards.

This module alone imports TensorFlow.
"""

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from loaders.dataset import Dataset, open_dataset
from shards.example_shape import FOREIGN_EXTENSIONS
from shards.formats import find_format

try:
    import tensorflow as tf
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "tensorflow":
        raise
    raise ModuleNotFoundError(
        "loaders.tensorflow needs TensorFlow, which is not installed: pip install 'shardferry[tensorflow]'",
        name="tensorflow",
    ) from None

KEY_FIELD = "__key__"
"""Field of a sample's key: a feature of that name in our TFRecords."""

BATCH_SAMPLES = 64
"""Samples that are read per call into Python: enough to make the call cheap, few enough to start soon."""


def dataset(
    source: Dataset | str | os.PathLike[str],
    *,
    split: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    extensions: Sequence[str] | None = None,
) -> "tf.data.Dataset":
    """Give a split as a ``tf.data.Dataset`` of known length.

    Whole splits of TFRecord shards are read by TensorFlow itself; tar shards and slices are read through the index.

    Args:
        source: an open dataset (or a slice of one), or what :func:`loaders.open_dataset` takes. A dataset opened here
            holds its lease until the process ends; open it yourself to decide when.
        split: for opening; may be left out when there is only one.
        cache_dir: for opening by id.
        extensions: the fields wanted besides the key; all when None. Fewer fields are less to read.

    Raises:
        ValueError: an extension does not occur in the split, or a split or cache directory was given with an open
            dataset.
    """
    if isinstance(source, Dataset):
        if split is not None or cache_dir is not None:
            raise ValueError("an open dataset has its split and directory already; pass only one of both")
        opened = source
    else:
        opened = open_dataset(source, split=split, cache_dir=cache_dir)
    wanted = opened.extensions if extensions is None else tuple(extensions)
    unknown = sorted(set(wanted) - set(opened.extensions))
    if unknown:
        raise ValueError(f"no such extension: {', '.join(unknown)}; the split has: {', '.join(opened.extensions)}")
    shard_format = find_format(opened.info.shard_format, where=opened.info.directory)
    # records of others hold features of their own; their one member is the whole record, which only the index gives
    is_ours = FOREIGN_EXTENSIONS.isdisjoint(opened.extensions)
    is_native = shard_format.has_example_records and is_ours and opened.is_whole_split
    elements = _parse_records(opened, wanted) if is_native else _read_through_index(opened, wanted)
    return elements.apply(tf.data.experimental.assert_cardinality(len(opened)))


def _parse_records(opened: Dataset, extensions: Sequence[str]) -> "tf.data.Dataset":
    features = {name: tf.io.FixedLenFeature([], tf.string, default_value="") for name in (KEY_FIELD, *extensions)}
    paths = [shard.path for shard in opened.shards]

    def parse(record: "tf.Tensor") -> "dict[str, tf.Tensor]":
        return tf.io.parse_single_example(record, features)  # type: ignore[no-any-return]

    return tf.data.TFRecordDataset(paths).map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _read_through_index(opened: Dataset, extensions: Sequence[str]) -> "tf.data.Dataset":
    fields = (KEY_FIELD, *extensions)

    def read_batch(first: np.int64) -> list[npt.NDArray[np.object_]]:
        start = int(first)
        samples = [opened[position] for position in range(start, min(start + BATCH_SAMPLES, len(opened)))]
        columns: list[list[bytes]] = [[sample.key.encode("utf-8", "surrogateescape") for sample in samples]]
        columns += [[sample.get(extension, b"") for sample in samples] for extension in extensions]
        # dtype object: numpy's own bytes type drops NULs at the end of a value
        return [np.array(column, dtype=object) for column in columns]

    def read_fields(start: "tf.Tensor") -> "dict[str, tf.Tensor]":
        columns = tf.numpy_function(read_batch, [start], [tf.string] * len(fields))
        for column in columns:
            column.set_shape([None])
        return dict(zip(fields, columns, strict=True))

    return tf.data.Dataset.range(0, len(opened), BATCH_SAMPLES).map(read_fields).unbatch()
