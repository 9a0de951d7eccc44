"""A program for tests: ``hanging_stage.py NAME ARGS…`` is ``stage ARGS…`` whose reads of one file hang in a thread.

Prints ``hangs`` when the first read does. What hangs in a system call of the kernel looks the same to the stager.
"""

import os
import sys
import time

from stager.cli import main
from stager.remotes.posix import PosixRemote

read_range = PosixRemote._read_range
NAME = sys.argv.pop(1)


def hang(self: PosixRemote, name: str, *rest: object) -> None:
    if name == NAME:
        os.write(1, b"hangs\n")
        time.sleep(600)
    read_range(self, name, *rest)


if __name__ == "__main__":
    PosixRemote._read_range = hang
    main()
