"""The ``load`` command: parse, look, print.

Rule: numpy, pyarrow and everything that needs them is imported by the command that uses it, so ``load --help`` is
quick.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from shardferry.console import format_bytes, format_count, name_variables, run_main
from shards.errors import printable

if TYPE_CHECKING:
    from loaders.summary import DatasetSummary, SampleSummary

EXAMPLES = """\b
Examples:
  load inspect /data/flowers-packed                 what the dataset holds
  load inspect /data/flowers-packed roses/0001      where one sample lies
  load inspect 3fa9c1d2 --cache-dir /mnt/ssd/cache  a staged dataset, by its id
  load inspect /data/flowers-packed --verify        read everything, compare digests
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
def cli() -> None:
    """Look at a dataset as a training job will read it.

    In Python: loaders.open_dataset, loaders.pytorch and loaders.tensorflow.
    """


@cli.command(epilog=EXAMPLES)
@click.argument("dataset", metavar="PATH_OR_ID")
@click.argument("key", required=False)
@click.option("--split", metavar="NAME", help="Only this split.")
@click.option(
    "--cache-dir",
    metavar="DIR",
    envvar="STAGE_CACHE_DIR",
    show_envvar=True,
    help="Node cache in which a dataset id is looked up.",
)
@click.option("--verify", is_flag=True, help="Read everything and compare it with its digests.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect(
    dataset: str, key: str | None, split: str | None, cache_dir: str | None, verify: bool, as_json: bool
) -> None:
    """Show what a dataset holds, or where the sample KEY lies.

    PATH_OR_ID is a dataset directory, its manifest.json, or the id of a staged dataset (the first 8 digits are enough).
    """
    from loaders.place import find_dataset
    from loaders.summary import find_sample, summarise_dataset

    place = find_dataset(dataset, cache_dir)
    if key is None:
        summary = summarise_dataset(place, split=split, verify=verify)
        lines = json_lines(summary) if as_json else render_dataset(summary)
    else:
        sample = find_sample(place, key, split=split, verify=verify)
        lines = json_lines(sample) if as_json else render_sample(sample)
    click.echo("\n".join(lines))


name_variables(inspect, "LOAD")


def json_lines(summary: "DatasetSummary | SampleSummary") -> list[str]:
    """Give a summary as one JSON object."""
    return [json.dumps(asdict(summary), indent=2)]


def render_dataset(summary: "DatasetSummary") -> list[str]:
    """Give the lines that a person reads of a dataset."""
    size_bytes = sum(split.size_bytes for split in summary.splits)
    num_shards = sum(split.num_shards for split in summary.splits)
    lines = [
        f"dataset    {summary.dataset_id}",
        f"directory  {printable(summary.directory)}{' (staged)' if summary.is_staged else ''}",
        f"format     {summary.shard_format}, {_count(num_shards, 'shard')}, {format_bytes(size_bytes)}",
    ]
    if summary.classes:
        lines.append(f"classes    {len(summary.classes)}: {_shorten(summary.classes)}")
    if summary.is_verified:
        lines.append("verified   every block and member agrees with its digest")
    for split in summary.splits:
        lines.append("")
        lines.append(
            f"split {printable(split.name)}: {_count(split.num_samples, 'sample')} in "
            f"{_count(split.num_shards, 'shard')}, {format_bytes(split.size_bytes)}"
        )
        rows = [("extension", "samples", "missing", "mean size")]
        rows += [
            (
                printable(found.extension),
                format_count(found.num_present),
                format_count(found.num_missing),
                format_bytes(round(found.mean_bytes)),
            )
            for found in split.extensions
        ]
        lines += _table(rows)
        if split.first_keys:
            lines.append(f"  first keys: {', '.join(printable(key) for key in split.first_keys)}")
    return lines


def render_sample(summary: "SampleSummary") -> list[str]:
    """Give the lines that a person reads of a sample."""
    lines = [
        f"sample  {printable(summary.key)}, number {summary.number} of split {printable(summary.split)}",
        f"shard   {printable(summary.shard_path)}, from byte {summary.offset}",
    ]
    if summary.is_verified:
        lines.append("verified: every member agrees with its CRC-32C")
    rows = [("extension", "size", "bytes", "offset", "crc32c")]
    rows += [
        (
            printable(member.extension),
            format_bytes(member.size_bytes),
            str(member.size_bytes),
            str(member.offset),
            f"{member.crc32c:08x}",
        )
        for member in summary.members
    ]
    return lines + _table(rows)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align columns: the first to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _count(number: int, noun: str) -> str:
    return f"{format_count(number)} {noun}{'' if number == 1 else 's'}"


def _shorten(names: tuple[str, ...], at_most: int = 10) -> str:
    shown = ", ".join(printable(name) for name in names[:at_most])
    return shown if len(names) <= at_most else f"{shown}, …"


def main() -> None:
    """Run the program; the console script calls this."""
    run_main(cli, "load")
