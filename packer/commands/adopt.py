"""``pack adopt``."""

import click

from packer.commands import set_up_log, show
from shardferry.console import Progress


@click.command("adopt")
@click.argument("source", type=click.Path(path_type=str))
@click.option(
    "--output",
    type=click.Path(path_type=str),
    metavar="DIR",
    help="Make the dataset in DIR, with links to the shards.  [default: beside the shards]",
)
@click.option(
    "--link",
    type=click.Choice(["hard", "symbolic"]),
    default="hard",
    show_default=True,
    help="Links that --output makes; symbolic ones also lead to other filesystems.",
)
@click.option(
    "--split",
    "split_texts",
    multiple=True,
    metavar="NAME=GLOB",
    help="Shards of a split, once for each split; other files are left out.  [default: as the names say]",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["tar", "tfrecord"]),
    help="Only shards of this format.  [default: as the names say]",
)
@click.option("--allow-incomplete", is_flag=True, help="Take sets of which -of-N says that shards are missing.")
@click.option("--overwrite", is_flag=True, help="Make manifest and indexes anew.")
@click.option("--jobs", type=click.IntRange(1, 1024), metavar="N", help="Processes.  [default: usable processors]")
@click.option("--json", "as_json", is_flag=True, help="Result as one JSON object on stdout.")
@click.option("--verbose", is_flag=True, help="More log lines.")
@click.option("--quiet", is_flag=True, help="No progress, only warnings and errors.")
def command(
    source: str,
    output: str | None,
    link: str,
    split_texts: tuple[str, ...],
    format_name: str | None,
    allow_incomplete: bool,
    overwrite: bool,
    jobs: int | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Make a dataset of the WebDataset tars or TFRecords in SOURCE that somebody else wrote.

    Each shard is read once, strictly, and is not touched; its index and one manifest are written beside it. Then the
    shards can be staged, loaded and verified like those of pack build. If any shard is damaged, all damaged ones are
    listed and nothing is written.
    """
    from packer.adopt.output import LinkKind
    from packer.adopt.report import adopted_as_json, adopted_as_text
    from packer.adopt.run import AdoptConfig, adopt
    from packer.stop import StopFlag
    from shards.cpus import usable_cpus
    from shards.foreign.names import parse_split_globs

    set_up_log(verbose=verbose, quiet=quiet)
    try:
        globs = tuple(parse_split_globs(split_texts))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--split") from error
    config = AdoptConfig(
        source=source,
        output=output,
        link=LinkKind(link),
        globs=globs,
        format_name=format_name,
        allows_incomplete=allow_incomplete,
        overwrite=overwrite,
        num_jobs=jobs or usable_cpus(),
    )
    stop = StopFlag()
    with stop.set_by_signals(), Progress("scanning", total_samples=None) as progress:

        def report(num_samples: int, num_bytes: int) -> None:
            progress.advance(num_samples=num_samples, num_bytes=num_bytes)

        done = adopt(config, stop.check, report)
    show(as_json, lambda: adopted_as_json(done), lambda: adopted_as_text(done))
