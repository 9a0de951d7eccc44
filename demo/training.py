"""A small real training: a convolutional network tells filled icons from outlined ones.

Both ways of reading give the same pictures in the same order to the same network with the same seeds, on one thread. So
the two runs must end with the very same losses, and what differs is only how the bytes were read.
"""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from contents import read_file
from loaders import DataWait, EpochWait, Sample

IMAGE_PIXELS = 32
BATCH_SAMPLES = 64
NUM_WORKERS = 1
"""One decodes while the other core trains."""
SEED = 7
LEARNING_RATE = 2e-3

Item = tuple[torch.Tensor, int]
"""Picture, float32 [1, IMAGE_PIXELS, IMAGE_PIXELS] in 0..1, and class number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """One epoch of training and one pass over the validation split."""

    losses: tuple[float, ...]
    """One per batch."""
    val_accuracy: float
    """Share of right answers, 0 to 1."""
    wait: EpochWait
    """How the training epoch spent its time."""

    @property
    def seconds(self) -> float:
        """Time of the training epoch."""
        return self.wait.total_seconds


def decode_picture(data: bytes) -> torch.Tensor:
    """Turn a PNG into the network's input: its alpha channel, shrunk."""
    with Image.open(io.BytesIO(data)) as picture:
        alpha = picture.convert("RGBA").getchannel("A").resize((IMAGE_PIXELS, IMAGE_PIXELS), Image.Resampling.BOX)
    pixels = np.array(alpha, dtype=np.float32)
    return torch.from_numpy(pixels).unsqueeze(0) / 255


def decode_sample(sample: Sample) -> Item:
    """Decode a sample from a shard: members ``png`` and ``cls``."""
    return decode_picture(sample["png"]), int(sample["cls"])


class PlainFiles(Dataset[Item]):
    """The dataset as it was: one file per sample, the class in its directory's name."""

    def __init__(self, directory: str, keys: Sequence[str], classes: Sequence[str]) -> None:
        """Read files of a tree.

        Args:
            directory: root of the tree.
            keys: samples in order, paths without ``.png``.
            classes: directory names in the order of their numbers.
        """
        self._directory = directory
        self._keys = list(keys)
        self._numbers = {name: number for number, name in enumerate(classes)}

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, position: int) -> Item:
        key = self._keys[position]
        picture = read_file(os.path.join(self._directory, f"{key}.png"))
        return decode_picture(picture), self._numbers[key.partition("/")[0]]


def train_one_epoch(train: Dataset[Item], val: Dataset[Item], num_classes: int) -> TrainingResult:
    """Train the network for one epoch and measure it on the validation split.

    Args:
        train: samples to learn from.
        val: samples to be judged by.
        num_classes: classes there are.
    """
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    network = _make_network(num_classes)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    order = torch.Generator().manual_seed(SEED)
    loader = DataLoader(train, batch_size=BATCH_SAMPLES, shuffle=True, generator=order, num_workers=NUM_WORKERS)
    batches = DataWait(loader, on_epoch=lambda _: None)
    losses = []
    network.train()
    for images, numbers in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images), numbers)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    accuracy = _measure(network, val)
    wait = batches.last
    if wait is None:
        raise RuntimeError("the loader gave no pass")
    return TrainingResult(losses=tuple(losses), val_accuracy=accuracy, wait=wait)


def _make_network(num_classes: int) -> nn.Sequential:
    """Three convolutions, about 25 000 weights; input float32 [batch, 1, 32, 32]."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, num_classes),
    )


def _measure(network: nn.Sequential, val: Dataset[Item]) -> float:
    network.eval()
    num_right = num_seen = 0
    with torch.no_grad():
        for images, numbers in DataLoader(val, batch_size=BATCH_SAMPLES, num_workers=NUM_WORKERS):
            num_right += int((network(images).argmax(dim=1) == numbers).sum())
            num_seen += len(numbers)
    return num_right / num_seen
