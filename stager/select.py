"""What ``--select`` says, and the chosen shards of a dataset in the order of fetching; pure."""

from collections.abc import Mapping, Sequence

from shards.errors import SelectionError, printable
from shards.manifest import Manifest, ShardEntry
from shards.selection import NodePart, Selection, select_shards
from stager.order import FetchOrder, order_shards

_INDEX_VARIABLES = ("JOB_COMPLETION_INDEX", "SLURM_NODEID")
"""Who starts one process on each node says its number: an Indexed Job of Kubernetes, and Slurm."""

_COUNT_VARIABLES = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")


def parse_selection(texts: Sequence[str], environment: Mapping[str, str]) -> Selection:
    """Parse the values of ``--select``.

    Args:
        texts: each ``all``, ``split=NAME``, ``rank=I/N``, ``rank=auto/N``, ``rank=auto`` or a pattern of shard names.
        environment: says which node this is, for ``auto``.

    Raises:
        ValueError: not to be understood, or contradictory.
    """
    if "all" in texts and len(texts) > 1:
        raise ValueError("'all' and something else contradict each other")
    splits, globs, parts = [], [], []
    for text in texts:
        name, equals, value = text.partition("=")
        if text == "all":
            continue
        if not text or (equals and not value):
            raise ValueError(f"{text!r} selects nothing; write for instance split=train, rank=0/4 or 'train-*.tar'")
        if name == "split" and equals:
            splits.append(value)
        elif name == "rank" and equals:
            parts.append(_parse_part(value, environment))
        elif name == "glob" and equals:
            globs.append(value)
        else:
            globs.append(text)
    if len(parts) > 1:
        raise ValueError("rank= is given more than once")
    return Selection(splits=tuple(dict.fromkeys(splits)), globs=tuple(globs), part=parts[0] if parts else None)


def choose_shards(manifest: Manifest, selection: Selection, order: FetchOrder | None) -> tuple[ShardEntry, ...]:
    """Give the selected shards in the order in which they are fetched.

    The splits follow one another as the selection names them, or as in the manifest.

    Args:
        manifest: of the dataset.
        selection: what is wanted.
        order: of the shards within a split; the manifest's when None.

    Raises:
        SelectionError: the dataset has no split of that name.
    """
    try:
        chosen = select_shards(manifest, selection)
    except ValueError as error:
        raise SelectionError(f"cannot select: {error}") from error
    names = selection.splits or tuple(split.name for split in manifest.splits)
    by_split: dict[str, list[ShardEntry]] = {name: [] for name in names}
    for split, shard in chosen:
        by_split[split.name].append(shard)
    return tuple(shard for shards in by_split.values() for shard in order_shards(shards, order))


def explain_empty(manifest: Manifest, selection: Selection) -> SelectionError:
    """Say that nothing matches, and what there is."""
    shards = [shard.name for _, shard in manifest.shards()]
    part = selection.part
    if part is not None and part.count > len(shards):
        return SelectionError(
            f"nothing is left for node {part.index} of {part.count}: the dataset has {len(shards)} shards; use fewer "
            "nodes, pack smaller shards, or pass --allow-empty"
        )
    return SelectionError(
        f"no shard matches the selection {printable(selection.to_text())}: the dataset has {len(shards)} shards from "
        f"{printable(shards[0])} to {printable(shards[-1])}; correct --select, or pass --allow-empty"
    )


def _parse_part(text: str, environment: Mapping[str, str]) -> NodePart:
    index_text, slash, count_text = text.partition("/")
    if index_text == "auto":
        index_text = _from_environment(_INDEX_VARIABLES, environment, "rank=auto", "write rank=I/N with numbers")
        if not slash:
            count_text = _from_environment(_COUNT_VARIABLES, environment, "rank=auto", "write rank=auto/N")
    if not (_is_number(index_text) and _is_number(count_text)):
        raise ValueError(f"'rank={text}' is no part; write for instance rank=0/4: the first of 4 nodes")
    return NodePart(int(index_text), int(count_text))


def _from_environment(names: Sequence[str], environment: Mapping[str, str], asked: str, advice: str) -> str:
    for name in names:
        if environment.get(name):
            if not _is_number(environment[name]):
                raise ValueError(f"{name} is {environment[name]!r} instead of a number; {advice}")
            return environment[name]
    raise ValueError(f"{asked} needs the variable {' or '.join(names)}, which is not set; {advice}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
