"""Reads packed or staged datasets into training.

Everything here is loaded on first use: ``import loaders`` costs nothing and pulls in neither numpy nor a framework.
torch is imported by :mod:`loaders.pytorch` and :mod:`loaders.webdataset`, tensorflow by :mod:`loaders.tensorflow` only.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loaders.dataset import Dataset, DatasetInfo, open_dataset
    from loaders.metrics import DataWait, EpochWait, log_epoch_wait
    from loaders.sample import Sample

__all__ = [
    "DataWait",
    "Dataset",
    "DatasetInfo",
    "EpochWait",
    "Sample",
    "log_epoch_wait",
    "open_dataset",
]

_HOMES = {
    "DataWait": "loaders.metrics",
    "Dataset": "loaders.dataset",
    "DatasetInfo": "loaders.dataset",
    "EpochWait": "loaders.metrics",
    "Sample": "loaders.sample",
    "log_epoch_wait": "loaders.metrics",
    "open_dataset": "loaders.dataset",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
