"""Index files for NVIDIA DALI's readers, from our indexes; pure.

DALI finds the members of a shard by an index of its own, else it walks the shard at each start. Tar: what ``wds2idx``
writes, a line ``v1.2 SAMPLES`` and then one line a sample of ``EXTENSION OFFSET SIZE NAME`` for each member; the offset
is that of the data. The words are separated by blanks, so a shard with blanks in its names gets version 1.1, which has
no names. TFRecord: what ``tfrecord2idx`` writes, a line ``OFFSET SIZE`` for each record, frame included.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from packer.samples_of import ListedSample
from shards.errors import SourceError, printable
from shards.keys import member_name


def tar_index_lines(samples: Sequence[ListedSample]) -> Iterator[str]:
    """Lines of a tar shard's index.

    Args:
        samples: all of the shard.

    Raises:
        SourceError: an extension has a blank in it, which DALI's format cannot say.
    """
    has_names = not any(_has_blank(sample.key) for sample in samples)
    yield f"v1.{2 if has_names else 1} {len(samples)}\n"
    for sample in samples:
        words = []
        for member in sample.members:
            name = member_name(sample.key, member.extension)
            if _has_blank(member.extension):
                raise SourceError(
                    f"{printable(name)} has a blank in its extension; DALI's index cannot hold that, pack it under "
                    "another name"
                )
            words.append(f"{member.extension} {member.offset} {member.size}" + (f" {name}" if has_names else ""))
        yield " ".join(words) + "\n"


def record_index_lines(offsets: Sequence[int], shard_bytes: int) -> Iterator[str]:
    """Lines of a TFRecord shard's index.

    Args:
        offsets: of the records, ascending.
        shard_bytes: size of the shard, where the last record ends.
    """
    for start, end in pairwise((*offsets, shard_bytes)):
        yield f"{start} {end - start}\n"


def _has_blank(text: str) -> bool:
    return any(character.isspace() for character in text)
