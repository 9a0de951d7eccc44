"""``stage doctor``."""

import click

from stager.commands.options import absolute_cache_dir, cache_dir_option, json_option
from stager.commands.source import source_options
from stager.config import DEFAULT_CONNECTIONS
from stager.remotes.options import RemoteOptions


@click.command("doctor")
@click.argument("source", metavar="[SRC]", envvar="STORAGE_URI", required=False)
@cache_dir_option("Directory that is, or will be, the root of this node's cache.")
@source_options
@json_option()
def command(source: str | None, cache_dir: str, remote: RemoteOptions, is_json: bool) -> int:
    """Look at everything that staging SRC into the cache needs, and say what to do about what is wrong.

    The way to the source (name, address, proxy, TLS and its authorities, clock), credentials and their expiry, whether
    sizes and ranges can be read and a replaced file is noticed; the cache's owner, modes, filesystem, locks, room and
    inodes, and what the kubelet would count; memory and open files. Reads a few kilobytes, leaves nothing behind, and
    never shows a secret. Without SRC, only the node is looked at.

    \b
    Examples:
      stage doctor s3://datasets/imagenet --cache-dir /nvme/cache --endpoint-url https://rgw.example
      stage doctor /mnt/nfs/imagenet --cache-dir /nvme/cache --json

    \b
    Exit codes: 0 nothing stands in the way; else that of the first check that failed, the same that stage run would
    have: 65, 66, 69, 73, 74, 77, 78, 79; 2 usage.
    """  # noqa: D301 (click reads the backspace)
    import logging

    from stager.config import parse_source
    from stager.doctor.cache import check_cache
    from stager.doctor.findings import Finding, exit_code, render_json, render_text
    from stager.doctor.machine import check_machine
    from stager.doctor.patience import collect
    from stager.doctor.source import SourceFacts, check_source

    logging.disable(logging.CRITICAL)  # what drivers have to say is in the findings
    root = absolute_cache_dir(cache_dir)
    facts = SourceFacts()
    findings: list[Finding] = []
    if source:
        try:
            place = parse_source(source)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="SRC") from error
        findings += collect("source", lambda: check_source(place, remote, facts))
    findings += collect("cache", lambda: check_cache(root, facts.needed_bytes(root)))
    findings += check_machine(DEFAULT_CONNECTIONS)
    click.echo(render_json(findings) if is_json else render_text(findings))
    return exit_code(findings)
