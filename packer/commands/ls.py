"""``pack ls``."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

import click

from packer.commands import set_up_log

if TYPE_CHECKING:
    from packer.samples_of import ListedSample

_FLUSH_CHARACTERS = 1024 * 1024


@click.command("ls")
@click.argument("destination", type=click.Path(path_type=str))
@click.option("--split", metavar="NAME", help="Only this split.  [default: all]")
@click.option("--long", "is_long", is_flag=True, help="A line per member: size, sum, shard, offset, name.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object per sample, one on each line.")
def command(destination: str, split: str | None, is_long: bool, as_json: bool) -> None:
    """List the samples of the dataset at DESTINATION: a line each with the key and its extensions.

    Lines come while the indexes are read, in the order of the shards, and memory does not grow with the dataset.
    Characters that a terminal would take for something else are escaped.
    """
    if is_long and as_json:
        raise click.UsageError("--long and --json exclude each other; --json has all that --long has")
    from packer.inspect import read_manifest
    from packer.samples_of import walk_samples
    from packer.stores.open import open_store

    set_up_log(verbose=False, quiet=False)
    manifest = read_manifest(destination)
    render = _json_line if as_json else _long_lines if is_long else _short_line
    _write(sys.stdout, render, walk_samples(open_store(destination), manifest, split))


def _write(target: TextIO, render: "Callable[[ListedSample], str]", samples: "Iterator[ListedSample]") -> None:
    lines: list[str] = []
    length = 0
    for sample in samples:
        line = render(sample)
        lines.append(line)
        length += len(line)
        if length >= _FLUSH_CHARACTERS:
            target.write("".join(lines))
            lines.clear()
            length = 0
    target.write("".join(lines))
    target.flush()


def _short_line(sample: "ListedSample") -> str:
    from shards.errors import printable

    extensions = ",".join(member.extension for member in sample.members)
    return f"{printable(sample.key)}\t{printable(extensions)}\n"


def _long_lines(sample: "ListedSample") -> str:
    from shards.errors import printable

    return "".join(
        f"{member.size:>12} {member.crc32c:08x} {sample.shard} {member.offset:>12} "
        f"{printable(sample.key)}.{printable(member.extension)}\n"
        for member in sample.members
    )


def _json_line(sample: "ListedSample") -> str:
    from shards.errors import printable

    value = {
        "key": printable(sample.key),
        "split": sample.split,
        "shard": sample.shard,
        "number": sample.number,
        "members": [
            {
                "extension": printable(member.extension),
                "offset": member.offset,
                "size_bytes": member.size,
                "crc32c": f"{member.crc32c:08x}",
            }
            for member in sample.members
        ],
    }
    return json.dumps(value) + "\n"
