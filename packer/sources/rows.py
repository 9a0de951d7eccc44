"""The rows of a table, whatever its format: CSV, TSV, JSON lines or Parquet. All columns, with types.

JSON lines and Parquet say what type a value has. CSV does not: a column is taken for whole numbers when all its values
are such in their usual form and fit into 64 bits (so ``007`` stays text), for numbers when all are and a float holds
them (whole ones exactly), for truth values when all are ``true`` or ``false``; and an empty field in such a column is a
missing value.
"""

import csv
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from packer.sources.persist import explain_errno, persist
from shards.errors import FormatError, SourceError, list_offenders, printable

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_WHOLE_DIGITS = 20
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_FIELD_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Table:
    """A table in columns of equal length."""

    path: str
    columns: dict[str, list[object]]

    @property
    def num_rows(self) -> int:
        """Rows."""
        return len(next(iter(self.columns.values()), ()))

    def row(self, number: int, names: list[str]) -> dict[str, object]:
        """Some columns of one row."""
        return {name: self.columns[name][number] for name in names}


def read_table(path: str) -> Table:
    """Read a table; its format is told by its name.

    Raises:
        FormatError: it is damaged.
        SourceError: it cannot be read, or its rows do not fit together.
    """
    try:
        return persist(lambda: _read_by_name(path))
    except OSError as error:
        raise SourceError(f"cannot read the table {printable(path)}: {explain_errno(error)}") from error
    except UnicodeDecodeError as error:
        raise FormatError(path, None, f"its text is not UTF-8 ({error.reason}); convert it first") from error


def _read_by_name(path: str) -> Table:
    name = path.lower()
    if name.endswith(".parquet"):
        return _read_parquet(path)
    if name.endswith((".jsonl", ".ndjson")):
        return _read_jsonl(path)
    return _read_csv(path, "\t" if name.endswith(".tsv") else ",")


def _read_parquet(path: str) -> Table:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, ValueError) as error:
        raise FormatError(path, None, f"no Parquet file that can be read: {error}") from error
    return Table(path, {name: table.column(name).to_pylist() for name in table.column_names})


def _read_jsonl(path: str) -> Table:
    columns: dict[str, list[object]] = {}
    faults = []
    count = 0
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = _parse_object(line)
            except ValueError as error:
                faults.append(f"line {number}: {printable(str(error))}")
                continue
            for name in row.keys() - columns.keys():
                columns[name] = [None] * count
            for name, column in columns.items():
                column.append(row.get(name))
            count += 1
    _raise_faults(path, faults, "each line has to be one JSON object")
    return Table(path, {name: columns[name] for name in sorted(columns)})


def _parse_object(line: str) -> dict[str, object]:
    row = json.loads(line, parse_constant=_refuse_constant, parse_float=_parse_finite)
    if not isinstance(row, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 (the same fault for the user)
    return row


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON; write null")


def _parse_finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is beyond what a number can be; write it as text")
    return value


def _read_csv(path: str, delimiter: str) -> Table:
    csv.field_size_limit(_FIELD_BYTES)
    faults = []
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            names = next(reader, [])
            if any("\0" in name for name in names):
                raise FormatError(path, 0, "this is no text")
            columns: list[list[str]] = [[] for _ in names]
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    faults.append(f"line {reader.line_num}: {len(row)} fields, the header has {len(names)}")
                    continue
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
        except csv.Error as error:
            raise FormatError(path, None, f"line {reader.line_num}: {error}") from error
    if len(set(names)) < len(names) or "" in names:
        raise SourceError(f"the first line of {printable(path)} has to name each column once")
    _raise_faults(path, faults, "each line has to have as many fields as the first")
    return Table(path, {name: _typed(column) for name, column in zip(names, columns, strict=True)})


def _typed(column: list[str]) -> list[object]:
    """Give a column the type that all its values have."""
    kinds: list[tuple[Callable[[str], object], Callable[[str], object]]] = [
        (_is_whole, int),
        (_is_number, float),
        ({"true": True, "false": True, "True": True, "False": True}.get, lambda text: text.lower() == "true"),
    ]
    filled = [text for text in column if text]
    for is_kind, convert in kinds:
        if filled and all(map(is_kind, filled)):
            return [convert(text) if text else None for text in column]
    return list(column)


def _is_whole(text: str) -> bool:
    """Whether a field is a whole number that 64 bits hold, with or without a sign."""
    return len(text) <= _WHOLE_DIGITS and _WHOLE.fullmatch(text) is not None and -(2**63) <= int(text) < 2**64


def _is_number(text: str) -> bool:
    """Whether a field is a number that a float holds: none beyond it, and no identifier whose digits it would round."""
    if _NUMBER.fullmatch(text) is None or not math.isfinite(float(text)):
        return False
    return _WHOLE.fullmatch(text) is None or (len(text) <= _WHOLE_DIGITS and abs(int(text)) <= 2**53)


def _raise_faults(path: str, faults: list[str], rule: str) -> None:
    if faults:
        raise SourceError(
            f"{len(faults)} line(s) of {printable(path)} do not fit:\n{list_offenders(faults)}\n{rule}; mend the table"
        )
