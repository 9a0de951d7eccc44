"""Shows our readers to ``run_cases.py`` of the shared cases: the functions and names that it asks an adaptor for."""

from collections.abc import Iterator
from pathlib import Path

from shards.errors import FormatError, SampleGroupError
from shards.example import BytesList, FeatureValue, FloatList, Int64List, classify_record, parse_example
from shards.formats import find_format
from shards.layout import ScannedMember
from shards.tar import read_files
from shards.tfrecord.frames import read_records

ERRORS = (FormatError, SampleGroupError)

KINDS = {"tar", "tfrecord"}


def _is_tfrecord(path: str) -> bool:
    """The folder says the kind of a case; its name and content need not."""
    return Path(path).parent.name == "tfrecord"


def read_shard(path: str) -> Iterator[tuple[str | None, bytes]]:
    if _is_tfrecord(path):
        return _read_records(path)
    return _read_files(path)


def _read_files(path: str) -> Iterator[tuple[str, bytes]]:
    with Path(path).open("rb") as stream:
        for member, data in read_files(stream, Path(path).name):
            yield member.name, data


def read_samples(path: str) -> Iterator[tuple[str, dict[str, ScannedMember]]]:
    with Path(path).open("rb") as stream:
        for sample in find_format("tar", where="the cases").scan_samples(stream, Path(path).name):
            yield sample.key, {member.extension: member for member in sample.members}


def _read_records(path: str) -> Iterator[tuple[None, bytes]]:
    with Path(path).open("rb") as stream:
        for record in read_records(stream, Path(path).name):
            yield None, record.data


def read_examples(path: str) -> Iterator[dict[str, tuple[str, int]]]:
    with Path(path).open("rb") as stream:
        for record in read_records(stream, Path(path).name):
            assert classify_record(record.data) == "example"
            example = parse_example(record.data, name=Path(path).name, offset=record.data_offset)
            yield {name: _describe(value) for name, value in example.items()}


def _describe(value: FeatureValue) -> tuple[str, int]:
    match value:
        case BytesList(values):
            return "bytes", len(values)
        case FloatList(values):
            return "float", len(values)
        case Int64List(values):
            return "int64", len(values)
    return "unset", 0
