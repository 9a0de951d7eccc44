"""A user's function between reading and writing: one source sample → none, one or several samples; values and rules.

The function takes a dictionary as WebDataset has it, ``{"__key__": key, extension: bytes, …}``, and gives back such a
dictionary, a list of them, or None to drop the sample. Values are bytes, or text that is stored as UTF-8.

Rules:
    * It must be deterministic: the same sample gives the same result, in any process and order. Otherwise neither the
      number of jobs nor a resumed run would be free to give the same bytes. The first sample of each shard is
      transformed twice to notice the worst.
    * Without ``__key__`` the key stays. A new key must begin with the old one, so that it can be told where it is from.
    * Shards are cut by the source samples, before anything is transformed: their number and names are planned, their
      sizes are what comes out.
"""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shards.errors import TransformError, printable
from shards.keys import is_storable

KEY = "__key__"
"""Where the dictionary of a sample has its key."""

NAMED_DROPPED = 20
"""How many dropped samples of a shard are named."""

SampleDict: TypeAlias = dict[str, str | bytes]
TransformFunction: TypeAlias = Callable[[SampleDict], object]
OutputSample: TypeAlias = tuple[str, list[tuple[str, bytes]]]
"""(key, [(extension, bytes)] ascending by extension)."""


@dataclass(frozen=True, slots=True)
class TransformSpec:
    """Names a function, and its module's source as it was when the plan was made."""

    text: str
    """``module:function``."""
    code_digest: str
    """Of the module's source, hex."""
    search_path: str
    """Directory that is searched for the module besides the usual ones."""


@dataclass(frozen=True, slots=True)
class Transformed:
    """What became of a shard's samples."""

    num_dropped: int
    """Source samples without a result."""
    dropped_keys: tuple[str, ...]
    """The first of them, :data:`NAMED_DROPPED` at most."""
    new_keys: tuple[str, ...]
    """Keys of results that are not their source sample's."""
    extensions: Mapping[str, tuple[int, int]]
    """Extension → (members, bytes)."""


def apply_transform(
    name: str, function: TransformFunction, key: str, members: Sequence[tuple[str, bytes]]
) -> list[OutputSample]:
    """Transform one sample and check the result.

    Args:
        name: of the function, for messages.
        function: to call.
        key: of the sample.
        members: of the sample.

    Raises:
        TransformError: the function failed, or gave what cannot be stored.
    """
    try:
        result = function({KEY: key, **dict(members)})
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = f" at {frames[-1].filename}:{frames[-1].lineno}" if len(frames) > 1 else ""
        raise TransformError(name, key, f"{type(error).__name__}: {error}{where}") from error
    if result is None:
        return []
    results = result if isinstance(result, list | tuple) else [result]
    outputs = [_check_output(name, key, output) for output in results]
    keys = [output_key for output_key, _ in outputs]
    if len(set(keys)) < len(keys):
        raise TransformError(name, key, f"it gave several samples with the same key; give each its own {KEY}")
    return outputs


def account(planned_keys: Sequence[str], outputs: Iterator[tuple[str, Sequence[tuple[str, int]]]]) -> Transformed:
    """Say what became of a shard's samples, from its plan and what it holds, and nothing else.

    So a shard that was written just now and one that was kept from an earlier run give the same account. A result
    belongs to the sample with the longest key that its own begins with: ``a10`` and ``a10-1`` to ``a10``, not ``a1``.

    Args:
        planned_keys: of the source samples, in order.
        outputs: (key, [(extension, bytes)]) of the results, in order.
    """
    counts: dict[str, tuple[int, int]] = {}
    new_keys: list[str] = []
    planned, kept, extended = set(planned_keys), set[str](), set[str]()
    lengths = sorted({len(key) for key in planned}, reverse=True)
    for key, members in outputs:
        if key in planned and key not in kept:
            kept.add(key)
        else:  # also a source key that comes twice, which clashes
            new_keys.append(key)
            beginnings = (key[:length] for length in lengths if length < len(key))
            extended.add(next(filter(planned.__contains__, beginnings), key))
        for extension, size in members:
            count, total = counts.get(extension, (0, 0))
            counts[extension] = (count + 1, total + size)
    dropped = [key for key in planned_keys if key not in kept and key not in extended]
    return Transformed(len(dropped), tuple(dropped[:NAMED_DROPPED]), tuple(new_keys), dict(sorted(counts.items())))


def _check_output(name: str, key: str, output: object) -> OutputSample:
    if not isinstance(output, Mapping):
        raise TransformError(
            name, key, f"it gave {type(output).__name__}; a sample is a dictionary, None drops it, a list gives several"
        )
    fields = dict(output)
    new_key = fields.pop(KEY, key)
    if not isinstance(new_key, str) or not new_key.startswith(key):
        raise TransformError(
            name, key, f"it gave the key {printable(repr(new_key))}, which does not begin with the old"
        )
    if not fields:
        raise TransformError(name, key, "it gave a sample without members; give None to drop it")
    return new_key, [
        (extension, _check_member(name, key, new_key, extension, fields[extension])) for extension in sorted(fields)
    ]


def _check_member(name: str, key: str, new_key: str, extension: object, value: object) -> bytes:
    if not isinstance(extension, str) or not is_storable(new_key, extension):
        shown = printable(repr(extension))
        raise TransformError(
            name,
            key,
            f"key {printable(new_key)} and extension {shown} would not be read back; extensions are lower case",
        )
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise TransformError(name, key, f"member {printable(extension)} is text that is no Unicode") from error
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TransformError(
        name, key, f"member {printable(extension)} is {type(value).__name__}; give bytes, or text to be stored as UTF-8"
    )
