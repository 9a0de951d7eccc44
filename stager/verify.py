"""How far the stager trusts what it finds in the cache; apart from the plan so that the command line starts quickly."""

from enum import StrEnum


class Verify(StrEnum):
    """How far a staged file is trusted when it is found."""

    SIZE = "size"
    """A file that looks as it did when it was committed is kept."""
    FULL = "full"
    """Every file is hashed again."""
