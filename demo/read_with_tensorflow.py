"""Reads a dataset with TensorFlow and prints what it found as one line of JSON; started by the demo.

usage: read_with_tensorflow.py records DIRECTORY            TensorFlow alone, without Shardferry
       read_with_tensorflow.py loaders DIRECTORY SPLIT...   through loaders.tensorflow
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence

from contents import digest_samples

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's greeting; it is read at import


def read_records(directory: str) -> Iterator[tuple[str, bytes]]:
    """Read key and picture from every TFRecord file in a directory, as any TensorFlow program would."""
    import tensorflow as tf  # noqa: PLC0415 (after the environment is set)

    paths = sorted(os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".tfrecord"))
    features = {"__key__": tf.io.FixedLenFeature([], tf.string), "png": tf.io.FixedLenFeature([], tf.string)}
    examples = tf.data.TFRecordDataset(paths).map(lambda record: tf.io.parse_single_example(record, features))
    for example in examples.as_numpy_iterator():
        yield example["__key__"].decode(), example["png"]


def read_loaders(directory: str, splits: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Read key and picture of the samples of some splits through :mod:`loaders.tensorflow`."""
    import loaders.tensorflow  # noqa: PLC0415 (after the environment is set)

    for split in splits:
        elements = loaders.tensorflow.dataset(directory, split=split, extensions=["png"])
        for element in elements.prefetch(64).as_numpy_iterator():
            yield element["__key__"].decode(), element["png"]


def main(arguments: Sequence[str]) -> None:
    """Read, then print the number of samples, their digest and how long it took."""
    import tensorflow as tf  # noqa: PLC0415 (after the environment is set)

    mode, directory, *splits = arguments
    samples = read_records(directory) if mode == "records" else read_loaders(directory, splits)
    started = time.perf_counter()
    num_samples, digest = digest_samples(samples)
    seconds = time.perf_counter() - started
    found = {"version": tf.__version__, "num_samples": num_samples, "digest": digest, "seconds": seconds}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
