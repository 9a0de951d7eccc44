"""TensorFlow: a loop over tf.io.TFRecordWriter, one tf.train.Example a file."""

import os

import tensorflow as tf
from peer import key_of, list_files, main, read_file

SHARD_BYTES = 256 * 2**20


def pack(source: str, destination: str) -> None:
    os.makedirs(destination)
    writer, num_shards, num_bytes = None, 0, SHARD_BYTES
    for path in list_files(source):
        features = {"__key__": _bytes_feature(key_of(path, source).encode()), "jpg": _bytes_feature(read_file(path))}
        record = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
        if num_bytes + len(record) > SHARD_BYTES:
            if writer is not None:
                writer.close()
            writer = tf.io.TFRecordWriter(f"{destination}/train-{num_shards:06d}.tfrecord")
            num_shards, num_bytes = num_shards + 1, 0
        writer.write(record)
        num_bytes += len(record) + 16
    if writer is not None:
        writer.close()


def _bytes_feature(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


if __name__ == "__main__":
    main(pack)
