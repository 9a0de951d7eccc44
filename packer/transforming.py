"""Turns the plan of a shard's source samples into plans of what a transform makes of them, piece by piece.

A piece holds its samples' bytes in itself, so the writer lays it out and writes it like any other plan. Memory is
bounded by :data:`PIECE_BYTES` of source and what they become, or by one sample.
"""

from array import array
from collections.abc import Iterator
from itertools import accumulate

from packer.fill import HoleFiller
from packer.plan import ShardPlan
from packer.sources.files import INLINE
from packer.transform import OutputSample, apply_transform
from packer.transform_code import load_transform
from shards.errors import TransformError
from shards.formats import find_format

PIECE_BYTES = 8 * 1024**2


def transform_pieces(plan: ShardPlan, filler: HoleFiller) -> Iterator[ShardPlan]:
    """Read and transform the samples of a shard.

    Args:
        plan: of the source samples, with a transform.
        filler: reads them.

    Yields:
        Plans of the results, in order; those without samples are left out.

    Raises:
        TransformError: a sample cannot be transformed, or not twice to the same result.
        SourceError, SourceChangedError: a source file cannot be read as planned.
    """
    if plan.transform is None:
        raise ValueError("the plan has no transform")
    function, name = load_transform(plan.transform), plan.transform.text
    is_first = True
    for first_sample, samples in _pieces(plan):
        outputs: list[OutputSample] = []
        for number, members in enumerate(_read(plan, samples, filler), first_sample):
            found = apply_transform(name, function, plan.keys[number], members)
            if is_first and apply_transform(name, function, plan.keys[number], members) != found:
                raise TransformError(name, plan.keys[number], "it is not deterministic: twice gave different results")
            is_first = False
            _check_storable(plan, number, found)
            outputs += found
        if outputs:
            yield _plan_of(plan, outputs)


def _check_storable(plan: ShardPlan, number: int, outputs: list[OutputSample]) -> None:
    sample_size = find_format(plan.format_name, where=plan.name).sample_size
    for key, members in outputs:
        try:
            sample_size(key, [(extension, len(data)) for extension, data in members])
        except ValueError as error:
            name = plan.transform.text if plan.transform is not None else ""
            raise TransformError(name, plan.keys[number], f"{plan.format_name} cannot hold it: {error}") from error


def _pieces(plan: ShardPlan) -> Iterator[tuple[int, list[range]]]:
    """Cut a shard into (number of the first sample, members of each sample); a piece has one sample at least."""
    start, size = 0, 0
    piece: list[range] = []
    ends = list(accumulate(plan.num_members, initial=0))
    for number, first in enumerate(ends[:-1]):
        members = range(first, ends[number + 1])
        needed = sum(plan.sizes[member] for member in members)
        if piece and size + needed > PIECE_BYTES:
            yield start, piece
            start, size, piece = number, 0, []
        piece.append(members)
        size += needed
    if piece:
        yield start, piece


def _read(plan: ShardPlan, samples: list[range], filler: HoleFiller) -> Iterator[list[tuple[str, bytes]]]:
    """Read the members of some samples at once, and give them sample by sample."""
    members = [member for sample in samples for member in sample]
    offsets = list(accumulate((plan.sizes[member] for member in members), initial=0))
    data = memoryview(bytearray(offsets[-1]))
    filler.fill(plan, list(zip(members, offsets, strict=False)), data)
    places = iter(offsets)
    for sample in samples:
        yield [
            (plan.extensions[member], bytes(data[place : place + plan.sizes[member]]))
            for member, place in ((member, next(places)) for member in sample)
        ]


def _plan_of(plan: ShardPlan, outputs: list[OutputSample]) -> ShardPlan:
    members = [member for _, sample in outputs for member in sample]
    return ShardPlan(
        name=plan.name,
        format_name=plan.format_name,
        size_bytes=plan.size_bytes,
        keys=tuple(key for key, _ in outputs),
        num_members=array("L", (len(sample) for _, sample in outputs)),
        extensions=tuple(extension for extension, _ in members),
        sources=tuple(data for _, data in members),
        sizes=array("Q", (len(data) for _, data in members)),
        stamps=array("q", [INLINE]) * len(members),
    )
