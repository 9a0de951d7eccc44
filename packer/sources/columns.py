"""Columns of Parquet and Arrow files: which hold bytes, and how a row becomes JSON."""

import datetime as dt
import decimal
import json
import math
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from packer.sources.persist import explain_errno, persist
from shards.errors import FormatError, SourceError, printable

_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)


def holds_bytes(kind: pa.DataType) -> bool:
    """Whether a column's values are bytes, or the ``{bytes, path}`` of Hugging Face."""
    if any(test(kind) for test in _BYTES):
        return True
    if not pa.types.is_struct(kind):
        return False
    place = kind.get_field_index("bytes")
    return place >= 0 and any(test(kind.field(place).type) for test in _BYTES)


def has_bytes_column(path: str) -> bool:
    """Whether a Parquet file has a column of bytes.

    Raises:
        FormatError: it is no Parquet file.
        SourceError: it cannot be read.
    """
    try:
        schema = persist(lambda: pq.read_schema(path))
    except (pa.ArrowException, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise SourceError(f"cannot read {printable(path)}: {explain_errno(error)}") from error
        raise FormatError(path, None, f"no Parquet file that can be read: {error}") from error
    return any(holds_bytes(field.type) for field in schema)


def encode_row(row: Mapping[str, object]) -> bytes:
    """A row as JSON: the same bytes for the same values.

    Numbers, text, truth values, lists and structs keep their types. Dates and times become ISO 8601, decimals become
    text, and what JSON cannot say (NaN, infinity) becomes null, as missing values do.
    """
    return json.dumps(_plain(row), ensure_ascii=False, separators=(", ", ": ")).encode("utf-8", "surrogatepass")


def encode_cell(value: object) -> bytes:
    """One value as a member of its own: bytes as they are, text as UTF-8, everything else as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(_plain(value), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return value
