"""``pack extract``."""

import click

from packer.commands import set_up_log, show
from shardferry.console import Progress


@click.command("extract")
@click.argument("destination", type=click.Path(path_type=str))
@click.argument("target", type=click.Path(path_type=str))
@click.argument("keys", nargs=-1, metavar="[KEY|KEY.EXT]...")
@click.option("--split", metavar="NAME", help="Only this split.  [default: all]")
@click.option("--glob", "globs", multiple=True, metavar="PATTERN", help="Members whose KEY.EXT matches; repeatable.")
@click.option(
    "--existing",
    type=click.Choice(["error", "skip", "overwrite"]),
    default="error",
    show_default=True,
    help="What to do with files that are there already.",
)
@click.option(
    "--case-collisions",
    type=click.Choice(["error", "allow"]),
    default="error",
    show_default=True,
    help="Names that differ only in case or Unicode composition.",
)
@click.option("--stored-names", is_flag=True, help="Keep %2E and %25 of --dotted-names escape as they are stored.")
@click.option("--json", "as_json", is_flag=True, help="Result as one JSON object on stdout.")
@click.option("--verbose", is_flag=True, help="More log lines.")
@click.option("--quiet", is_flag=True, help="No progress, only warnings and errors.")
def command(
    destination: str,
    target: str,
    keys: tuple[str, ...],
    split: str | None,
    globs: tuple[str, ...],
    existing: str,
    case_collisions: str,
    stored_names: bool,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Write members of the dataset at DESTINATION as files below TARGET: all, or those of the KEYs and patterns.

    Nothing is written outside of TARGET, no link is followed, and no file is replaced unless --existing overwrite is
    given. Each member is checked against its sum. Extensions come in lower case, as they are stored.
    """
    from packer.inspect import read_manifest
    from packer.stop import StopFlag
    from packer.stores.open import open_store
    from packer.unpack.extract import ExtractOptions, extract, is_escaped
    from packer.unpack.names import Selection
    from packer.unpack.target import Existing

    set_up_log(verbose=verbose, quiet=quiet)
    manifest = read_manifest(destination)
    options = ExtractOptions(
        selection=Selection(frozenset(keys), globs),
        split=split,
        is_escaped=is_escaped(manifest) and not stored_names,
        allows_case_collisions=case_collisions == "allow",
        existing=Existing(existing),
    )
    stop = StopFlag()
    with stop.set_by_signals(), Progress("extracting") as progress:

        def report(num_bytes: int) -> None:
            progress.advance(num_bytes=num_bytes)
            stop.check()

        done = extract(open_store(destination), manifest, target, options, report)
    show(as_json, done.as_json, done.as_text)
