"""What ``make`` says on a machine where something is missing: the package that brings it, never a traceback."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "bootstrap.sh"


def make_tools(directory: Path, **programs: str) -> Path:
    """A PATH with the few tools that the script itself needs, and some programs given as scripts."""
    directory.mkdir()
    for name in ("dirname", "cat", "mkdir", "rm"):
        found = shutil.which(name)
        assert found is not None
        (directory / name).symlink_to(found)
    for name, body in programs.items():
        program = directory / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    return directory


def bootstrap(venv: Path, path: Path, *, mode: str = "installed", python: str = "") -> subprocess.CompletedProcess[str]:
    shell = shutil.which("dash") or "/bin/sh"
    environment = {"PATH": str(path), "PYTHON": python}
    return subprocess.run(
        [shell, str(SCRIPT), str(venv), mode], capture_output=True, text=True, check=False, env=environment
    )


def test_no_python_names_the_packages(tmp_path: Path) -> None:
    done = bootstrap(tmp_path / "venv", make_tools(tmp_path / "bin"))
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed; found: none" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_old_python_is_named(tmp_path: Path) -> None:
    old = 'if [ "$1" = --version ]; then echo "Python 3.9.2"; else exit 1; fi'
    done = bootstrap(tmp_path / "venv", make_tools(tmp_path / "bin", python3=old))
    assert done.returncode == 1
    assert "found: Python 3.9.2" in done.stderr


def test_missing_venv_module_names_its_package(tmp_path: Path) -> None:
    without_venv = 'case "$2" in *ensurepip*) exit 1 ;; *print*) echo 3.12 ;; esac'
    done = bootstrap(tmp_path / "venv", make_tools(tmp_path / "bin", python3=without_venv))
    assert done.returncode == 1
    assert "apt-get install python3-venv" in done.stderr
    assert "python3.12-venv" in done.stderr


def test_a_directory_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    venv = tmp_path / "precious"
    venv.mkdir()
    (venv / "file").write_text("keep me")
    done = bootstrap(venv, make_tools(tmp_path / "bin", python3='case "$2" in *print*) echo 3.12 ;; esac'))
    assert done.returncode == 1
    assert "is no virtual environment" in done.stderr
    assert (venv / "file").read_text() == "keep me"


@pytest.mark.parametrize("mode", ["", "instaled"])
def test_unknown_mode_is_refused(tmp_path: Path, mode: str) -> None:
    done = bootstrap(tmp_path / "venv", make_tools(tmp_path / "bin"), mode=mode)
    assert done.returncode == 1
    assert "use installed, editable or any" in done.stderr
