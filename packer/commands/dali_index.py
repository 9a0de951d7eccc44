"""``pack dali-index``."""

import click

from packer.commands import set_up_log


@click.command("dali-index")
@click.argument("dataset", type=click.Path(path_type=str))
@click.argument("directory", type=click.Path(path_type=str))
def command(dataset: str, directory: str) -> None:
    """Write index files for NVIDIA DALI's readers of the shards of DATASET into DIRECTORY.

    The same as DALI's wds2idx and tfrecord2idx make by reading each shard, here from the indexes that are there. Give
    them to fn.readers.webdataset as index_paths, or to fn.readers.tfrecord as index_path. For a shard train-000000.tar
    the file is train-000000.tar.idx.

    \b
    Example:
      pack dali-index out/ dali-indexes/
    """  # noqa: D301 (click wants the character itself)
    import os

    from packer.dali_index import record_index_lines, tar_index_lines
    from packer.inspect import read_manifest
    from packer.samples_of import walk_shard
    from packer.stores.open import open_store
    from shards.errors import DestinationError, printable
    from shards.files import write_file
    from shards.formats import find_format
    from shards.manifest import MANIFEST_NAME

    set_up_log(verbose=False, quiet=False)
    manifest = read_manifest(dataset)
    store = open_store(dataset)
    has_records = find_format(manifest.shard_format, where=MANIFEST_NAME).has_example_records
    num_shards = 0
    for split, shard in manifest.shards():
        if has_records:
            with store.open_index(shard.index_name) as index:
                offsets = [index.sample_offset(number) for number in range(index.num_samples)]
            lines = record_index_lines(offsets, shard.size_bytes)
        else:
            lines = tar_index_lines(list(walk_shard(store, split.name, shard.name, shard.index_name)))
        path = os.path.join(directory, f"{shard.name}.idx")
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_file(path, "".join(lines).encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise DestinationError(f"cannot write {printable(path)}: {error.strerror}") from error
        num_shards += 1
    click.echo(f"wrote {num_shards} index file(s) to {printable(directory)}")
