"""Names of the engines, as users write them."""

from enum import StrEnum


class EngineName(StrEnum):
    """Who finishes the shards."""

    LOCAL = "local"
    RAY = "ray"
