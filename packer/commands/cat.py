"""``pack cat``."""

import sys

import click

from packer.commands import set_up_log


@click.command("cat")
@click.argument("destination", type=click.Path(path_type=str, readable=False))
@click.argument("member", metavar="KEY.EXT")
def command(destination: str, member: str) -> None:
    """Write one member's bytes to stdout, checked against its sum."""
    from packer.inspect import read_manifest, read_member

    set_up_log(verbose=False, quiet=False)
    sys.stdout.buffer.write(read_member(destination, read_manifest(destination), member))
    sys.stdout.buffer.flush()
