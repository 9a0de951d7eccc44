"""From what a store answered to an error that says what is wrong and what to do; pure.

The same answers mean different things in the eyes of a user: a wrong bucket, a wrong key, missing rights, a wrong
secret, a wrong region and a clock that is off all come as 4xx. They are told apart by the code in the answer's body.
"""

from collections.abc import Mapping

from shards.errors import (
    RemoteBusyError,
    RemoteDeniedError,
    RemoteError,
    RemoteMissingError,
    RemoteUnreachableError,
    printable,
)
from stager.remotes.driver import (
    CERTIFICATE,
    DROPPED,
    NAME_UNKNOWN,
    NOT_TLS,
    RANGE_IGNORED,
    REFUSED,
    UNREACHABLE,
    Failure,
)

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})

_DENIED: Mapping[str, str] = {
    "AccessDenied": "the credentials are known but may not read this (s3:GetObject); a store also says so of objects "
    "that do not exist to those who may not list them (s3:ListBucket): check the name as well",
    "AllAccessDisabled": "all access to the bucket is disabled",
    "AccountProblem": "the account of these credentials is blocked",
    "InvalidAccessKeyId": "the store does not know this access key: check AWS_ACCESS_KEY_ID or the profile, and "
    "whether the endpoint is the one that they belong to",
    "SignatureDoesNotMatch": "the secret key does not fit the access key: check AWS_SECRET_ACCESS_KEY for missing or "
    "additional characters",
    "InvalidToken": "the session token is not valid: set AWS_SESSION_TOKEN to the one that came with the access key, "
    "or unset it",
    "RequestTimeTooSkewed": "the clock of this machine and that of the store differ by too much: synchronise it (NTP), "
    "signatures carry the time",
    "RequestTimeTooSkewedException": "the clock of this machine differs from the store's: synchronise it (NTP)",
    "NoCredentials": "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give --profile, or "
    "give --anonymous for a public bucket",
}

_REGION = frozenset(
    {
        "PermanentRedirect",
        "TemporaryRedirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "InvalidRegion",
        "IncorrectEndpoint",
    }
)

_BUSY = frozenset(
    {"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling", "TooManyRequests", DROPPED}
)

_UNREACHED: Mapping[str, str] = {
    NAME_UNKNOWN: "the host name has no address: check the endpoint (--endpoint-url), with path or host style "
    "(--addressing-style) and this machine's DNS",
    REFUSED: "nothing listens there: check host and port of the endpoint (--endpoint-url) and whether the service runs",
    UNREACHABLE: "no connection: check the endpoint (--endpoint-url), proxies (HTTPS_PROXY, NO_PROXY) and firewalls",
}

_HELPLESS: Mapping[str, str] = {
    CERTIFICATE: "its certificate is not from an authority that this machine trusts: give the authority's certificate "
    "with --ca-bundle (AWS_CA_BUNDLE)",
    NOT_TLS: "one side speaks TLS and the other does not: check https:// or http:// and the port of the endpoint",
    RANGE_IGNORED: "the server ignores ranges; such a source cannot be staged block by block",
}


def is_expired(failure: Failure) -> bool:
    """Whether new credentials may help."""
    return failure.code in _EXPIRED


def explain(failure: Failure, where: str) -> RemoteError:
    """Give the error for a failure.

    Args:
        failure: what the driver reported.
        where: URL of what was asked for, without secrets.
    """
    code, status = failure.code, failure.status
    told = _told(failure)
    if code in _UNREACHED:
        return RemoteUnreachableError(f"{where}: {told}; {_UNREACHED[code]}")
    if code in _HELPLESS:
        return RemoteError(f"{where}: {told}; {_HELPLESS[code]}", is_transient=False)
    if code == "NoSuchBucket":
        return RemoteMissingError(
            f"{where}: there is no such bucket ({told}); check its name, and with --endpoint-url whether it is one of "
            "this service"
        )
    if code in {"NoSuchKey", "NoSuchVersion"} or (status == 404 and not code):
        return RemoteMissingError(f"{where}: there is no such object")
    if code in _REGION or status in {301, 307}:
        advice = (
            f"give --region {failure.region}"
            if failure.region
            else "give the bucket's region with --region (AWS_REGION)"
        )
        return RemoteError(f"{where}: the bucket is in another region ({told}); {advice}", is_transient=False)
    if code in _EXPIRED:
        return RemoteDeniedError(f"{where}: the credentials have expired, and so have those read anew ({told})")
    if code in _DENIED:
        return RemoteDeniedError(f"{where}: {told}; {_DENIED[code]}")
    if status in {401, 403}:
        return RemoteDeniedError(f"{where}: access is denied ({told}); check credentials and rights")
    if code in _BUSY or status is None or status in {408, 429} or status >= 500:
        return RemoteBusyError(f"{where}: {told}", retry_after_seconds=failure.retry_after_seconds)
    if status in {404, 405, 410}:
        return RemoteMissingError(
            f"{where}: {told}; this does not look like the answer of an S3 service: check --endpoint-url"
            if code == "MethodNotAllowed"
            else f"{where}: there is no such object ({told})"
        )
    return RemoteError(f"{where}: {told}", is_transient=False)


def _told(failure: Failure) -> str:
    words = [f"HTTP {failure.status}" if failure.status else "", failure.code]
    head = " ".join(word for word in words if word)
    text = " ".join(failure.message.split())[:300]
    if text and text != failure.code:
        head = f"{head}: {text}" if head else text
    return printable(head or "no answer")
