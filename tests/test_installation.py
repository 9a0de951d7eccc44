"""The tests run on what a user gets: the installed package, not files that happen to lie beside them."""

import importlib
import importlib.metadata
import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PACKAGES = ("shards", "packer", "stager", "loaders", "shardferry")


def is_editable() -> bool:
    origin = importlib.metadata.distribution("shardferry").read_text("direct_url.json")
    return bool(json.loads(origin or "{}").get("dir_info", {}).get("editable"))


@pytest.mark.parametrize("name", PACKAGES)
def test_installed_package_is_under_test(name: str) -> None:
    if is_editable():
        pytest.skip("development installation: the checkout itself is under test")
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert Path(module.__file__).is_relative_to(sysconfig.get_path("purelib"))


@pytest.mark.parametrize("name", PACKAGES)
def test_package_is_typed_for_its_users(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert Path(module.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize("program", ["pack", "stage", "load", "shardferry"])
def test_program_is_installed_and_is_its_module(program: str) -> None:
    module = {"pack": "packer", "stage": "stager", "load": "loaders", "shardferry": "shardferry"}[program]
    script = Path(sysconfig.get_path("scripts")) / program
    by_name = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    by_module = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
    assert by_name.stdout == by_module.stdout
    assert by_name.stdout.startswith(f"Usage: {program} ")


def test_umbrella_has_the_same_commands() -> None:
    scripts = Path(sysconfig.get_path("scripts"))
    for program in ("pack", "stage", "load"):
        own = subprocess.run([scripts / program, "--help"], capture_output=True, text=True, check=True)
        umbrella = subprocess.run(
            [scripts / "shardferry", program, "--help"], capture_output=True, text=True, check=True
        )
        assert umbrella.stdout.replace(f"Usage: shardferry {program}", f"Usage: {program}") == own.stdout


def test_version_is_the_installed_one() -> None:
    script = Path(sysconfig.get_path("scripts")) / "shardferry"
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert shown == f"shardferry, version {importlib.metadata.version('shardferry')}\n"


def test_wrong_command_is_a_usage_error() -> None:
    script = Path(sysconfig.get_path("scripts")) / "shardferry"
    done = subprocess.run([script, "pakc"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pakc" in done.stderr
    assert "Traceback" not in done.stderr
