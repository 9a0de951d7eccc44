"""The one table that turns a format name into functions; nobody else asks which format a shard has.

A format gives two things. *Writing* is sans-I/O: from a sample's key and the sizes of its members it computes
where each byte of the encoded sample goes (:class:`SampleLayout`), so that a writer can read source files
straight into place. *Reading* walks a whole shard strictly and yields where each member lies
(:class:`ScannedSample`), which is how indexes are made for shards that have none and how shards are checked.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import BinaryIO, Protocol

from shards.errors import FormatError
from shards.layout import SampleLayout, ScannedSample
from shards.sample_columns import Int64s, SampleColumns
from shards.tar import format as tar_format
from shards.tar.header import is_header
from shards.tfrecord import format as tfrecord_format
from shards.tfrecord.frames import starts_with_record

ReportKeyless = Callable[[int, Sequence[str]], None]
"""Called with the number of members without a key and the first of their names, printable."""


class ScanSamples(Protocol):
    """Reads a whole shard."""

    def __call__(
        self, stream: BinaryIO, name: str, *, report_keyless: ReportKeyless | None = None, reads_data: bool = True
    ) -> Iterator[ScannedSample]:
        """Yield samples in shard order.

        Args:
            stream: the shard, at its start.
            name: the shard, for messages.
            report_keyless: told at the end of members that belong to no sample; None logs a warning.
            reads_data: False lets a format pass over the data where it can; what lies there is then not checked, and
                CRCs may be 0.

        Raises:
            FormatError: damage, anywhere.
            SampleGroupError: whole members that do not form samples.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFormat:
    """What the rest of the project may ask of a shard format."""

    name: str
    """``"tar"`` or ``"tfrecord"``, as on command lines and in manifests."""
    suffix: str
    """File suffix of new shards, with the dot."""
    layout_sample: Callable[[str, Sequence[tuple[str, int]]], SampleLayout]
    """(key, [(extension, size_bytes)]) → where the bytes go. Raises ``ValueError`` on names it cannot store."""
    sample_size: Callable[[str, Sequence[tuple[str, int]]], int]
    """The size of that layout, or the same ``ValueError``, without making the bytes: planning asks for every sample."""
    sample_sizes: Callable[[SampleColumns], Int64s]
    """The same for many samples at once; 0 for those of which :attr:`sample_size` has to be asked."""
    end_marker: bytes
    """Bytes that close a shard."""
    has_example_records: bool
    """Whether a shard is a TFRecord file of tf.train.Example, which TensorFlow can read by itself."""
    scan_samples: ScanSamples
    """Reads a whole shard strictly."""
    is_plain: Callable[[bytes], bool]
    """Whether the first 512 bytes (fewer in a smaller file) are proven to be an uncompressed shard of this format."""


FORMATS: Mapping[str, ShardFormat] = MappingProxyType(
    {
        "tar": ShardFormat(
            name="tar",
            suffix=".tar",
            layout_sample=tar_format.layout_sample,
            sample_size=tar_format.sample_size,
            sample_sizes=tar_format.sample_sizes,
            end_marker=tar_format.END_MARKER,
            has_example_records=False,
            scan_samples=tar_format.scan_samples,
            is_plain=is_header,
        ),
        "tfrecord": ShardFormat(
            name="tfrecord",
            suffix=".tfrecord",
            layout_sample=tfrecord_format.layout_sample,
            sample_size=tfrecord_format.sample_size,
            sample_sizes=tfrecord_format.sample_sizes,
            end_marker=tfrecord_format.END_MARKER,
            has_example_records=True,
            scan_samples=tfrecord_format.scan_samples,
            is_plain=starts_with_record,
        ),
    }
)


def find_format(name: str, *, where: str) -> ShardFormat:
    """Look a format up by its name.

    Args:
        name: format name as found in a manifest or on a command line.
        where: the file that names it, for the message.

    Raises:
        FormatError: the name is unknown.
    """
    found = FORMATS.get(name)
    if found is None:
        raise FormatError(where, None, f"unknown shard format {name!r}; this release knows {', '.join(FORMATS)}")
    return found
