"""litdata: optimize with two workers."""

import functools

import litdata
from peer import key_of, list_files, main, read_file


def load(path: str, source: str) -> dict[str, object]:
    return {"key": key_of(path, source), "jpg": read_file(path)}


def pack(source: str, destination: str) -> None:
    litdata.optimize(
        functools.partial(load, source=source),
        list_files(source),
        destination,
        chunk_bytes=256 * 2**20,
        num_workers=2,
    )


if __name__ == "__main__":
    main(pack)
