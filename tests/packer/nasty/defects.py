"""Trees of which the packer does not give the expected report yet, and why.

An entry goes when its fault is mended: those that are strict fail as soon as the report is right.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """Why a report is wrong."""

    reason: str
    is_strict: bool = True
    """False where the report may be right by chance."""


COUNT = Defect(reason="num_files counts files that were left out for having no key")
ESCAPE = Defect(reason="keys without a dot are not escaped, so two names can give one key")
UNSEEN = Defect(reason="names are stored that the webdataset library drops or dies of")
MEETS = Defect(reason="a member has the name of a directory of another, which no tar can unpack")
UNREADABLE = Defect(reason="a source that cannot be read is a usage error")
BELOW_FILE = Defect(reason="a destination below a file is an error without advice")

DEFECTS: dict[str, Defect] = {
    "dots-trailing-allowed": COUNT,
    "dots-trailing-last-dot": COUNT,
    "keyless-no-extension-skipped": COUNT,
    "split-by-directory-keyless-at-top": COUNT,
    "dots-percent-twins": ESCAPE,
    "dots-percent-twins-same-extension": ESCAPE,
    "extension-key": UNSEEN,
    "extension-key-tfrecord": UNSEEN,
    "extension-url": UNSEEN,
    "names-line-feed-in-dotted-directory": UNSEEN,
    "names-readers-take-for-metadata": UNSEEN,
    "case-lowered-file-meets-directory": MEETS,
    "unreadable-source": UNREADABLE,
    "destination-below-a-file": BELOW_FILE,
}
