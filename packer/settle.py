"""What a transform did to the whole dataset, once all shards are finished: counted, and checked across shards; pure."""

from collections import Counter
from collections.abc import Mapping

from packer.plan import PackPlan
from packer.sources.files import LISTED_SKIPS, SkipReason, Skips
from packer.transform import Transformed
from packer.write import ShardResult
from shards.errors import DuplicateKeyError, SourceError, list_offenders, printable


def settle_transform(plan: PackPlan, results: Mapping[int, ShardResult], skips: Skips) -> Skips:
    """Add the dropped samples to what was left out, and check what no single shard could know.

    Args:
        plan: of the dataset.
        results: of every shard, by number.
        skips: of the source.

    Raises:
        DuplicateKeyError: a new key is that of another sample.
        SourceError: a split has no sample left.
    """
    if plan.options.transform is None:
        return skips
    accounts = [account for _, result in sorted(results.items()) if (account := result.transformed) is not None]
    _check_keys(plan, accounts)
    left = {shard.split for number, shard in enumerate(plan.shards) if results[number].num_samples}
    empty = [name for name in plan.content.splits.names if name not in left]
    if empty:
        raise SourceError(
            f"--transform {printable(plan.options.transform.text)} left no sample in split(s) {', '.join(empty)}; "
            "nothing was published"
        )
    num_dropped = sum(account.num_dropped for account in accounts)
    if not num_dropped:
        return skips
    names = [key for account in accounts for key in account.dropped_keys][:LISTED_SKIPS]
    return Skips({**skips.counts, SkipReason.TRANSFORM: num_dropped}, {**skips.names, SkipReason.TRANSFORM: names})


def _check_keys(plan: PackPlan, accounts: list[Transformed]) -> None:
    """Source keys differ, so only new keys can clash: with one another, or with a source key."""
    counts = Counter(key for account in accounts for key in account.new_keys)
    if not counts:
        return
    clashes = {key for key, count in counts.items() if count > 1}
    clashes.update(key for key in plan.content.samples.keys if key in counts)
    if clashes:
        lines = [printable(key) for key in sorted(clashes)]
        raise DuplicateKeyError(
            f"{len(lines)} key(s) that --transform made are those of other samples too:\n{list_offenders(lines)}\n"
            "nothing was published; make keys that differ, and pack again with --overwrite"
        )
