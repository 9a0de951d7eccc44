"""Makes the golden datasets, or says whether today's packer still makes them.

    python tests/golden/generate.py DIRECTORY

writes ``DIRECTORY/tar`` and ``DIRECTORY/tfrecord``. The committed ones lie in ``1.0/``, named after the format version;
those of an older version stay, and are only read. The source is twenty real icons (CC0-1.0, from cryptocurrency-icons)
in two classes, and made files for what names and sizes can do.
"""

import subprocess
import sys
from pathlib import Path

from shards.tar import read_files

HERE = Path(__file__).parent
ICONS = HERE.parent / "data" / "cases" / "tar" / "gnutar-gnu.tar"

LONG = "a-directory-with-a-name-of-some-length/" * 4
"""Longer than the 100 bytes of a tar header's name field; fits prefix and name."""

MADE_FILES = {
    f"made/{LONG}prefix.bin": b"p" * 513,
    f"made/{'n' * 120}.bin": b"l" * 511,
    "made/empty.bin": b"",
    "made/one.bin": b"\x00",
    "made/block.bin": bytes(range(256)) * 2,
    "made/big.bin": bytes(range(256)) * 80,
    "made/Größe 1 – 東京.BIN": b"a name that is not ASCII",
    "made/ragged.bin": b"only one member here",
    "made/ragged.json": b'{"and": "two here"}',
}


def write_source(root: Path) -> None:
    """Write the source tree: ``root/icons-a``, ``root/icons-b`` and ``root/made``."""
    files = dict(MADE_FILES)
    with ICONS.open("rb") as stream:
        for number, (member, data) in enumerate(read_files(stream, ICONS.name)):
            # Members come in pairs, picture and caption; every second pair is of the other class.
            directory = "icons-b" if number // 2 % 2 else "icons-a"
            files[f"{directory}/{member.name.rpartition('/')[2]}"] = data
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def pack_command(source: Path, destination: Path, shard_format: str) -> list[str]:
    """The command line that packs a golden dataset."""
    options = ["--format", shard_format, "--shard-size", "48KiB", "--class-from-dir", "--split", "train=0.8,val=0.2"]
    return [
        sys.executable,
        "-m",
        "packer",
        "build",
        str(source),
        str(destination),
        *options,
        "--shuffle",
        "7",
        "--quiet",
    ]


def generate(directory: Path) -> None:
    """Write both golden datasets below a directory."""
    source = directory / "source"
    write_source(source)
    for shard_format in ("tar", "tfrecord"):
        subprocess.run(
            pack_command(source, directory / shard_format, shard_format), check=True, stdout=subprocess.DEVNULL
        )


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
