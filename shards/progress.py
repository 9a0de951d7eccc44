"""How far a stager is, as it tells others on its node: the file ``progress/<holder>.json`` of a cache; pure.

``stage wait`` reads it before training starts, a loader that waits for a shard reads it to say why, ``stage status``
shows it. The file says nothing about the data: a shard is there when its final name is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from shards.errors import FormatError
from shards.strict_json import JsonError, JsonFields, JsonValue, check_count, check_json, parse_json, render_json

PROGRESS_VERSION = 1

MAX_PROGRESS_BYTES = 64 * 1024
"""More than such a file ever holds."""


class StageState(StrEnum):
    """What a stager is doing."""

    STARTING = "Starting"
    """It has not read the manifest yet."""
    STAGING = "Staging"
    """Something that it wants is not there yet."""
    STAGED = "Staged"
    """All that it wants, or all that its window holds, is there."""
    FAILED = "Failed"
    """It has given up: ``code``, ``reason`` and ``message`` say why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProgress:
    """What one stager says of itself. Raises ``ValueError`` on a value that is not allowed."""

    holder: str
    """Whose lease it has, or will have."""
    state: StageState
    source: str
    """Where it stages from; carries no secrets."""
    selection: str = "all"
    """Which shards it wants, as in :meth:`shards.selection.Selection.to_text`."""
    dataset_id: str = ""
    """Empty until the manifest has been read."""
    path: str = ""
    """Directory of the staged dataset; empty as long as the id is."""
    num_shards: int = 0
    """Wanted, with their indexes."""
    size_bytes: int = 0
    """Of the wanted shards and indexes."""
    num_shards_staged: int = 0
    staged_bytes: int = 0
    num_shards_ready: int = 0
    """Staged without a gap from the first shard of the first epoch on."""
    ready_bytes: int = 0
    """Of those."""
    fetched_bytes: int = 0
    """Read from the source by this process."""
    window_bytes: int = 0
    """Most that may be there at once; 0 when there is no window."""
    is_ready: bool = False
    """Whether training may start, by what the stager was told to wait for."""
    code: int = 0
    """Exit code that ``reason`` stands for; 0 when nothing failed. Set as well while it tries again."""
    reason: str = ""
    """Class of the last error."""
    message: str = ""
    """The last error."""
    started_at: str = ""
    """UTC, ISO 8601."""
    updated_at: str = ""
    """UTC, ISO 8601."""
    extra: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)
    """Fields that this release does not know."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            check_count(getattr(self, name), name)
        check_json(self.extra, "extra")

    def to_json(self) -> bytes:
        """The file: one line."""
        known: dict[str, JsonValue] = {name: getattr(self, name) for name in _FIELDS}
        return render_json({"version": PROGRESS_VERSION, **known, **self.extra}).encode("ascii") + b"\n"

    @classmethod
    def from_json(cls, data: bytes, *, name: str) -> "StageProgress":
        """Read the file; ``name`` is what errors call it.

        Raises:
            FormatError: it is damaged, or of a newer release.
        """
        try:
            read = JsonFields(parse_json(data), "")
            read.expect("version", PROGRESS_VERSION)
            return cls(
                holder=read.string("holder"),
                state=_state(read.string("state")),
                source=read.string("source"),
                selection=read.string("selection"),
                dataset_id=read.string("dataset_id"),
                path=read.string("path"),
                num_shards=read.count("num_shards"),
                size_bytes=read.count("size_bytes"),
                num_shards_staged=read.count("num_shards_staged"),
                staged_bytes=read.count("staged_bytes"),
                num_shards_ready=read.count("num_shards_ready"),
                ready_bytes=read.count("ready_bytes"),
                fetched_bytes=read.count("fetched_bytes"),
                window_bytes=read.count("window_bytes"),
                is_ready=read.boolean("is_ready"),
                code=read.count("code"),
                reason=read.string("reason"),
                message=read.string("message"),
                started_at=read.string("started_at"),
                updated_at=read.string("updated_at"),
                extra=read.rest(),
            )
        except JsonError as error:
            raise FormatError(name, None, str(error)) from error


_FIELDS = tuple(item.name for item in fields(StageProgress) if item.name != "extra")
_COUNTS = tuple(item.name for item in fields(StageProgress) if item.type is int or item.type == "int")


def _state(text: str) -> StageState:
    try:
        return StageState(text)
    except ValueError as error:
        raise JsonError("state", f"expected one of {', '.join(StageState)}, found {text[:80]!r}") from error
