"""Options of every command that reads a source: how it is reached. They come to the command as one ``remote`` value."""

import functools
from collections.abc import Callable
from typing import Any

import click

from shardferry.console import ByteSize, Duration
from stager.remotes.options import (
    DEFAULT_RETRY_SECONDS,
    DEFAULT_STALL_SECONDS,
    AddressingStyle,
    RemoteOptions,
    S3Driver,
)

_OPTIONS = (
    click.option(
        "--endpoint-url",
        envvar=["STAGE_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"],
        show_envvar=True,
        help="Of an S3 service that is not AWS, such as https://rgw.example:8443.",
    ),
    click.option("--region", envvar=["STAGE_REGION", "AWS_REGION"], show_envvar=True, help="Of the bucket."),
    click.option(
        "--profile",
        envvar=["STAGE_PROFILE", "AWS_PROFILE"],
        show_envvar=True,
        help="Section of the files in ~/.aws with credentials and settings.",
    ),
    click.option(
        "--anonymous", "is_anonymous", is_flag=True, envvar="STAGE_ANONYMOUS", help="Do not sign requests to S3."
    ),
    click.option(
        "--requester-pays",
        "is_requester_pays",
        is_flag=True,
        envvar="STAGE_REQUESTER_PAYS",
        help="Agree to pay for reading a bucket whose owner asks for that.",
    ),
    click.option(
        "--addressing-style",
        type=click.Choice([style.value for style in AddressingStyle]),
        default=AddressingStyle.AUTO.value,
        show_default=True,
        envvar="STAGE_ADDRESSING_STYLE",
        help="Where the bucket's name stands in requests to S3: in the path, or in the host name (virtual). auto: in "
        "the path with --endpoint-url, in the host name for AWS.",
    ),
    click.option(
        "--ca-bundle",
        type=click.Path(),
        envvar=["STAGE_CA_BUNDLE", "AWS_CA_BUNDLE"],
        show_envvar=True,
        help="PEM file of certificate authorities to trust besides those of the system.",
    ),
    click.option(
        "--s3-driver",
        type=click.Choice([driver.value for driver in S3Driver]),
        default=S3Driver.AUTO.value,
        show_default=True,
        envvar="STAGE_S3_DRIVER",
        help="What reads S3. auto: obstore, which is faster, and s3fs for servers that obstore refuses.",
    ),
    click.option(
        "--stall-timeout",
        "stall_seconds",
        type=Duration(),
        default=DEFAULT_STALL_SECONDS,
        show_default="30s",
        envvar="STAGE_STALL_TIMEOUT",
        help="How long a request may bring no byte before it is made anew.",
    ),
    click.option(
        "--bandwidth-limit",
        type=ByteSize(),
        envvar="STAGE_BANDWIDTH_LIMIT",
        help="Most that is read from sources in a second, by all stagers of this cache together, such as 500MB.  "
        "[default: no limit]",
    ),
    click.option(
        "--retry-for",
        "retry_seconds",
        type=Duration(),
        default=DEFAULT_RETRY_SECONDS,
        show_default="5m",
        envvar="STAGE_RETRY_FOR",
        help="How long a request is repeated while the source is busy or away.",
    ),
)


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets a ``remote`` argument."""

    @functools.wraps(command)
    def with_remote(**values: Any) -> Any:
        try:
            remote = RemoteOptions(
                endpoint_url=values.pop("endpoint_url"),
                region=values.pop("region"),
                profile=values.pop("profile"),
                ca_bundle=values.pop("ca_bundle"),
                addressing_style=AddressingStyle(values.pop("addressing_style")),
                is_anonymous=values.pop("is_anonymous"),
                is_requester_pays=values.pop("is_requester_pays"),
                s3_driver=S3Driver(values.pop("s3_driver")),
                stall_seconds=values.pop("stall_seconds"),
                retry_seconds=values.pop("retry_seconds"),
                bandwidth_bytes_per_second=values.pop("bandwidth_limit"),
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        return command(**values, remote=remote)

    decorated: Callable[..., Any] = with_remote
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
