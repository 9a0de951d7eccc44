"""Datasets made of datasets: a selection of one, several behind one another, several mixed by weights.

Each is a :class:`loaders.Dataset` like any other: samples by position, in any loader, shuffled and resumed as others.
Its id is made of the ids of what it consists of, so a checkpoint is good for exactly the same selection or mixture. No
sample is copied, and closing it closes what it consists of.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from loaders.dataset import Dataset, DatasetInfo
from loaders.files import ShardFile
from loaders.parts import OpenCounts, Part
from loaders.reader import OpenShard
from loaders.sample import Sample
from shards.digests import hash_bytes
from shards.errors import LoadError, list_offenders, printable
from shards.permutation import Permutation

MIX_SLOTS = 1000
"""Positions after which a mixture's pattern of datasets repeats; the weights are met exactly in each such run."""


def select(dataset: Dataset, positions: Iterable[int]) -> Dataset:
    """Give some samples of a dataset, in the order given; positions may repeat.

    Args:
        dataset: of which.
        positions: in the dataset, 0 to ``len - 1``. Eight bytes of memory each.

    Raises:
        IndexError: there is no such position.
    """
    chosen = np.fromiter(positions, np.int64) if not isinstance(positions, np.ndarray) else positions.astype(np.int64)
    outside = chosen[(chosen < 0) | (chosen >= len(dataset))]
    if len(outside):
        raise IndexError(f"position {int(outside[0])} is not in a dataset of {len(dataset)} samples")
    return _view(_SelectedReader(dataset, chosen), [dataset], f"select {hash_bytes(chosen.astype('<i8').tobytes())}")


def exclude(dataset: Dataset, keys: Iterable[str], *, on_missing: Literal["error", "ignore"] = "error") -> Dataset:
    """Give a dataset without the samples of some keys, for instance those of a list of bad ones.

    Args:
        dataset: of which.
        keys: to leave out.
        on_missing: what to do about keys that the dataset does not have.

    Raises:
        LoadError: keys are not there; lists them.
    """
    found = {key: dataset.find(key) for key in keys}
    missing = [printable(key) for key, position in found.items() if position is None]
    if missing and on_missing == "error":
        raise LoadError(
            f"{len(missing)} of {len(found)} keys to leave out are not in the dataset:\n{list_offenders(missing)}\n"
            'check the list, or pass on_missing="ignore"'
        )
    kept = np.ones(len(dataset), np.bool_)
    kept[[position for position in found.values() if position is not None]] = False
    return select(dataset, np.flatnonzero(kept))


def concatenate(datasets: Sequence[Dataset]) -> Dataset:
    """Give several datasets behind one another.

    Raises:
        LoadError: there is none, or their class tables differ: the same number would stand for two classes.
    """
    return _view(_ConcatenatedReader(_checked(datasets)), datasets, "concatenate")


def mix(
    datasets: Sequence[Dataset], weights: Sequence[float], *, stop: Literal["all", "first"] = "all", seed: int = 0
) -> Dataset:
    """Give samples of several datasets in the proportion of weights.

    Each run of :data:`MIX_SLOTS` samples holds them in exactly that proportion, rounded to whole samples. Every dataset
    is gone through in its own order, again and again as long as the mixture lasts; shuffle the mixture as a whole.

    Args:
        datasets: what to mix.
        weights: one for each, positive, in any unit.
        stop: where an epoch ends: when ``"all"`` datasets have been seen whole, the small ones several times; or when
            the ``"first"`` has, and the rest of the others is never seen.
        seed: of the pattern in which datasets take turns.

    Raises:
        ValueError: weights that are not positive, or not one for each.
        LoadError: a dataset is empty, its weight is less than one in :data:`MIX_SLOTS`, or class tables differ.
    """
    quotas = _quotas(_checked(datasets), weights)
    reader = _MixedReader(datasets, quotas, seed, ends_with_first=stop == "first")
    return _view(reader, datasets, f"mix {quotas} {len(reader)} {seed}")


def _view(reader: "_View", datasets: Sequence[Dataset], recipe: str) -> Dataset:
    infos = [dataset.info for dataset in datasets]
    content = "\n".join(
        ["shardferry view v1", recipe]
        + [f"{one.dataset_id} {one.info.split} {one.numbers!r}" for one in datasets]  # a slice is its numbers
    )
    info = DatasetInfo(
        directory=" + ".join(dict.fromkeys(one.directory for one in infos)),
        dataset_id=hash_bytes(content.encode("utf-8", "surrogateescape")),
        shard_format=" + ".join(dict.fromkeys(one.shard_format for one in infos)),
        split=" + ".join(dict.fromkeys(one.split for one in infos)),
        extensions=tuple(sorted({extension for one in infos for extension in one.extensions})),
        classes=next((one.classes for one in infos if one.classes), ()),
    )
    return Dataset(reader, range(len(reader)), info)


def _checked(datasets: Sequence[Dataset]) -> Sequence[Dataset]:
    if not datasets:
        raise LoadError("no dataset was given")
    tables = {dataset.classes: dataset for dataset in datasets if dataset.classes}
    if len(tables) > 1:
        first, second = list(tables.values())[:2]
        raise LoadError(
            f"the class tables of {first!r} and {second!r} differ, so the same cls stands for two classes; pack them "
            "together, or read the names from another member"
        )
    return datasets


def _quotas(datasets: Sequence[Dataset], weights: Sequence[float]) -> list[int]:
    """Share the slots out by largest remainder."""
    if len(weights) != len(datasets) or not all(weight > 0 for weight in weights):
        raise ValueError(f"give one positive weight for each of {len(datasets)} datasets, not {list(weights)}")
    empty = [repr(dataset) for dataset in datasets if not len(dataset)]
    if empty:
        raise LoadError(f"an empty dataset cannot be mixed in:\n{list_offenders(empty)}")
    shares = [Fraction(weight) / sum(map(Fraction, weights)) * MIX_SLOTS for weight in weights]
    quotas = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda place: (quotas[place] - shares[place], place))
    for place in by_remainder[: MIX_SLOTS - sum(quotas)]:
        quotas[place] += 1
    if 0 in quotas:
        place = quotas.index(0)
        raise LoadError(
            f"the weight {weights[place]} of {datasets[place]!r} is less than one in {MIX_SLOTS} samples; give it "
            "more, or leave it out"
        )
    return quotas


class _View:
    """What all readers over datasets share."""

    is_split = False

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        self._datasets = list(datasets)

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Part, ...]:
        """Nothing is known of how the samples lie."""
        return (Part("samples", len(self)),)

    @property
    def shards(self) -> tuple[ShardFile, ...]:
        """The files of all datasets, each once."""
        return tuple(dict.fromkeys(shard for dataset in self._datasets for shard in dataset.shards))

    @property
    def opens(self) -> OpenCounts:
        """What opening shards has cost, all datasets together."""
        several = [dataset.opens for dataset in self._datasets]
        return OpenCounts(
            max(one.process for one in several),
            sum(one.num_opens for one in several),
            sum(one.seconds for one in several),
            sum(one.num_waits for one in several),
            sum(one.wait_seconds for one in several),
        )

    def place(self, number: int) -> tuple[Dataset, int]:
        """Give the dataset of a sample and its position there."""
        raise NotImplementedError

    def find(self, key: str) -> int | None:
        """Give the number of the first sample with a key."""
        raise NotImplementedError

    def sample(self, number: int) -> Sample:
        """Give a sample."""
        dataset, position = self.place(number)
        return dataset[position]

    def samples(self, numbers: range) -> Iterator[Sample]:
        """Give samples one by one."""
        return map(self.sample, numbers)

    def locate(self, number: int) -> tuple[OpenShard, int]:
        """Give the shard of a sample and its row there."""
        dataset, position = self.place(number)
        return dataset.locate(position)

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Ask the kernel to read samples from the disk."""
        for number in numbers:
            dataset, position = self.place(number)
            dataset.prefetch((position,))

    def close(self) -> None:
        """Close all datasets."""
        for dataset in self._datasets:
            dataset.close()


class _SelectedReader(_View):
    def __init__(self, dataset: Dataset, positions: npt.NDArray[np.int64]) -> None:
        super().__init__([dataset])
        self._dataset = dataset
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Those of the dataset, as far as they were selected, when the selection keeps the order."""
        if (np.diff(self._positions) < 0).any():
            return super().parts
        base = self._dataset.parts
        starts = list(itertools.accumulate((part.num_samples for part in base), initial=0))
        counts = np.diff(np.searchsorted(self._positions, starts)).tolist()
        return tuple(Part(part.name, count) for part, count in zip(base, counts, strict=True) if count)

    def place(self, number: int) -> tuple[Dataset, int]:
        return self._dataset, int(self._positions[number])

    def find(self, key: str) -> int | None:
        """Give the first place of a sample in the selection."""
        position = self._dataset.find(key)
        if position is None:
            return None
        places = np.flatnonzero(self._positions == position)
        return int(places[0]) if len(places) else None


class _ConcatenatedReader(_View):
    def __init__(self, datasets: Sequence[Dataset]) -> None:
        super().__init__(datasets)
        self._starts = list(itertools.accumulate(map(len, datasets), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def parts(self) -> tuple[Part, ...]:
        """Those of all datasets; equal names of different datasets are told apart by their place."""
        return tuple(
            part._replace(name=f"{place}/{part.name}")
            for place, dataset in enumerate(self._datasets)
            for part in dataset.parts
        )

    def place(self, number: int) -> tuple[Dataset, int]:
        place = bisect_right(self._starts, number) - 1
        return self._datasets[place], number - self._starts[place]

    def find(self, key: str) -> int | None:
        """Give the number of the first sample with a key."""
        for start, dataset in zip(self._starts, self._datasets, strict=False):
            position = dataset.find(key)
            if position is not None:
                return start + position
        return None


class _MixedReader(_View):
    def __init__(self, datasets: Sequence[Dataset], quotas: Sequence[int], seed: int, *, ends_with_first: bool) -> None:
        super().__init__(datasets)
        self._quotas = list(quotas)
        in_order = [place for place, quota in enumerate(quotas) for _ in range(quota)]
        pattern = Permutation(MIX_SLOTS, f"mix/{seed}")(np.arange(MIX_SLOTS)).tolist()
        self._pattern = [in_order[slot] for slot in pattern]
        """Place of the dataset whose turn it is, for each slot."""
        self._slots: list[list[int]] = [[] for _ in datasets]
        """Slots of each dataset."""
        self._turns = []
        """For each slot, how many of the same dataset come before it."""
        for slot, place in enumerate(self._pattern):
            self._turns.append(len(self._slots[place]))
            self._slots[place].append(slot)
        ends = [self._number(place, len(dataset) - 1) + 1 for place, dataset in enumerate(datasets)]
        self._num_samples = min(ends) if ends_with_first else max(ends)

    def __len__(self) -> int:
        return self._num_samples

    def place(self, number: int) -> tuple[Dataset, int]:
        run, slot = divmod(number, MIX_SLOTS)
        place = self._pattern[slot]
        dataset = self._datasets[place]
        return dataset, (run * self._quotas[place] + self._turns[slot]) % len(dataset)

    def find(self, key: str) -> int | None:
        """Give the number of the first sample with a key."""
        positions = ((place, dataset.find(key)) for place, dataset in enumerate(self._datasets))
        numbers = [self._number(place, position) for place, position in positions if position is not None]
        return min((number for number in numbers if number < self._num_samples), default=None)

    def _number(self, place: int, position: int) -> int:
        """Give the number at which a dataset's sample comes for the first time."""
        run, turn = divmod(position, self._quotas[place])
        return run * MIX_SLOTS + self._slots[place][turn]
