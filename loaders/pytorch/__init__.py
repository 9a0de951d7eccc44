"""Packed datasets in PyTorch.

::

    from loaders.pytorch import DataLoader, ShardDataset

    def decode(sample):                       # at the top level of a module, so that workers can import it
        image = PIL.Image.open(io.BytesIO(sample["jpg"]))
        return to_tensor(image), int(sample["cls"])

    dataset = ShardDataset("/data/flowers", split="train", transform=decode)
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)
    for epoch in range(10):
        for images, labels in loader:
            ...
            checkpoint["loader"] = loader.state_dict()

==========================  ===================================================================================
:class:`ShardDataset`       map-style dataset, for any loader
:class:`DataLoader`         like ``torch.utils.data.DataLoader``; shares epochs among ranks, goes on after restarts
:class:`ShardSampler`,      the same order for PyTorch's own ``DataLoader`` and for torchdata's ``StatefulDataLoader``
:class:`ShardBatchSampler`
:class:`ShardStream`        iterable dataset that goes through the shards one after the other
==========================  ===================================================================================

Besides this package only :mod:`loaders.webdataset` imports torch.
"""

try:
    import torch.utils.data  # noqa: F401
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "torch":
        raise
    raise ModuleNotFoundError(
        "loaders.pytorch needs PyTorch, which is not installed: pip install 'shardferry[torch]'", name="torch"
    ) from None

from loaders.pytorch.dataloader import DataLoader
from loaders.pytorch.dataset import ShardDataset, collate_ragged
from loaders.pytorch.samplers import ShardBatchSampler, ShardSampler
from loaders.pytorch.stream import ShardStream
from loaders.sample import KEY_FIELD, sample_to_dict

__all__ = [
    "KEY_FIELD",
    "DataLoader",
    "ShardBatchSampler",
    "ShardDataset",
    "ShardSampler",
    "ShardStream",
    "collate_ragged",
    "sample_to_dict",
]
