"""Leaves the metrics of a stager in the cache, for collectors of text files: a stager may be gone before a scrape."""

import logging
import os

from shards.cache import CacheLayout
from shards.files import FINAL_MODE, create_partial
from shards.progress import StageProgress
from stager.local import make_cache_directory
from stager.metrics import render_metrics
from stager.stage_metrics import StageCounters, stage_metrics

logger = logging.getLogger(__name__)


def write_metrics(layout: CacheLayout, progress: StageProgress, counters: StageCounters) -> None:
    """Replace the metrics file of a holder, for its readers in one step. Best effort.

    Args:
        layout: of the cache.
        progress: what the stager says of itself.
        counters: what it has counted.
    """
    path = layout.metrics_path(progress.holder)
    try:
        make_cache_directory(os.path.dirname(path))
        with create_partial(path) as partial:
            partial.write(render_metrics(stage_metrics(progress, counters)))
            os.fchmod(partial.fd, FINAL_MODE)
            os.replace(partial.path, path)  # not made durable: after a reboot it means nothing
    except OSError as error:
        logger.debug("metrics not written", extra={"file": path, "reason": error.strerror})
