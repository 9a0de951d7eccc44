"""``pack inspect``."""

import click

from packer.commands import set_up_log, show


@click.command("inspect")
@click.argument("destination", type=click.Path(path_type=str, readable=False))
@click.argument("key", required=False)
@click.option("--json", "as_json", is_flag=True, help="Result as one JSON object on stdout.")
def command(destination: str, key: str | None, as_json: bool) -> None:
    """Show what the dataset at DESTINATION holds, or where the sample KEY lies."""
    from packer.inspect import find_samples, read_manifest, summary_as_json, summary_as_text
    from shards.errors import NotStagedError, printable

    set_up_log(verbose=False, quiet=False)
    manifest = read_manifest(destination)
    if key is None:
        show(as_json, lambda: summary_as_json(manifest), lambda: summary_as_text(manifest))
        return
    found = find_samples(destination, manifest, key)
    if not found:
        raise NotStagedError(
            f"no sample in {printable(destination)} has the key {printable(key)}; "
            "a key is the file's path below the source without its extension"
        )
    show(
        as_json,
        lambda: {"samples": [sample.as_json() for sample in found]},
        lambda: "\n".join(sample.as_text() for sample in found),
    )
