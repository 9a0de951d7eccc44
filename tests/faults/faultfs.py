"""A read-only mirror of a directory whose faults are controlled while it is mounted.

    python -m tests.faults.faultfs SOURCE MOUNTPOINT RULES.json

``RULES.json`` is a list of rules and is looked at before each request (replace it by rename). The first rule that
matches acts. What a rule matches:

    ``op``       lookup, getattr, open, read, opendir, readdir; every one when it is left out
    ``path``     a pattern of shells such as ``*.tar``
    ``from``     only reads that touch bytes from this offset on
    ``skip``     the first so many matches pass
    ``count``    it acts at most so often

and what it does:

    ``errno``    answers with this error, such as ``EIO``
    ``latency``  answers after so many seconds
    ``hang``     does not answer as long as the rule is there; the reader cannot be killed
    ``short``    gives so many bytes less than it read, at least one
    ``flip``     inverts the bytes at these offsets of the file
    ``cut``      the file ends at this offset, whatever size it has
    ``size``     the file is said to have this size

Each time a rule acts, it is written to ``RULES.json.log`` as a line of JSON with the request. The kernel reads ahead
and does not tell anybody about errors it meets then: a fault that is to be seen for sure has no small ``count``.
"""

import errno
import fnmatch
import json
import os
import sys
import time
from typing import Any

from tests.faults.fuseserver import Files, LocalFiles, Request, Server, mount_and_announce

Rule = dict[str, Any]


class FaultServer(Server):
    """Answers as the rules say."""

    def __init__(self, fuse_fd: int, files: Files, rules_path: str) -> None:
        super().__init__(fuse_fd, files)
        self._rules_path = rules_path
        self._log = open(f"{rules_path}.log", "a", buffering=1)  # noqa: SIM115 (as long as the server lives)
        self._version: object = None
        self._rules: list[Rule] = []
        self._chosen: dict[int, Rule] = {}

    def decide(self, request: Request) -> bool:
        self._load()
        rule = self._chosen.get(request.unique)
        if rule is None or rule not in self._rules:
            if rule is not None:  # it was held by a rule that is gone
                del self._chosen[request.unique]
            rule = self._match(request)
        if rule is None:
            return True
        if rule.get("hang"):
            self._chosen[request.unique] = rule
            return False
        request.due_at = time.monotonic() + rule.get("latency", 0.0)
        if "errno" in rule:
            raise OSError(getattr(errno, rule["errno"]), rule["errno"])
        if request.operation == "read":
            self._chosen[request.unique] = rule
        return True

    def change(self, request: Request, data: bytes) -> bytes:
        rule = self._chosen.pop(request.unique, {})
        start, _ = request.range
        if "cut" in rule:
            data = data[: max(0, rule["cut"] - start)]
        if "short" in rule:
            data = data[: max(1, len(data) - rule["short"])]
        changed = bytearray(data)
        for offset in rule.get("flip", ()):
            if start <= offset < start + len(changed):
                changed[offset - start] ^= 0xFF
        return bytes(changed)

    def change_size(self, path: str, size_bytes: int) -> int:
        return next((rule["size"] for rule in self._rules if "size" in rule and _fits(rule, path)), size_bytes)

    def _load(self) -> None:
        try:
            status = os.stat(self._rules_path)
            version = (status.st_mtime_ns, status.st_ino)
            if version != self._version:
                with open(self._rules_path, encoding="utf-8") as file:
                    self._rules = json.load(file)
                self._version = version
                for number, rule in enumerate(self._rules):
                    rule |= {"_number": (version, number), "_seen": 0, "_acted": 0}
        except FileNotFoundError:
            self._rules = []

    def _match(self, request: Request) -> Rule | None:
        start, end = request.range
        for rule in self._rules:
            if (
                "size" in rule
                or rule.get("op", request.operation) != request.operation
                or not _fits(rule, request.path)
            ):
                continue
            if "op" not in rule and request.operation in {"init", "destroy", "release", "releasedir", ""}:
                continue
            if end <= rule.get("from", 0) and "from" in rule:
                continue
            if "flip" in rule and not any(start <= offset < end for offset in rule["flip"]):
                continue
            rule["_seen"] += 1
            if rule["_seen"] <= rule.get("skip", 0) or rule["_acted"] >= rule.get("count", sys.maxsize):
                continue
            rule["_acted"] += 1
            shown = {name: value for name, value in rule.items() if not name.startswith("_")}
            self._log.write(
                json.dumps({"op": request.operation, "path": request.path, "range": [start, end], "rule": shown}) + "\n"
            )
            return rule
        return None


def _fits(rule: Rule, path: str) -> bool:
    return fnmatch.fnmatch(path, rule.get("path", "*"))


def main() -> None:
    source, mountpoint, rules_path = sys.argv[1:]
    FaultServer(mount_and_announce(mountpoint), LocalFiles(source), rules_path).serve()


if __name__ == "__main__":
    main()
