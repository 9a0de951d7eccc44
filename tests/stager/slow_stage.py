"""A program for tests: ``slow_stage.py SRC CACHE DELAY`` stages as ``stage run`` does, but each range takes a while.

Prints ``started`` when it begins and then, at a good end, how many bytes of data it read.
"""

import asyncio
import sys

from stager.config import StageConfig
from stager.remotes.base import RemoteVersion
from stager.remotes.posix import PosixRemote
from stager.run import run_stage


class SlowRemote(PosixRemote):
    data_bytes = 0
    delay_seconds = 0.0

    async def read_range(self, name: str, offset: int, buffer: memoryview, version: RemoteVersion) -> None:
        if name != "manifest.json":
            await asyncio.sleep(self.delay_seconds)
            self.data_bytes += len(buffer)
        await super().read_range(name, offset, buffer, version)


def main() -> None:
    config = StageConfig(source=sys.argv[1], cache_dir=sys.argv[2], holder="test", connections=4)
    remote = SlowRemote(config.source, config.connections)
    remote.delay_seconds = float(sys.argv[3])
    print("started", flush=True)
    run_stage(config, lambda error: sys.exit(3), lambda config: remote)
    print(remote.data_bytes, flush=True)


if __name__ == "__main__":
    main()
