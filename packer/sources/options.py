"""What the user says about the source, as one value; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from packer.sources.names import EVERYTHING, Globs
from shards.strict_json import JsonValue


class SourceKind(StrEnum):
    """What a source is taken for."""

    AUTO = "auto"
    TREE = "tree"
    TABLE = "table"
    INLINE = "inline"
    ARCHIVE = "archive"
    OBJECTS = "objects"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """How a source is read."""

    kind: SourceKind = SourceKind.AUTO
    globs: Globs = EVERYTHING
    path_column: str | None = None
    """Of a table; None takes the only one whose values are files."""
    root: str | None = None
    """Directory below which a table's paths lie; None takes that of the table."""
    key_column: str | None = None
    """Of inline bytes; None makes keys from file and row."""
    columns: tuple[tuple[str, str], ...] = ()
    """(column, extension of the member it becomes)."""

    def recorded(self) -> dict[str, JsonValue]:
        """What differs from the defaults and shapes the data, under the names of the flags; no paths."""
        values: dict[str, JsonValue] = {
            "source_kind": None if self.kind is SourceKind.AUTO else self.kind.value,
            "include": list(self.globs.include),
            "exclude": list(self.globs.exclude),
            "path_column": self.path_column,
            "key_column": self.key_column,
            "column": [f"{name}={extension}" for name, extension in self.columns],
        }
        return {name: value for name, value in values.items() if value}

    @classmethod
    def from_recorded(cls, values: Mapping[str, JsonValue]) -> "SourceOptions":
        """Read what :meth:`recorded` gave, from among other options.

        Raises:
            ValueError: it is none of that.
        """
        texts = {name: _texts(values.get(name)) for name in ("include", "exclude", "column")}
        path_column, key_column = values.get("path_column"), values.get("key_column")
        return cls(
            kind=SourceKind(str(values.get("source_kind", SourceKind.AUTO))),
            globs=Globs(texts["include"], texts["exclude"]),
            path_column=path_column if isinstance(path_column, str) else None,
            key_column=key_column if isinstance(key_column, str) else None,
            columns=parse_columns(texts["column"]),
        )


PLAIN_OPTIONS = SourceOptions()


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def parse_columns(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Read ``NAME=EXT`` options.

    Raises:
        ValueError: a text has another form, or a column or an extension is given twice.
    """
    columns = []
    for text in texts:
        name, equals, extension = text.rpartition("=")
        extension = extension.lower().removeprefix(".")
        if not equals or not name or not extension or "/" in extension:
            raise ValueError(f"{text!r} is not of the form COLUMN=EXTENSION, such as caption=txt")
        columns.append((name, extension))
    for what, values in (("column", [name for name, _ in columns]), ("extension", [ext for _, ext in columns])):
        if len(set(values)) < len(values):
            raise ValueError(f"a {what} is given twice in {', '.join(texts)}")
    return tuple(columns)
