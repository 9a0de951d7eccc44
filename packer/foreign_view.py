"""What readers that are not ours see in the name of a tar member; pure."""

import re

_SAMPLE = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
"""From ``base_plus_ext`` of webdataset's ``tariterators.py``."""

_METADATA = re.compile(r"__[^/]*__($|/)")
"""From ``tar_file_iterator`` there: what is left out as metadata, by the begin of the name."""

_OWN_FIELD = re.compile(r"__.*__", re.DOTALL)
"""Fields that the library adds beside the members (``__key__``, ``__url__``); such an extension clashes with them."""


def webdataset_view(name: str) -> tuple[str, str] | None:
    """Key and extension as the webdataset library sees them; None for a member that it passes over or dies of."""
    found = None if _METADATA.match(name) else _SAMPLE.match(name)
    if found is None or _OWN_FIELD.fullmatch(found[2]):
        return None
    return found[1], found[2].lower()
