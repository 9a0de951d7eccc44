"""Holds a dataset for a program that does not do it itself, and gives datasets back that a job has done with."""

import logging
import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from shards.cache import CacheLayout
from shards.errors import ConfigurationError, ShardferryError, printable
from shards.leases import hold_dataset
from stager.lease import Lease, release_lease, take_lease
from stager.limits import Retain, SpaceLimits
from stager.local import staged_ids
from stager.marks import mark_used
from stager.reclaim import clean, hold_gc_lock

logger = logging.getLogger(__name__)

RENEW_SECONDS = 60.0


def run_held(layout: CacheLayout, dataset_id: str, holder: str, ttl_seconds: float, command: Sequence[str]) -> NoReturn:
    """Become a program that holds a dataset for as long as it, or a child that it forked, lives.

    The locks are handed on to it; the kernel lets go of them when it ends, however it ends. Signals and the exit code
    are its own.

    Raises:
        ConfigurationError: the program cannot be started.
        FileNotFoundError: the dataset is gone.
    """
    held = hold_dataset(layout.dataset_dir(dataset_id))
    lease = _try_lease(layout, dataset_id, holder, ttl_seconds)
    for fd in [held.fd, *([] if lease is None else [lease.fd])]:
        os.set_inheritable(fd, True)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 (what the user asks for, without a shell)
    except OSError as error:
        raise ConfigurationError(f"cannot run {printable(command[0])}: {error.strerror}") from error


def hold_until_stopped(layout: CacheLayout, dataset_id: str, holder: str, ttl_seconds: float) -> None:
    """Hold a dataset until SIGTERM or SIGINT comes, then give it back.

    Raises:
        FileNotFoundError: the dataset is gone.
    """
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with hold_dataset(layout.dataset_dir(dataset_id)):
        lease = _try_lease(layout, dataset_id, holder, ttl_seconds)
        logger.info("holding", extra={"dataset_id": dataset_id, "holder": holder})
        while signal.sigtimedwait(signals, RENEW_SECONDS) is None:
            if lease is not None:
                with suppress(OSError):
                    lease.renew()
        if lease is not None:
            lease.release()
            lease.hand_over()
            mark_used(layout, dataset_id, is_released=True)
    logger.info("released", extra={"dataset_id": dataset_id, "holder": holder})


@dataclass(frozen=True, slots=True)
class Released:
    """What came of giving back one lease."""

    dataset_id: str
    holder: str
    is_released: bool
    """False when its process still runs."""


def release_leases(
    layout: CacheLayout, holder: str, dataset_ids: Sequence[str] | None, retain: Retain | None
) -> list[Released]:
    """End the protection of datasets for a holder, and clean the cache.

    Args:
        layout: of the cache.
        holder: whose leases; those with a number behind the name are meant as well.
        dataset_ids: of which datasets; all of the cache when None.
        retain: what becomes of them when nobody else protects them; as it was when None.
    """
    results = []
    for dataset_id in staged_ids(layout) if dataset_ids is None else dataset_ids:
        for name in _leases_of(layout, dataset_id, holder):
            is_released = release_lease(layout, dataset_id, name)
            if is_released:
                mark_used(layout, dataset_id, retain=retain, is_released=True)
            results.append(Released(dataset_id, name, is_released))
    return results


def clean_quietly(layout: CacheLayout, limits: SpaceLimits, wait_seconds: float) -> None:
    """Clean the cache. Best effort: whoever comes next does it as well."""
    try:
        with hold_gc_lock(layout, wait_seconds=wait_seconds):
            clean(layout, limits)
    except (ShardferryError, OSError) as error:
        logger.warning("cache not cleaned", extra={"error": str(error)})


def _try_lease(layout: CacheLayout, dataset_id: str, holder: str, ttl_seconds: float) -> Lease | None:
    """Write down who holds the dataset, so that ``stage status`` can tell; the lock alone is what protects it."""
    try:
        return take_lease(layout, dataset_id, holder, ttl_seconds)
    except (OSError, ShardferryError) as error:
        logger.info("held without a name: the cache cannot be written", extra={"error": str(error)})
        return None


def _leases_of(layout: CacheLayout, dataset_id: str, holder: str) -> list[str]:
    try:
        names = os.listdir(layout.leases_dir(dataset_id))
    except FileNotFoundError:
        return []
    stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    return sorted(stem for stem in stems if re.sub(r"\.[0-9]+$", "", stem) == holder or stem == holder)
