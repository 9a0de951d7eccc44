"""Which node holds which shard, when a dataset is too big for one node; pure.

Rendezvous hashing with equal loads: every node computes the same assignment from the shard names alone. The number of
shards differs between nodes by one at most, and when nodes are added or taken away most shards stay where they are.
docs/format.md describes it, with test vectors.
"""

from collections.abc import Sequence

import numpy as np
from blake3 import blake3

from shards.permutation import mix

_KEY_CONTEXT = "shardferry rendezvous v1"


def assign_shards(names: Sequence[str], num_nodes: int, *, deal: int = 0) -> list[int]:
    """Assign each shard of a split to a node.

    Args:
        names: the shards' names, as in the manifest.
        num_nodes: at least 1.
        deal: number of the assignment: another number, for instance the epoch, is another independent one.

    Returns:
        For each shard the number of its node, 0-based.
    """
    if num_nodes < 1:
        raise ValueError(f"num_nodes must be at least 1, not {num_nodes}")
    if deal < 0:
        raise ValueError(f"deal must not be negative: {deal}")
    if not names:
        return []
    shard_hashes = np.array([_hash(f"shard/{name}") for name in names], np.uint64)
    node_hashes = np.array([_hash(f"node/{deal}/{node}") for node in range(num_nodes)], np.uint64)
    weights = mix(shard_hashes[:, np.newaxis] ^ node_hashes[np.newaxis, :])
    share, num_bigger = divmod(len(names), num_nodes)
    loads = [0] * num_nodes
    assigned = [-1] * len(names)
    num_open = len(names)
    # the heaviest pairs first; pairs of one weight by their place
    for pair in np.argsort(~weights, axis=None, kind="stable").tolist():
        shard, node = divmod(pair, num_nodes)
        if assigned[shard] >= 0 or loads[node] > share or (loads[node] == share and num_bigger == 0):
            continue
        num_bigger -= loads[node] == share
        loads[node] += 1
        assigned[shard] = node
        num_open -= 1
        if num_open == 0:
            break
    return assigned


def select_shards(names: Sequence[str], node: int, num_nodes: int, *, deal: int = 0) -> list[int]:
    """Give the places of the shards that a node holds, ascending.

    Args:
        names: the shards' names, as in the manifest.
        node: 0 to ``num_nodes - 1``.
        num_nodes: at least 1.
        deal: as in :func:`assign_shards`.
    """
    if not 0 <= node < num_nodes:
        raise ValueError(f"node must be 0 to {num_nodes - 1}, not {node}")
    return [place for place, holder in enumerate(assign_shards(names, num_nodes, deal=deal)) if holder == node]


def _hash(text: str) -> int:
    digest = blake3(text.encode("utf-8", "surrogateescape"), derive_key_context=_KEY_CONTEXT).digest(length=8)
    return int.from_bytes(digest, "little")
