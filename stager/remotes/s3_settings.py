"""How an S3 service is reached and who asks, for every driver the same: flags before variables before files.

botocore reads all that AWS programs read: the variables, ``~/.aws``, web identity tokens, containers' and instances'
metadata. Both drivers get their settings and credentials from here, so that changing the driver changes nothing else.
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from botocore import UNSIGNED
from botocore.client import Config
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from shards.errors import RemoteDeniedError, RemoteError, printable
from stager.remotes.authorities import read_authorities
from stager.remotes.options import AddressingStyle, RemoteOptions

DEFAULT_REGION = "us-east-1"
"""What services other than AWS take when they take any."""

CREDENTIAL_SECONDS = 60.0
"""How long a driver may use renewable credentials before it asks botocore again, which renews them in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """What is known before the first request; nothing secret."""

    bucket: str
    endpoint_url: str | None
    """None for AWS."""
    region: str
    is_virtual: bool
    """Whether the bucket is part of the host name."""
    authorities: bytes | None
    """PEM text of authorities to trust besides the system's."""
    options: RemoteOptions
    num_connections: int


def open_session(options: RemoteOptions) -> Session:
    """Open a session of botocore, which finds credentials.

    Raises:
        RemoteError: there is no such profile, or its file is damaged.
    """
    session = Session(profile=options.profile)
    try:
        session.get_scoped_config()
    except BotoCoreError as error:
        raise RemoteError(
            f"the settings in ~/.aws cannot be used: {printable(str(error))}; check --profile (AWS_PROFILE)",
            is_transient=False,
        ) from error
    return session


def read_settings(session: Session, options: RemoteOptions, bucket: str, num_connections: int) -> S3Settings:
    """Read what flags, variables and files say about the service.

    Raises:
        RemoteError: a setting is wrong, or a file of certificates cannot be used.
    """
    endpoint_url = options.endpoint_url or _configured_endpoint(session)
    if endpoint_url is not None and not endpoint_url.startswith(("http://", "https://")):
        raise RemoteError(
            f"the endpoint {printable(endpoint_url)} does not begin with http:// or https://", is_transient=False
        )
    region = options.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    style = options.addressing_style
    if style is AddressingStyle.AUTO:
        configured = (session.get_scoped_config().get("s3") or {}).get("addressing_style")
        style = AddressingStyle(configured) if configured in {"path", "virtual"} else style
    ca_bundle = options.ca_bundle or session.get_config_variable("ca_bundle")
    # a certificate for *.host covers one label, and a bucket with dots has several
    is_virtual = style is AddressingStyle.VIRTUAL or (
        style is AddressingStyle.AUTO and endpoint_url is None and "." not in bucket
    )
    return S3Settings(
        bucket=bucket,
        endpoint_url=endpoint_url.rstrip("/") if endpoint_url else None,
        region=region or DEFAULT_REGION,
        is_virtual=is_virtual,
        authorities=read_authorities(ca_bundle) if ca_bundle else None,
        options=options,
        num_connections=num_connections,
    )


def find_credentials(session: Session, options: RemoteOptions) -> Credentials | None:
    """Find credentials; None for requests that are not signed.

    Raises:
        RemoteDeniedError: there are none, or they cannot be had.
    """
    if options.is_anonymous:
        return None
    try:
        credentials: Credentials | None = session.get_credentials()
    except BotoCoreError as error:
        raise _not_had(error) from error
    if credentials is None:
        raise RemoteDeniedError(
            "no credentials for S3 were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give --profile, or "
            "give --anonymous for a public bucket"
        )
    return credentials


def freeze(credentials: Credentials) -> tuple[str, str, str | None, datetime | None]:
    """Give access key, secret key, token, and until when they may be used without asking again.

    Renews them when they are about to expire, which may take a request to a token service.

    Raises:
        RemoteDeniedError: they cannot be renewed.
    """
    try:
        frozen = credentials.get_frozen_credentials()
    except BotoCoreError as error:
        raise _not_had(error) from error
    expires_at = None
    if isinstance(credentials, RefreshableCredentials):
        expires_at = datetime.now(UTC) + timedelta(seconds=CREDENTIAL_SECONDS)
    return frozen.access_key, frozen.secret_key, frozen.token, expires_at


def _not_had(error: BotoCoreError) -> RemoteDeniedError:
    return RemoteDeniedError(f"credentials for S3 cannot be had: {printable(str(error))}")


def _configured_endpoint(session: Session) -> str | None:
    """Ask botocore for the endpoint of variables and files; a client finds it, and none is kept."""
    if not _mentions_endpoint(session):
        return None
    client = session.create_client("s3", config=Config(signature_version=UNSIGNED, region_name=DEFAULT_REGION))
    try:
        url: str = client.meta.endpoint_url
        return url
    finally:
        client.close()


def _mentions_endpoint(session: Session) -> bool:
    """Whether there is anything to look for: to make a client takes a tenth of a second."""
    variables = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
    profile = session.get_scoped_config()
    return any(os.environ.get(name) for name in variables) or bool({"endpoint_url", "services"} & profile.keys())
