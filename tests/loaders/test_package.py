"""What the package exports, and what importing it costs."""

import subprocess
import sys

import pytest

import loaders

HEAVY = ("numpy", "pyarrow", "torch", "tensorflow", "webdataset", "fsspec", "blake3")


def modules_after(code):
    """The top-level modules that are loaded after running code in a fresh interpreter."""
    script = f"{code}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    return set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )


def test_import_pulls_in_nothing_heavy():
    assert not modules_after("import loaders").intersection(HEAVY)


def test_names_are_loaded_on_first_use_and_without_a_framework():
    loaded = modules_after("from loaders import Dataset, DataWait, Sample, open_dataset")
    assert "numpy" in loaded
    assert not loaded.intersection({"torch", "tensorflow"})


@pytest.mark.parametrize("arguments", [["--help"], ["inspect", "--help"]])
def test_help_loads_nothing_heavy(arguments):
    code = f"""
import contextlib, io, sys
sys.argv = ["load", *{arguments!r}]
from loaders.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()"""
    assert not modules_after(code).intersection(HEAVY)


def test_exports_are_sorted_and_exist():
    assert sorted(loaders.__all__) == loaders.__all__
    for name in loaders.__all__:
        assert getattr(loaders, name).__name__ == name
    assert set(loaders.__all__) <= set(dir(loaders))


def test_exports_are_these():
    assert loaders.__all__ == [
        "DataWait",
        "Dataset",
        "DatasetInfo",
        "EpochWait",
        "Sample",
        "log_epoch_wait",
        "open_dataset",
    ]


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'loaders' has no attribute 'open_datasets'"):
        _ = loaders.open_datasets


@pytest.mark.parametrize(("module", "framework"), [("pytorch", "torch"), ("tensorflow", "tensorflow")])
def test_a_framework_that_is_not_installed_is_named_with_its_extra(module, framework):
    code = f"""
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == {framework!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
import loaders.{module}
"""
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert result.returncode == 1
    assert f"pip install 'shardferry[{framework}]'" in result.stderr
