"""mosaicml-streaming: MDSWriter, without compression and hashes."""

import sys
import types

from peer import key_of, list_files, main, read_file

# The package imports its vision part and with it torchvision, which fails where a CPU build of torch meets the usual
# build of torchvision. The writer needs neither.
sys.modules["streaming.vision"] = types.ModuleType("streaming.vision")

from streaming import MDSWriter  # noqa: E402


def pack(source: str, destination: str) -> None:
    with MDSWriter(out=destination, columns={"key": "str", "jpg": "bytes"}, size_limit=256 * 2**20) as writer:
        for path in list_files(source):
            writer.write({"key": key_of(path, source), "jpg": read_file(path)})


if __name__ == "__main__":
    main(pack)
