"""Where manifest and indexes of adopted shards go: beside the shards, or into a directory that has links to them.

Shards lie beside their manifest, always: that is what stagers, loaders and every other reader build on. So a separate
output is a directory of hard links (the same files under a second name, no bytes more), or of symbolic links where hard
ones are not possible.
"""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from packer.locations import directory_of, is_url
from packer.stores.open import open_store
from shards.errors import DestinationError, list_offenders, printable
from shards.files import fsync_directory, make_directory
from shards.index_schema import index_name
from shards.manifest import MANIFEST_NAME, Manifest


class LinkKind(StrEnum):
    """How an output directory refers to shards elsewhere."""

    HARD = "hard"
    SYMBOLIC = "symbolic"


def check_output(source: str, output: str | None, link: LinkKind, *, overwrite: bool) -> None:
    """Check before any work that the result can be written.

    Raises:
        DestinationError: it cannot, or something is there already.
    """
    if output is None:
        if open_store(source).size_of(MANIFEST_NAME) is not None and not overwrite:
            raise DestinationError(
                f"{printable(source)} has a {MANIFEST_NAME} already: it is a dataset; look at it with pack inspect, "
                "or make manifest and indexes anew with --overwrite"
            )
        if not is_url(source) and not os.access(directory_of(source), os.W_OK, effective_ids=True):
            raise DestinationError(
                f"uid {os.geteuid()} cannot write to {printable(source)}, where manifest and indexes would go; "
                "give --output DIR for a directory of links to the shards, on the same filesystem"
            )
        return
    if is_url(source) or is_url(output):
        raise DestinationError("--output makes links, which object stores do not have; adopt in place")
    path = directory_of(output)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise DestinationError(f"{printable(output)} is a file; choose a new or empty directory")
    there = sorted(os.listdir(path)) if os.path.isdir(path) else []
    if there and not (overwrite and MANIFEST_NAME in there):
        raise DestinationError(
            f"{printable(output)} is not empty:\n{list_offenders([printable(name) for name in there])}\n"
            "choose a new or empty directory"
        )
    if link is LinkKind.HARD and os.stat(directory_of(source)).st_dev != os.stat(_nearest(path)).st_dev:
        raise _cannot_link(source, output)


def write_output(
    source: str, output: str | None, link: LinkKind, manifest: Manifest, indexes: Mapping[str, str]
) -> None:
    """Link the shards if need be, write the indexes, and the manifest last.

    Args:
        source: of the shards.
        output: where to; None writes beside the shards.
        link: how an output refers to the shards.
        manifest: of the dataset.
        indexes: name of a shard → path of a file with its index.

    Raises:
        DestinationError: links are not possible.
        OSError, RemoteError: something cannot be written.
    """
    names = [shard.name for _, shard in manifest.shards()]
    if output is not None:
        _link_shards(directory_of(source), directory_of(output), link, names)
    store = open_store(source if output is None else output)
    for name in names:
        with open(indexes[name], "rb") as file:
            store.put(index_name(name), file.read())
    store.put(MANIFEST_NAME, manifest.to_json())


def _link_shards(source: str, output: str, link: LinkKind, names: Sequence[str]) -> None:
    make_directory(output)
    for name in names:
        target, path = os.path.join(source, name), os.path.join(output, name)
        make_directory(os.path.dirname(path))
        try:
            if link is LinkKind.HARD:
                os.link(os.path.realpath(target), path)
            else:
                os.symlink(os.path.realpath(target), path)
        except FileExistsError:
            if not os.path.samefile(target, path):
                raise
        except OSError as error:
            if link is LinkKind.HARD and error.errno in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}:
                raise _cannot_link(source, output) from error
            raise
    for directory in _directories(output, names):
        fsync_directory(directory)


def _directories(output: str, names: Iterable[str]) -> set[str]:
    return {os.path.dirname(os.path.join(output, name)) for name in names}


def _nearest(path: str) -> str:
    """The path, or the nearest directory above it that exists."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _cannot_link(source: str, output: str) -> DestinationError:
    return DestinationError(
        f"there can be no hard links in {printable(output)} to the shards in {printable(source)}: it is another "
        "filesystem, or the files belong to another user; choose a directory on the same filesystem, or give "
        "--link symbolic"
    )
