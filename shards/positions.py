"""How far a reader is: the file ``positions/<64 hex>/<reader>.json`` of a cache; pure.

A training job whose dataset does not fit on the node publishes what it has finished with, so that ``stage serve`` can
drop it and fetch what comes next. The file says all that is needed to compute what the reader needs: split, order,
epoch and the place in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from shards.cache import check_holder, directory_name
from shards.errors import FormatError
from shards.strict_json import JsonError, JsonFields, JsonValue, check_count, check_json, parse_json, render_json

POSITION_VERSION = 1

MAX_POSITION_BYTES = 64 * 1024
"""More than such a file ever holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingPosition:
    """What one reader still needs. Raises ``ValueError`` on a value that is not allowed."""

    reader: str
    """Name of the reader, unique per dataset: a pod's uid and a rank."""
    dataset_id: str
    split: str
    order_version: int
    """:data:`shards.epoch_order.ORDER_VERSION` of the reader."""
    shuffle: str
    seed: int
    window_shards: int
    epoch: int
    """0-based."""
    num_shards: int
    """Shards of the split that take part: all, or the node's part."""
    num_shards_passed: int
    """How many of the epoch's sequence of shards, from its beginning, are not needed any more in this epoch."""
    extra: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)
    """Fields that this release does not know."""

    def __post_init__(self) -> None:
        try:
            check_holder(self.reader)
            directory_name(self.dataset_id)
        except ValueError as error:
            raise JsonError("", str(error)) from error
        for name in _COUNTS:
            check_count(getattr(self, name), name)
        if self.num_shards_passed > self.num_shards:
            raise JsonError("num_shards_passed", f"is {self.num_shards_passed} of {self.num_shards} shards")
        check_json(self.extra, "extra")

    def to_json(self) -> bytes:
        """The file: one line."""
        known: dict[str, JsonValue] = {name: getattr(self, name) for name in _FIELDS}
        return render_json({"version": POSITION_VERSION, **known, **self.extra}).encode("ascii") + b"\n"

    @classmethod
    def from_json(cls, data: bytes, *, name: str) -> "ReadingPosition":
        """Read the file; ``name`` is what errors call it.

        Raises:
            FormatError: it is damaged, or of a newer release.
        """
        try:
            read = JsonFields(parse_json(data), "")
            read.expect("version", POSITION_VERSION)
            return cls(
                reader=read.string("reader"),
                dataset_id=read.string("dataset_id"),
                split=read.string("split"),
                order_version=read.count("order_version"),
                shuffle=read.string("shuffle"),
                seed=read.count("seed"),
                window_shards=read.count("window_shards"),
                epoch=read.count("epoch"),
                num_shards=read.count("num_shards"),
                num_shards_passed=read.count("num_shards_passed"),
                extra=read.rest(),
            )
        except JsonError as error:
            raise FormatError(name, None, str(error)) from error


_FIELDS = tuple(item.name for item in fields(ReadingPosition) if item.name != "extra")
_COUNTS = tuple(item.name for item in fields(ReadingPosition) if item.type is int or item.type == "int")
