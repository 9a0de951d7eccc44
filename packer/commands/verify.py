"""``pack verify``."""

from contextlib import closing

import click

from packer.commands import set_up_log, show
from shardferry.console import Progress

BYTES_PER_JOB = 1024**3
"""Less than this is checked before another process has started."""


@click.command("verify")
@click.argument("destination", type=click.Path(path_type=str))
@click.option("--deep", is_flag=True, help="Also compare each index with a strict scan of its shard.")
@click.option(
    "--against",
    "source",
    type=click.Path(path_type=str),
    metavar="SRC",
    help="Also compare every member with the files below SRC, byte for byte.",
)
@click.option(
    "--root",
    type=click.Path(path_type=str),
    help="With --against TABLE: where its paths lie.  [default: its directory]",
)
@click.option("--readers", is_flag=True, help="Also check that all readers see the same keys and extensions.")
@click.option("--jobs", type=click.IntRange(1, 1024), metavar="N", help="Processes.  [default: usable processors]")
@click.option("--json", "as_json", is_flag=True, help="Result as one JSON object on stdout.")
@click.option("--verbose", is_flag=True, help="More log lines.")
@click.option("--quiet", is_flag=True, help="No progress, only warnings and errors.")
def command(
    destination: str,
    deep: bool,
    source: str | None,
    root: str | None,
    readers: bool,
    jobs: int | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Check every byte of the dataset at DESTINATION against its digests.

    Exit status 65 when something is damaged, or is not as in the source; all faults are listed.
    """
    from packer.inspect import read_manifest
    from packer.stop import StopFlag
    from packer.verify import FaultsFoundError, verify_dataset
    from shards.cpus import usable_cpus

    set_up_log(verbose=verbose, quiet=quiet)
    manifest = read_manifest(destination)
    stop = StopFlag()
    total_bytes = manifest.size_bytes * (1 if source is None else 2)
    with stop.set_by_signals(), Progress("verifying", total_bytes=total_bytes) as progress:

        def report_bytes(num_bytes: int) -> None:
            progress.advance(num_bytes=num_bytes)
            stop.check()

        num_jobs = jobs or min(usable_cpus(), 1 + manifest.size_bytes // BYTES_PER_JOB)
        found = verify_dataset(destination, manifest, is_deep=deep, report_bytes=report_bytes, num_jobs=num_jobs)
        if readers and not found.faults:
            from packer.readers import reader_faults

            found.faults.extend(reader_faults(destination, manifest))
            found.are_names_at_fault = bool(found.faults)
        if source is not None and not found.faults:
            from packer.unpack.compare import Comparison, compare_with_source
            from packer.unpack.source_samples import SourceSamples

            found.comparison = Comparison(source)
            with closing(SourceSamples(manifest, source, root)) as samples:
                compare_with_source(destination, manifest, samples, found.comparison, report_bytes)
            found.faults.extend(found.comparison.fault_lines())
    if found.faults:
        if as_json:
            show(as_json, found.as_json, str)
        raise FaultsFoundError(found)
    show(as_json, found.as_json, found.as_text)
