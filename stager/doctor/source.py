"""Looks at a source: how it is reached, who asks, and whether what staging does with it works."""

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import urlsplit

from shardferry.console import exit_code_of
from shardferry.console.units import format_bytes, format_count
from shards.errors import RemoteChangedError, RemoteError, ShardferryError
from shards.manifest import MANIFEST_NAME, Manifest, ShardEntry
from stager.doctor.findings import Finding, failed, good, skipped, warning
from stager.doctor.mounts import mount_of, nearest_existing, read_mounts
from stager.doctor.network import check_network
from stager.remotes.authorities import read_authorities
from stager.remotes.base import Remote, RemoteVersion, read_whole_manifest
from stager.remotes.open import S3_SCHEMES, open_remote
from stager.remotes.options import RemoteOptions

_RANGE_BYTES = 4096
_GIVEN_UP = re.compile(r"; given up after [^;]*$")
"""Nothing is repeated here."""

_SOON_SECONDS = 15 * 60.0


@dataclass(slots=True)
class SourceFacts:
    """What is known about the dataset after its source was looked at."""

    manifest: Manifest | None = None

    def needed_bytes(self, cache_dir: str) -> int | None:
        """Give what staging all of it would still write; None when the manifest could not be read."""
        if self.manifest is None:
            return None
        directory = os.path.join(cache_dir, "datasets", self.manifest.dataset_id.rpartition(":")[2])
        files = [
            file
            for _, shard in self.manifest.shards()
            for file in ((shard.name, shard.size_bytes), (shard.index_name, shard.index_size_bytes))
        ]
        return sum(size for name, size in files if not os.path.exists(os.path.join(directory, name)))


def check_source(source: str, options: RemoteOptions, facts: SourceFacts) -> Iterator[Finding]:
    """Look at a source.

    Args:
        source: as :func:`stager.config.parse_source` gives it.
        options: how it is reached.
        facts: filled.
    """
    scheme, is_url, _ = source.partition("://")
    if not is_url:
        yield from _check_mount(source)
    elif scheme in S3_SCHEMES:
        yield from _check_s3(source, options)
    elif scheme in {"http", "https"}:
        try:
            authorities = read_authorities(options.ca_bundle) if options.ca_bundle else None
        except RemoteError as error:
            yield _of_error("ca bundle", error)
            return
        yield from check_network(source, authorities, is_signed=False)
    else:
        yield skipped("network", f"how {scheme}:// is reached is known to its driver alone")
    findings: list[Finding] = []
    asyncio.run(_check_reading(source, replace(options, retry_seconds=0.0), facts, findings))
    yield from findings


def _check_mount(path: str) -> Iterator[Finding]:
    mount = mount_of(nearest_existing(path), read_mounts())
    if mount is not None:
        options = ",".join(sorted(mount.options & {"ro", "soft", "nosuid"}))
        yield good("mount", f"{mount.filesystem} at {mount.point}{f' ({options})' if options else ''}")


def _check_s3(source: str, options: RemoteOptions) -> Iterator[Finding]:
    try:
        from stager.remotes import s3_settings  # noqa: PLC0415 (botocore is an extra)
    except ImportError as error:
        yield failed("driver", f"not installed: {error}", "pip install 'shardferry[s3]'", exit_code_of(RemoteError("")))
        return
    bucket = urlsplit(source).netloc
    try:
        session = s3_settings.open_session(options)
        settings = s3_settings.read_settings(session, options, bucket, 1)
    except RemoteError as error:
        yield _of_error("settings", error)
        return
    endpoint = settings.endpoint_url or f"https://s3.{settings.region}.amazonaws.com"
    where = "in the host name" if settings.is_virtual else "in the path"
    yield good("endpoint", f"{endpoint}, region {settings.region}, the bucket's name {where}")
    parts = urlsplit(endpoint)
    host = f"{parts.scheme}://{bucket}.{parts.netloc}" if settings.is_virtual else endpoint
    yield from check_network(host, settings.authorities, is_signed=not options.is_anonymous)
    if options.is_anonymous:
        yield good("credentials", "none: requests are not signed")
        return
    try:
        credentials = s3_settings.find_credentials(session, options)
        if credentials is not None:
            *_, until = s3_settings.freeze(credentials)
            yield _credentials(str(credentials.method), getattr(credentials, "_expiry_time", None) or until)
    except RemoteError as error:
        yield _of_error("credentials", error)


def _credentials(method: str, expires_at: object) -> Finding:
    """Say where credentials came from and how long they last; never what they are."""
    if not isinstance(expires_at, datetime):
        return good("credentials", f"found by {method}; they do not say that they expire")
    left = (expires_at - datetime.now(UTC)).total_seconds()
    facts = f"found by {method}; good until {expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, renewed before that"
    if left < _SOON_SECONDS and method in {"env", "shared-credentials-file"}:
        return warning("credentials", facts, "nothing renews these: fetch new ones before staging")
    return good("credentials", facts)


async def _check_reading(source: str, options: RemoteOptions, facts: SourceFacts, findings: list[Finding]) -> None:
    try:
        remote = open_remote(source, options, 2)
    except ShardferryError as error:
        findings.append(_of_error("driver", error))
        return
    try:
        await _read(remote, facts, findings)
    finally:
        await remote.close()


async def _read(remote: Remote, facts: SourceFacts, findings: list[Finding]) -> None:
    try:
        data = await read_whole_manifest(remote, MANIFEST_NAME)
        manifest = Manifest.from_json(data, name=f"{remote.url}/{MANIFEST_NAME}")
    except ShardferryError as error:
        findings.append(_of_error("manifest", error))
        return
    facts.manifest = manifest
    findings.append(
        good(
            "manifest",
            f"{format_count(manifest.num_shards)} shards, {format_bytes(manifest.size_bytes)}, dataset "
            f"{manifest.dataset_id[:19]}…",
        )
    )
    shard = max((shard for _, shard in manifest.shards()), key=lambda shard: shard.size_bytes)
    try:
        version = await remote.stat(shard.name)
    except ShardferryError as error:
        findings.append(_of_error("head", error))
        return
    if version.size_bytes != shard.size_bytes:
        findings.append(
            failed(
                "head",
                f"{shard.name} has {version.size_bytes} bytes, the manifest says {shard.size_bytes}",
                "the dataset is damaged or still being copied there: restore it or pack it again",
                65,
            )
        )
        return
    findings.append(good("head", f"sizes can be asked for ({shard.name}: {format_bytes(shard.size_bytes)})"))
    if not shard.size_bytes:
        findings.append(skipped("range", "all shards are empty"))
        return
    findings.append(await _read_range(remote, shard, version))
    findings.append(await _read_other_version(remote, shard, version))


async def _read_range(remote: Remote, shard: ShardEntry, version: RemoteVersion) -> Finding:
    """Read a range in the middle twice, cut differently: a server that ignores ranges gives other bytes."""
    size = min(_RANGE_BYTES, shard.size_bytes // 2)
    start = shard.size_bytes - size
    whole, part = bytearray(size), bytearray(size // 2)
    try:
        await remote.read_range(shard.name, start, memoryview(whole), version)
        await remote.read_range(shard.name, start + size - len(part), memoryview(part), version)
    except ShardferryError as error:
        return _of_error("range", error)
    if whole[size - len(part) :] != part:
        return failed("range", "two reads of one range differ", "something between here and the source alters data", 65)
    return good("range", "ranges can be read")


async def _read_other_version(remote: Remote, shard: ShardEntry, version: RemoteVersion) -> Finding:
    """Ask for a version that was never there: it must be refused, or a replaced shard would be mixed with the old."""
    other = replace(version, token=f"{version.token}-other", etag='"00000000000000000000000000000000"')
    try:
        await remote.read_range(shard.name, 0, memoryview(bytearray(min(16, shard.size_bytes))), other)
    except RemoteChangedError:
        return good("if-match", "a file that is replaced meanwhile is noticed")
    except ShardferryError as error:
        return _of_error("if-match", error)
    return warning(
        "if-match",
        "the source does not tell versions of a file apart",
        "never replace files of a published dataset; every block is verified all the same",
    )


def _of_error(check: str, error: ShardferryError) -> Finding:
    facts, _, advice = _GIVEN_UP.sub("", str(error)).partition("; ")
    return failed(check, facts, advice or "see the message", exit_code_of(error))
