"""The command line of ``pack``: arguments → values → the work → text. Nothing else.

What the commands need is imported when they run, so that ``--help`` is quick.
"""

from typing import TYPE_CHECKING

import click

from packer import cli_options
from packer.commands import MoreCommands, set_up_log, show
from packer.locations import check_location, directory_of
from shardferry import __version__
from shardferry.console import ByteSize, Progress, name_variables, run_main

if TYPE_CHECKING:
    from packer.config import PackConfig

_directory = click.Path(path_type=str, readable=False)


@click.group(cls=MoreCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pack")
def cli() -> None:
    """Pack many small files into few big shards, once, so that training reads them at full speed.

    \b
    Examples:
      pack build photos/ photos-packed/                     tar shards (WebDataset) of 256 MiB, shuffled
      pack build photos/ out/ --class-from-dir              top directories are classes
      pack build data/ out/ --split by-dir --jobs 8         data/train, data/val … are splits
      pack build data/ out/ --split train=0.9,val=0.1       seeded, stable when files are added
      pack plan data/ --nodes 4 --gpus 8 --workers 6        what would happen, and advice; writes nothing
      pack build data/ s3://bucket/out/                     any URL that fsspec has a driver for
      pack build /nfs/data s3://bucket/out --engine ray     by all nodes of a Ray cluster
      pack verify out/ --deep                               check every byte, and the index
      pack verify out/ --against photos/                    compare with the source files
      pack adopt shards/                                    make manifest and indexes for other people's shards
      pack ls out/ --long                                   keys, members, sizes
      pack extract out/ photos-again/ --glob 'cats/*'       members become files again
      pack inspect out/ KEY                                 where a sample lies
      pack cat out/ KEY.jpg > picture.jpg
    """  # noqa: D301 (click wants the character itself)


@cli.command("build")
@click.argument("source", type=_directory)
@click.argument("destination", type=_directory)
@click.option("--format", "format_name", type=click.Choice(["tar", "tfrecord"]), default="tar", show_default=True)
@click.option(
    "--shard-size",
    type=ByteSize(min_bytes=4096),
    default="256MiB",
    show_default=True,
    help="No shard is bigger than this.",
)
@click.option(
    "--split",
    "split_text",
    default="train",
    show_default=True,
    metavar="NAME|by-dir|NAME=SHARE,…|@FILE|NAME=@FILE,…",
    help="One split's name; by-dir: the top directories are splits; shares such as train=0.9,val=0.1; a file of lines "
    "key, tab, split; or one file of keys for each split.",
)
@click.option(
    "--shuffle",
    "shuffle_seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    metavar="SEED",
    help="Samples are shuffled over all shards of their split, the same way for the same seed.",
)
@click.option("--no-shuffle", is_flag=True, help="Keep samples in the order of their keys.")
@click.option(
    "--class-from-dir",
    is_flag=True,
    help="The first directory (below the split's) is the class: adds a member cls with its number.",
)
@click.option(
    "--key-rule",
    "key_rule_text",
    default="first-dot",
    show_default=True,
    metavar="first-dot|last-dot|regex:…",
    help="How a file name splits into key and extension; a regular expression has the groups key and extension.",
)
@click.option(
    "--dotted-names",
    type=click.Choice(["error", "allow", "escape"]),
    default="error",
    show_default=True,
    help="Names with several dots. allow: compound extensions such as left.png; escape: dots of keys as %2E.",
)
@click.option(
    "--on-keyless",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="Files whose name gives no key, such as README.",
)
@click.option(
    "--case-collisions",
    type=click.Choice(["error", "allow"]),
    default="error",
    show_default=True,
    help="Keys that differ only in case or Unicode composition.",
)
@click.option(
    "--symlinks",
    type=click.Choice(["follow", "skip", "error"]),
    default="follow",
    show_default=True,
    help="Symbolic links to files and directories; loops are noticed.",
)
@click.option(
    "--source-kind",
    type=click.Choice(["auto", "tree", "table", "inline", "archive", "objects"]),
    default="auto",
    show_default=True,
    help="What SOURCE is. auto: told by its name and content.",
)
@click.option(
    "--include",
    multiple=True,
    metavar="GLOB",
    help="Pack only what matches (repeatable). Without / a base name, with / a whole path; ** passes directories.",
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out files or directories (repeatable).")
@click.option("--path-column", metavar="NAME", help="Column of a table with the files' paths.  [default: the only one]")
@click.option("--root", type=_directory, help="Where a table's paths lie.  [default: the table's directory]")
@click.option("--key-column", metavar="NAME", help="Column with the keys of inline bytes.  [default: file and row]")
@click.option(
    "--column",
    "column_texts",
    multiple=True,
    metavar="NAME=EXT",
    help="Make a member of a column, such as caption=txt (repeatable); other columns go into one member json.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Processes, or shards in work at once on the whole Ray cluster.  [default: usable processors]",
)
@click.option(
    "--read-threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Reading threads in each process, to hide latency.  [default: measured]",
)
@cli_options.engine_options
@cli_options.check_options
@click.option(
    "--append-to",
    type=_directory,
    metavar="DATASET",
    help="Pack only what DATASET lacks; DESTINATION shares its shards and is a dataset of its own.",
)
@click.option("--overwrite", is_flag=True, help="Remove the dataset or unfinished work that lies at DESTINATION.")
@click.option("--dry-run", is_flag=True, help="Show what would be packed; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Result as one JSON object on stdout.")
@click.option("--verbose", is_flag=True, help="More log lines.")
@click.option("--quiet", is_flag=True, help="No progress, only warnings and errors.")
def build_command(
    source: str,
    destination: str,
    format_name: str,
    shard_size: int,
    split_text: str,
    shuffle_seed: int,
    no_shuffle: bool,
    class_from_dir: bool,
    key_rule_text: str,
    dotted_names: str,
    on_keyless: str,
    case_collisions: str,
    symlinks: str,
    source_kind: str,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    path_column: str | None,
    root: str | None,
    key_column: str | None,
    column_texts: tuple[str, ...],
    jobs: int | None,
    read_threads: int | None,
    append_to: str | None,
    overwrite: bool,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Pack what SOURCE holds into shards at DESTINATION, a directory or the URL of an object store.

    SOURCE is a directory; a table of paths (.csv, .tsv, .jsonl, .parquet); Parquet or Arrow files with bytes in
    columns; an archive (.tar, also compressed, .zip); or a URL such as s3://bucket/prefix. A quoted glob names
    several files.

    Files with the same name but for the extension are one sample. Nothing is left out silently: hidden files and the
    like are counted, everything else that does not fit is refused with a list before anything is written.

    Killed or stopped at any moment, the same command goes on from the finished shards and gives the same bytes.
    """
    from packer.config import PackConfig
    from packer.group import CaseCollisions, DottedNames, KeylessNames
    from packer.sources.names import Globs, check_patterns
    from packer.sources.options import SourceKind, SourceOptions, parse_columns
    from packer.sources.tree import SymlinkPolicy
    from shards.keys import parse_key_rule

    set_up_log(verbose=verbose, quiet=quiet)
    try:
        check_location(source, "SOURCE")
        if destination or not dry_run:
            check_location(destination, "DESTINATION")
        check_patterns((*include, *exclude))
        columns = parse_columns(column_texts)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    source_options = SourceOptions(
        kind=SourceKind(source_kind),
        globs=Globs(include, exclude),
        path_column=path_column,
        root=root,
        key_column=key_column,
        columns=columns,
    )
    engine, ray_address = cli_options.chosen_engine()
    config = PackConfig(
        source=source,
        source_options=source_options,
        destination=directory_of(destination),
        format_name=format_name,
        shard_size_bytes=shard_size,
        split=cli_options.chosen_split(split_text),
        shuffle_seed=None if no_shuffle else shuffle_seed,
        has_classes=class_from_dir,
        key_rule=parse_key_rule(key_rule_text),
        symlinks=SymlinkPolicy(symlinks),
        keyless=KeylessNames(on_keyless),
        dotted=DottedNames(dotted_names),
        case_collisions=CaseCollisions(case_collisions),
        checks=cli_options.chosen_checks(),
        transform=cli_options.chosen_transform(),
        engine=engine,
        ray_address=ray_address,
        jobs=jobs,
        read_threads=read_threads,
        overwrite=overwrite,
        append_to=None if append_to is None else directory_of(append_to),
    )
    _build(config, dry_run=dry_run, as_json=as_json)


def _build(config: "PackConfig", *, dry_run: bool, as_json: bool) -> None:
    from packer.preview import preview_build
    from packer.stop import StopFlag

    stop = StopFlag(cli_options.chosen_time_budget())
    with stop.set_by_signals():
        preview = preview_build(config, stop)
        if dry_run:
            from packer.plan_text import render_plan
            from packer.planning import report_plan

            plan_report = report_plan(config, preview, cli_options.chosen_cluster(), stop)
            show(as_json, plan_report.as_json, lambda: render_plan(plan_report))
            return
        from packer.build import build

        report = build(
            config,
            preview,
            stop,
            lambda num_bytes, num_samples: Progress("packing", total_bytes=num_bytes, total_samples=num_samples),
        )
    show(as_json, report.as_json, report.as_text)


name_variables(build_command, "PACK")  # flag > environment > default


def main() -> None:
    """Run the program; the console script calls this."""
    run_main(cli, "pack")
