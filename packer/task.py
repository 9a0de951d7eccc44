"""One unit of work: bring one shard of a plan to its final name, or find that it is there already.

An engine calls :func:`finish_shard` in whatever process it likes; values in, values out.
"""

import errno
import logging
from collections.abc import Iterator

from packer.destination import refused
from packer.plan import PackPlan, ShardPlan
from packer.receipts import read_receipt, write_receipt
from packer.stores.open import open_store
from packer.transform import account
from packer.write import ReportProgress, ShardResult, ShardWriter
from shards.digests import BlockHasher, hash_bytes
from shards.errors import DestinationError, FormatError, NoSpaceError, printable
from shards.files import free_bytes
from shards.index import ShardIndex
from shards.index_schema import index_name
from shards.ranges import read_pieces

logger = logging.getLogger(__name__)

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def work_order(plan: PackPlan, directory: str) -> list[int]:
    """Shard numbers in the order of the work: first what is missing, then what lies there and is only checked.

    So a run with a time budget, or one that is often killed, never spends all of its time on checking again.
    """
    names = set(open_store(directory).list_names())
    return sorted(range(len(plan.shards)), key=lambda number: plan.shards[number].name in names)


def finish_shard(writer: ShardWriter, plan: ShardPlan, directory: str, report: ReportProgress) -> ShardResult:
    """Keep a finished shard after a check of its digests, or write it.

    Args:
        writer: of this process.
        plan: of the shard.
        directory: of the dataset, or its URL.
        report: called with (samples, bytes) as the work goes on; may raise to stop it.

    Raises:
        SourceError, SourceChangedError: a source file cannot be read as planned.
        NoSpaceError: the disk is full.
        DestinationError, RemoteError: the destination cannot be written.
    """
    kept = find_finished(plan, directory, report)
    if kept is not None:
        return kept
    try:
        result = writer.write(plan, directory)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise NoSpaceError(
                directory,
                plan.size_bytes,
                free_bytes(directory),
                advice=f"while writing {plan.name}; free some space, then run the same command again to go on",
            ) from error
        if error.errno == errno.EFBIG:
            raise DestinationError(
                f"{printable(directory)} takes no file of {plan.size_bytes} bytes ({plan.name}): over the limit of the "
                "filesystem, or of this process (ulimit -f); give a smaller --shard-size"
            ) from error
        if error.errno in _REFUSED:
            raise refused(directory, error) from error
        raise
    if plan.transform is None:
        write_receipt(open_store(directory), result)
    return result


def find_finished(plan: ShardPlan, directory: str, report: ReportProgress) -> ShardResult | None:
    """Check whether a shard lies under its final name, whole: size, index, and every block against its digest.

    In an object store, a receipt for this very version of the object saves reading it.

    The caller knows that what lies in the directory belongs to the same plan. A shard that fails the check is
    reported in the log and packed again.
    """
    store, index_file = open_store(directory), index_name(plan.name)
    # receipts do not say what a transform did
    kept = None if plan.transform is not None else read_receipt(store, plan.name, plan.size_bytes)
    if kept is not None:
        report(kept.num_samples, kept.size_bytes)
        return kept
    try:
        with store.open_reader(plan.name) as shard:
            if plan.transform is None and shard.size_bytes != plan.size_bytes:
                _reject(plan, "its size is wrong")
                return None
            index_bytes = store.read_file(index_file)
            with ShardIndex.from_bytes(index_bytes, name=index_file) as index:
                header, num_samples = index.header, index.num_samples
                transformed = None if plan.transform is None else account(plan.keys, _list_outputs(index))
            if header.shard_name != plan.name or (plan.transform is None and num_samples != len(plan.keys)):
                _reject(plan, "its index is that of another shard")
                return None
            hasher = BlockHasher(header.block_bytes)
            for piece in read_pieces(shard):
                hasher.update(piece)
                report(0, len(piece))
    except FileNotFoundError:
        return None
    except FormatError as error:
        _reject(plan, str(error))
        return None
    blocks = hasher.finish()
    if blocks != header.blocks:
        report(0, -blocks.size_bytes)
        _reject(plan, "its content is damaged")
        return None
    report(num_samples, 0)
    found = ShardResult(
        name=plan.name,
        size_bytes=blocks.size_bytes,
        digest=blocks.shard_digest,
        num_samples=num_samples,
        index_size_bytes=len(index_bytes),
        index_digest=hash_bytes(index_bytes),
        is_kept=True,
        transformed=transformed,
    )
    if plan.transform is None:
        write_receipt(store, found)
    return found


def _list_outputs(index: ShardIndex) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    for number in range(index.num_samples):
        yield index.key(number), [(member.extension, member.size) for member in index.members(number)]


def _reject(plan: ShardPlan, reason: str) -> None:
    logger.warning("packing a shard again", extra={"shard": plan.name, "reason": reason})
