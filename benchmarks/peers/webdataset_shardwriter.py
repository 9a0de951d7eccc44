"""webdataset: ShardWriter."""

import os

import webdataset
from peer import key_of, list_files, main, read_file


def pack(source: str, destination: str) -> None:
    os.makedirs(destination)
    with webdataset.ShardWriter(
        f"{destination}/train-%06d.tar", maxsize=256 * 2**20, maxcount=10**9, verbose=0
    ) as writer:
        for path in list_files(source):
            writer.write({"__key__": key_of(path, source), "jpg": read_file(path)})


if __name__ == "__main__":
    main(pack)
