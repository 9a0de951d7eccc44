"""How a source is reached, as one value: what flags and variables say, and nothing secret; pure.

Credentials are not here. They come from the drivers' own chains, which know how to renew them.
"""

from dataclasses import dataclass
from enum import StrEnum

DEFAULT_STALL_SECONDS = 30.0
"""A healthy server under load lets a reader wait for a few seconds at most; a dead one for ever."""

DEFAULT_RETRY_SECONDS = 5 * 60.0
"""A gateway that is restarted, or a store that asks to slow down, needs minutes."""


class AddressingStyle(StrEnum):
    """Where the bucket's name stands in an S3 request."""

    AUTO = "auto"
    """In the path for an endpoint of one's own, in the host name for AWS."""
    PATH = "path"
    VIRTUAL = "virtual"


class S3Driver(StrEnum):
    """Which client reads S3."""

    AUTO = "auto"
    """obstore where it is installed, and s3fs for servers that it refuses to talk to."""
    OBSTORE = "obstore"
    S3FS = "s3fs"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """How a source is reached. None leaves a thing to the variables and files that its driver reads."""

    endpoint_url: str | None = None
    """Of an S3 service that is not AWS."""
    region: str | None = None
    profile: str | None = None
    """Section of the files in ``~/.aws``."""
    ca_bundle: str | None = None
    """PEM file of authorities that are trusted besides those of the system."""
    addressing_style: AddressingStyle = AddressingStyle.AUTO
    is_anonymous: bool = False
    """Requests are not signed."""
    is_requester_pays: bool = False
    s3_driver: S3Driver = S3Driver.AUTO
    stall_seconds: float = DEFAULT_STALL_SECONDS
    """How long a request may bring no byte before it is given up and repeated."""
    retry_seconds: float = DEFAULT_RETRY_SECONDS
    """How long a request is repeated while the source fails transiently."""
    bandwidth_bytes_per_second: int | None = None
    """Most that all stagers of the node read together; None for no limit."""

    def __post_init__(self) -> None:
        if self.bandwidth_bytes_per_second is not None and self.bandwidth_bytes_per_second < 1:
            raise ValueError("a bandwidth limit of 0 lets nothing through")
        if not 0 < self.stall_seconds < float("inf"):
            raise ValueError(f"the stall timeout must be more than 0 s, {self.stall_seconds:g} s is not")
        if not 0 <= self.retry_seconds < float("inf"):
            raise ValueError(f"the time for repeats must be 0 s or more, {self.retry_seconds:g} s is not")


DEFAULT_OPTIONS = RemoteOptions()
