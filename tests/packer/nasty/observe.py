"""Packs a nasty tree and says what came out, as plain JSON without anything that depends on the place or the user.

What is read back is read with Python's own ``tarfile``, not with our reader.
"""

import contextlib
import io
import json
import logging
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packer.cli import cli
from shardferry.console import run_command
from shards.errors import printable
from shards.manifest import Manifest
from tests.packer.nasty.entries import CannotPlantError, Entry, Kind, content_of, open_up, plant
from tests.packer.nasty.trees import Tree

Report = dict[str, object]

_OF_THE_MOMENT = frozenset({"measured", "advice"})
"""Parts of a plan that depend on the machine."""

UNPRIVILEGED = 65534
"""Uid and gid of nobody."""

AS_NOBODY = f"""
import os, sys
import packer.build, packer.report, shards.formats  # while the interpreter's own files can be read
from packer.cli import main
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({UNPRIVILEGED})
    os.setuid({UNPRIVILEGED})
main()
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tree is planted and packed."""

    base: str
    tree: Tree

    @property
    def source(self) -> str:
        return os.path.join(self.base, self.tree.source)

    @property
    def destination(self) -> str:
        return os.path.join(self.base, self.tree.destination)

    def build(self, *args: str, destination: str | None = None) -> Outcome:
        """Run ``pack build``."""
        where = self.destination if destination is None else destination
        command = ["build", self.source, where, "--json", "--jobs", "1", *self.tree.args, *args]
        return _run_as_nobody(command) if self.tree.as_nobody else run_pack(command)

    def without_places(self, text: str) -> str:
        """Text with the names of this place and user replaced."""
        for path, name in ((self.destination, "DESTINATION"), (self.source, "SOURCE"), (self.base, "BASE")):
            text = text.replace(path, name)
        return re.sub(r"\b(uid|gid) \d+", r"\1 N", text)


def make_place(base: str, tree: Tree) -> Place:
    """Plant a tree.

    Args:
        base: an empty directory; other users can pass through it.
        tree: what to plant.

    Raises:
        CannotPlantError: this user or filesystem cannot.
    """
    if tree.as_nobody and os.geteuid() != 0:
        raise CannotPlantError("only root can run the packer as a user who does not own the files")
    os.chmod(base, 0o777)  # so that nobody can make the destination
    for name in ("out-of-source.jpg", "elsewhere.jpg"):
        with open(os.path.join(base, name), "wb") as outside:
            outside.write(content_of(name.encode(), 24))
    plant(os.fsencode(base), os.fsencode(os.path.join(base, "source")), tree.entries)
    return Place(base, tree)


def observe(place: Place) -> Report:
    """Pack the tree and report."""
    before = _list_destination(place)
    done = place.build()
    open_up(os.fsencode(os.path.join(place.base, "source")))
    if done.exit_code != 0:
        report = _report_refusal(place, done)
        if _list_destination(place) != before:
            report["left_behind"] = _list_destination(place)
        return report
    if "--dry-run" in place.tree.args:
        plan = json.loads(done.stdout)
        return {"exit_code": 0, "plan": {name: value for name, value in plan.items() if name not in _OF_THE_MOMENT}}
    return _report_dataset(place, json.loads(done.stdout))


def run_pack(args: Sequence[str]) -> Outcome:
    """Run ``pack`` in this process, which saves its start."""
    stdout, stderr = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = run_command(cli, "pack", list(args))
    root.handlers[:] = handlers
    root.setLevel(level)
    return Outcome(code, stdout.getvalue(), stderr.getvalue())


def read_tar_members(directory: str) -> dict[str, bytes]:
    """Every member of a tar dataset, by the name it is stored under."""
    members = {}
    for shard in sorted(name for name in os.listdir(directory) if name.endswith(".tar")):
        with tarfile.open(os.path.join(directory, shard), "r:", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                data = archive.extractfile(member)
                assert data is not None
                assert member.name not in members
                members[member.name] = data.read()
    return members


def _run_as_nobody(args: Sequence[str]) -> Outcome:
    command = [sys.executable, "-c", AS_NOBODY, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


def _report_refusal(place: Place, done: Outcome) -> Report:
    assert done.stdout == ""
    lines = place.without_places(done.stderr).splitlines()
    return {"exit_code": done.exit_code, "message": [line for line in lines if not line.startswith('{"at"')]}


def _report_dataset(place: Place, built: Mapping[str, object]) -> Report:
    with open(os.path.join(place.destination, "manifest.json"), "rb") as file:
        manifest = Manifest.from_json(file.read(), name="manifest.json")
    report: Report = {
        "exit_code": 0,
        "dataset_id": manifest.dataset_id,
        "num_files": built["num_files"],
        "num_samples": built["num_samples"],
        "skipped": built["skipped"],
        "shards": {shard.name: [shard.num_samples, shard.size_bytes] for _, shard in manifest.shards()},
        "extensions": {
            f"{split.name}: {printable(name)}": [found.num_present, found.num_missing]
            for split in manifest.splits
            for name, found in sorted(split.extensions.items())
        },
    }
    if manifest.classes:
        report["classes"] = [printable(name) for name in manifest.classes]
    if manifest.shard_format == "tar":
        report["members"] = _name_sources(place.tree.entries, read_tar_members(place.destination))
    return report


def _name_sources(entries: Sequence[Entry], members: Mapping[str, bytes]) -> dict[str, str]:
    """Stored name → path of the file that its bytes came from."""
    origins = {content_of(name, 24): f"BASE/{name.decode()}" for name in (b"out-of-source.jpg", b"elsewhere.jpg")}
    for entry in entries:
        if entry.kind is Kind.FILE and entry.size_bytes:
            origins[content_of(entry.path, entry.size_bytes)] = printable(entry.path.decode("utf-8", "surrogateescape"))
    return {printable(name): _origin(name, data, origins) for name, data in sorted(members.items())}


def _origin(name: str, data: bytes, origins: Mapping[bytes, str]) -> str:
    if name.endswith(".cls") and data.isdigit():
        return f"class {int(data)}"
    return origins[data] if any(data) else f"{len(data)} zero bytes"


def _list_destination(place: Place) -> list[str] | None:
    try:
        return sorted(os.listdir(place.destination))
    except (FileNotFoundError, NotADirectoryError):
        return None
