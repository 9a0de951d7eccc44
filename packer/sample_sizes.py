"""The encoded size of every sample of a plan; pure."""

from collections.abc import Callable

import numpy as np

from packer.columns import TextColumn
from packer.labels import CLASS_EXTENSION
from packer.plan import PlanContent
from shards.errors import printable
from shards.formats import ShardFormat
from shards.sample_columns import Int64s, SampleColumns


def measure_samples(
    content: PlanContent, shard_format: ShardFormat, check: Callable[[], None]
) -> tuple[Int64s, list[str]]:
    """Ask a format for the sizes of all samples.

    Args:
        content: what is packed.
        shard_format: of the shards.
        check: called now and then; raises to stop.

    Returns:
        Size of each sample, 0 for those that cannot be stored; and of these, key and reason.
    """
    sizes = shard_format.sample_sizes(_columns_of(content))
    impossible = []
    for place, number in enumerate(np.flatnonzero(sizes == 0).tolist()):
        if place % 4096 == 0:
            check()
        key = content.samples.keys[number]
        try:
            sizes[number] = shard_format.sample_size(key, content.members(number))
        except ValueError as error:
            impossible.append(f"{printable(key)}: {error}")
    return sizes, impossible


def _columns_of(content: PlanContent) -> SampleColumns:
    samples, classes = content.samples, content.classes
    keys = samples.keys if isinstance(samples.keys, TextColumn) else TextColumn(samples.keys)
    first_member, codes = np.asarray(samples.first_member), np.asarray(samples.extension_codes)
    sizes = np.asarray(content.files.sizes)[np.asarray(samples.file_numbers)]
    extensions = samples.extensions
    if classes is not None:
        digits = np.array([len(str(number)) for number in range(len(classes.names))], np.uint64)
        ends = first_member[1:].astype(np.int64)
        sizes = np.insert(sizes, ends, digits[np.asarray(classes.numbers)])
        codes = np.insert(codes, ends, len(extensions))
        first_member = first_member + np.arange(len(first_member), dtype=first_member.dtype)
        extensions = (*extensions, CLASS_EXTENSION)
    return SampleColumns(
        key_data=keys.data,
        key_bounds=keys.bounds,
        first_member=first_member,
        extensions=extensions,
        codes=codes,
        sizes=sizes,
    )
