"""Datasets for the loaders' tests, made with the contract package alone: no packer, no stager."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from shards.digests import BLOCK_BYTES, BlockHasher, crc32c, hash_bytes, mask_crc
from shards.files import write_file
from shards.formats import FORMATS
from shards.index import IndexBuilder
from shards.manifest import ExtensionEntry, Manifest, ShardEntry, SplitEntry

Members = Mapping[str, bytes]
Samples = Sequence[tuple[str, Members]]


@dataclass(frozen=True)
class BuiltDataset:
    """A dataset on disk and what was put into it."""

    path: str
    dataset_id: str
    splits: Mapping[str, Samples]
    shard_names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def samples(self):
        """Of the only split."""
        [samples] = self.splits.values()
        return list(samples)

    def shard_path(self, number=0, split=None):
        names = self.shard_names[split or next(iter(self.shard_names))]
        return os.path.join(self.path, names[number])

    def index_path(self, number=0, split=None):
        return f"{self.shard_path(number, split)}.index.arrow"


def encode_shard(format_name, samples):
    """Encode samples as a shard; gives its bytes and an index builder that knows them."""
    shard_format = FORMATS[format_name]
    content, builder = bytearray(), IndexBuilder()
    for key, members in samples:
        layout = shard_format.layout_sample(key, [(extension, len(data)) for extension, data in members.items()])
        encoded = bytearray(layout.size)
        for offset, literal in layout.literals:
            encoded[offset : offset + len(literal)] = literal
        for (offset, size), data in zip(layout.holes, members.values(), strict=True):
            encoded[offset : offset + size] = data
        if layout.checksum is not None:
            crc = mask_crc(crc32c(bytes(encoded[layout.checksum.start : layout.checksum.end])))
            encoded[layout.checksum.end : layout.checksum.end + 4] = crc.to_bytes(4, "little")
        builder.add(
            key,
            len(content),
            [
                (extension, len(content) + offset, size, crc32c(data))
                for (extension, data), (offset, size) in zip(members.items(), layout.holes, strict=True)
            ],
        )
        content += encoded
    return bytes(content + shard_format.end_marker), builder


def build_dataset(path, splits, *, format_name="tar", shard_samples=5, classes=(), block_bytes=BLOCK_BYTES):
    """Write a dataset: split name → [(key, {extension: bytes})], cut into shards of `shard_samples`."""
    os.makedirs(path, exist_ok=True)
    split_entries, shard_names = [], {}
    for split, samples in sorted(splits.items()):
        entries = []
        for number, first in enumerate(range(0, len(samples), shard_samples)):
            content, builder = encode_shard(format_name, samples[first : first + shard_samples])
            hasher = BlockHasher(block_bytes)
            hasher.update(content)
            blocks = hasher.finish()
            name = f"{split}-{number:06d}{FORMATS[format_name].suffix}"
            index = builder.finish(shard_name=name, format_name=format_name, blocks=blocks)
            write_file(os.path.join(path, name), content)
            write_file(os.path.join(path, f"{name}.index.arrow"), index)
            entries.append(
                ShardEntry(
                    name=name,
                    size_bytes=len(content),
                    digest=blocks.shard_digest,
                    num_samples=len(samples[first : first + shard_samples]),
                    index_name=f"{name}.index.arrow",
                    index_size_bytes=len(index),
                    index_digest=hash_bytes(index),
                )
            )
        split_entries.append(describe_split(split, samples, entries))
        shard_names[split] = [entry.name for entry in entries]
    manifest = Manifest(
        shard_format=format_name, block_bytes=block_bytes, splits=tuple(split_entries), classes=tuple(classes)
    )
    write_file(os.path.join(path, "manifest.json"), manifest.to_json())
    return BuiltDataset(os.fspath(path), manifest.dataset_id, splits, shard_names)


def describe_split(name, samples, entries):
    extensions = {}
    for extension in sorted({extension for _, members in samples for extension in members}):
        sizes = [len(members[extension]) for _, members in samples if extension in members]
        extensions[extension] = ExtensionEntry(
            num_present=len(sizes), num_missing=len(samples) - len(sizes), size_bytes=sum(sizes)
        )
    return SplitEntry(
        name=name,
        num_samples=len(samples),
        size_bytes=sum(entry.size_bytes for entry in entries),
        shards=tuple(entries),
        extensions=extensions,
    )


def make_samples(count, *, prefix="sample"):
    """Samples of two extensions, each with bytes of its own; every third has a third extension."""
    samples = []
    for number in range(count):
        members = {"jpg": f"picture {prefix} {number} ".encode() * (1 + number % 7), "cls": str(number % 10).encode()}
        if number % 3 == 2:
            members["seg.png"] = bytes([number % 256]) * (number + 1)
        samples.append((f"{prefix}/{number:05d}", members))
    return samples


@pytest.fixture(scope="session")
def build():
    """The function :func:`build_dataset`."""
    return build_dataset


@pytest.fixture(scope="session")
def samples_of():
    """The function :func:`make_samples`."""
    return make_samples


@pytest.fixture(params=["tar", "tfrecord"])
def built(request, tmp_path):
    """23 ragged samples in five shards, in each format."""
    return build_dataset(tmp_path / "dataset", {"train": make_samples(23)}, format_name=request.param)


@pytest.fixture
def built_splits(tmp_path):
    """Two splits."""
    splits = {"train": make_samples(12, prefix="t"), "val": make_samples(7, prefix="v")}
    return build_dataset(tmp_path / "dataset", splits, classes=("cat", "dog"))
