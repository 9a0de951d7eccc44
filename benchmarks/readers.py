"""Makes the same samples for several loaders, and reads them with one of them; ``load.py`` runs it for each reading.

    python benchmarks/readers.py READER WORK DATA RESULT.json

Imports are not timed; opening the dataset and starting workers are.
"""

import functools
import importlib.util
import json
import mmap
import os
import random
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

BATCH_SIZE = 256
NUM_WORKERS = 2
SHARD_BYTES = 256 * 2**20

Counts = tuple[int, int]
"""Samples and bytes that were read."""


def sample_bytes(number: int, mean_bytes: int) -> bytes:
    """The data of a sample: the same for the same number."""
    sizes = random.Random(number)
    return sizes.randbytes(max(1, int(sizes.lognormvariate(0, 0.5) * mean_bytes / 1.133)))


def make_data(data: str, num_samples: int, mean_bytes: int, pack: str, readers: Iterable[str]) -> None:
    """Write the samples as tars with our manifest, and in the formats of the wanted readers; what is there stays."""
    makers = {"tar": _make_tars, "mosaicml": _make_mds, "litdata": _make_litdata}
    wanted = {"tar", *readers}
    for name, make in makers.items():
        directory = os.path.join(data, name)
        if name in wanted and not os.path.exists(directory):
            make(f"{directory}.new", num_samples, mean_bytes)
            if name == "tar":
                subprocess.run([pack, "adopt", f"{directory}.new", "--quiet"], check=True)
            os.rename(f"{directory}.new", directory)


def _make_tars(directory: str, num_samples: int, mean_bytes: int) -> None:
    import webdataset

    os.makedirs(directory)
    pattern = f"{directory}/train-%06d.tar"
    with webdataset.ShardWriter(pattern, maxsize=SHARD_BYTES, maxcount=10**9, verbose=0) as writer:
        for number in range(num_samples):
            writer.write({"__key__": f"{number:08d}", "bin": sample_bytes(number, mean_bytes)})


def _make_mds(directory: str, num_samples: int, mean_bytes: int) -> None:
    streaming = _import_streaming()
    with streaming.MDSWriter(out=directory, columns={"bin": "bytes"}, size_limit=SHARD_BYTES) as writer:
        for number in range(num_samples):
            writer.write({"bin": sample_bytes(number, mean_bytes)})


def _make_litdata(directory: str, num_samples: int, mean_bytes: int) -> None:
    import litdata

    make = functools.partial(sample_bytes, mean_bytes=mean_bytes)
    litdata.optimize(make, list(range(num_samples)), directory, chunk_bytes=SHARD_BYTES, num_workers=1)


def _import_streaming() -> Any:
    # its vision part needs a torchvision that fits to the build of torch; reading bytes does not
    sys.modules.setdefault("streaming.vision", types.ModuleType("streaming.vision"))
    import streaming

    return streaming


def count(items: Iterable[bytes]) -> Counts:
    """Count samples one by one."""
    num_samples = num_bytes = 0
    for item in items:
        num_samples += 1
        num_bytes += len(item)
    return num_samples, num_bytes


def count_batches(batches: Iterable[Sequence[bytes]]) -> Counts:
    """Count samples batch by batch."""
    return count(item for batch in batches for item in batch)


def keep(items: Any) -> Any:
    """Collate nothing: a batch is a list of bytes."""
    return items


def data_of(sample: Any) -> bytes:
    """The member of our sample, or of webdataset's."""
    data: bytes = sample["bin"]
    return data


def prepare_ours(work: str, data: str) -> Callable[[], Counts]:
    """Our loaders."""
    from loaders import open_dataset

    path = os.path.join(data, "tar")
    if work == "sequential":
        return lambda: count(sample["bin"] for sample in open_dataset(path))
    from loaders.pytorch import DataLoader, ShardDataset

    options: dict[str, dict[str, Any]] = {
        "shuffled": {},
        "workers": {"num_workers": NUM_WORKERS},
        "threads": {"num_threads": NUM_WORKERS},
    }

    def read() -> Counts:
        dataset = ShardDataset(path, transform=data_of)
        loader = DataLoader(dataset, BATCH_SIZE, shuffle=True, collate_fn=keep, **options[work])
        return count_batches(loader)

    return read


def prepare_mmap(work: str, data: str) -> Callable[[], Counts]:
    """A bare loop over memory maps: what Python can do at best."""
    import loaders

    del work
    with loaders.open_dataset(os.path.join(data, "tar")) as dataset:
        shards = [dataset.locate(first)[0] for first in _firsts(dataset.shards)]
    places = [(s.file.path, s.index.member_offsets.tolist(), s.index.member_sizes.tolist()) for s in shards]

    def slices() -> Iterable[bytes]:
        for path, offsets, sizes in places:
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                for offset, size in zip(offsets, sizes, strict=True):
                    yield content[offset : offset + size]

    return lambda: count(slices())


def _firsts(shards: Sequence[Any]) -> list[int]:
    firsts, number = [], 0
    for shard in shards:
        firsts.append(number)
        number += shard.num_samples
    return firsts


def prepare_webdataset(work: str, data: str) -> Callable[[], Counts]:
    """The webdataset library: its shuffle buffer, its loader."""
    import webdataset

    directory = os.path.join(data, "tar")
    paths = sorted(os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".tar"))

    def read() -> Counts:
        if work == "sequential":
            return count(sample["bin"] for sample in webdataset.WebDataset(paths, shardshuffle=False))
        pipeline = webdataset.WebDataset(paths, shardshuffle=len(paths)).shuffle(1000)
        if work == "shuffled":
            return count(sample["bin"] for sample in pipeline)
        batches = pipeline.map(data_of).batched(BATCH_SIZE, collation_fn=keep)
        return count_batches(webdataset.WebLoader(batches, batch_size=None, num_workers=NUM_WORKERS))

    return read


def prepare_mosaicml(work: str, data: str) -> Callable[[], Counts]:
    """The mosaicml-streaming library."""
    streaming = _import_streaming()
    import torch.utils.data

    def read() -> Counts:
        streaming.base.util.clean_stale_shared_memory()
        dataset = streaming.StreamingDataset(
            local=os.path.join(data, "mosaicml"), shuffle=work != "sequential", batch_size=BATCH_SIZE
        )
        if work in ("sequential", "shuffled"):
            return count(sample["bin"] for sample in dataset)
        batches = torch.utils.data.DataLoader(dataset, BATCH_SIZE, num_workers=NUM_WORKERS, collate_fn=keep)
        return count(sample["bin"] for batch in batches for sample in batch)

    return read


def prepare_litdata(work: str, data: str) -> Callable[[], Counts]:
    """The litdata library."""
    import litdata

    def read() -> Counts:
        dataset = litdata.StreamingDataset(os.path.join(data, "litdata"), shuffle=work != "sequential")
        if work in ("sequential", "shuffled"):
            return count(dataset)
        batches = litdata.StreamingDataLoader(dataset, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS, collate_fn=keep)
        return count_batches(batches)

    return read


READERS: dict[str, Callable[[str, str], Callable[[], Counts]]] = {
    "ours": prepare_ours,
    "mmap": prepare_mmap,
    "webdataset": prepare_webdataset,
    "mosaicml": prepare_mosaicml,
    "litdata": prepare_litdata,
}


def main() -> None:
    """Read once and write down how long it took."""
    reader, work, data, result = sys.argv[1:]
    read = READERS[reader](work, data)
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
    started = time.perf_counter()
    num_samples, num_bytes = read()
    seconds = time.perf_counter() - started
    with open(result, "w") as file:
        json.dump({"seconds": seconds, "num_samples": num_samples, "num_bytes": num_bytes}, file)


if __name__ == "__main__":
    main()
