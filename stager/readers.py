"""Reads how far the readers of a dataset are; everything here blocks for a few small files."""

import logging
import os
from contextlib import suppress
from dataclasses import dataclass

from shards.cache import CacheLayout
from shards.errors import FormatError
from shards.live_files import read_live_file, remove_dead_file
from shards.positions import MAX_POSITION_BYTES, ReadingPosition

logger = logging.getLogger(__name__)

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Readers:
    """The readers of a dataset that live."""

    positions: tuple[ReadingPosition, ...] = ()
    """Sorted by the readers' names."""
    unknown: tuple[str, ...] = ()
    """Files of readers that live, but cannot be understood here."""


def read_positions(layout: CacheLayout, dataset_id: str) -> Readers:
    """Read the positions of all readers that live; files of dead ones are removed."""
    directory = layout.positions_dir(dataset_id)
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(_SUFFIX))
    except FileNotFoundError:
        return Readers()
    positions, unknown = [], []
    for name in names:
        path = os.path.join(directory, name)
        try:
            data, is_live = read_live_file(path, max_bytes=MAX_POSITION_BYTES)
            if is_live:
                positions.append(ReadingPosition.from_json(data, name=path))
            else:
                with suppress(OSError):
                    remove_dead_file(path)
        except FileNotFoundError:
            continue
        except (OSError, FormatError) as error:
            logger.debug("position not understood", extra={"file": path, "reason": str(error)})
            unknown.append(name)
    return Readers(tuple(positions), tuple(unknown))
