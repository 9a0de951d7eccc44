"""Every shard with a known right answer is read right: those in this repository, and more that lie beside it."""

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
OWN = TESTS / "data" / "cases"
SHARED = TESTS.parents[1] / "shared" / "cases"


def load_cases(folder: Path) -> list[Any]:
    cases = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
    return [pytest.param(case, folder / case["file"], id=case["id"]) for case in cases]


@pytest.fixture(scope="module")
def adaptor() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cases_adaptor", TESTS / "cases_adaptor.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("case", "path"), load_cases(OWN))
def test_own_case_is_read_right(case: dict[str, Any], path: Path, adaptor: ModuleType) -> None:
    check_case(case, path, adaptor)


if SHARED.exists():

    @pytest.mark.parametrize(("case", "path"), load_cases(SHARED))
    def test_shared_case_is_read_right(case: dict[str, Any], path: Path, adaptor: ModuleType) -> None:
        check_case(case, path, adaptor)

else:

    @pytest.mark.skip(reason="the folder ../shared/cases with the cases of other licences is not there")
    def test_shared_case_is_read_right() -> None:
        """Stands for all of them."""


def check_case(case: dict[str, Any], path: Path, adaptor: ModuleType) -> None:
    expect = case["expect"]
    assert path.stat().st_size == case["size_bytes"]
    check_members(case, path, adaptor)
    if case["kind"] == "tar" and (expect["outcome"] == "error" or "samples_outcome" in expect):
        check_samples(expect, path, adaptor)
    if expect.get("num_examples"):
        examples = list(adaptor.read_examples(str(path)))
        assert len(examples) == expect["num_examples"]
        check_features(expect.get("features", {}), examples)


def check_members(case: dict[str, Any], path: Path, adaptor: ModuleType) -> None:
    expect = case["expect"]
    digest = hashlib.sha256()
    names = []
    error = None
    try:
        for name, data in adaptor.read_shard(str(path)):
            names.append(name)
            digest.update(data)
    except adaptor.ERRORS as raised:
        error = raised
    right = [(expect.get("num_regular", expect.get("num_records")), expect.get("data_sha256"))]
    right += [(other["num_regular"], other["data_sha256"]) for other in expect.get("also_ok", ())]
    if error is None:
        assert expect["outcome"] != "error"
        assert (len(names), digest.hexdigest()) in right
        if len(names) == right[0][0] and names and names[0] is not None:
            assert strip(names[0]) == strip(expect.get("first_name", names[0]))
            assert strip(names[-1]) == strip(expect.get("last_name", names[-1]))
        return
    assert expect["outcome"] != "ok", str(error)
    assert len(names) <= max(count for count, _ in right)
    if expect["outcome"] == "error":
        check_message(case, path, str(error))


def check_message(case: dict[str, Any], path: Path, message: str) -> None:
    wanted = case["expect"].get("error_mentions", ())
    assert "shard" not in wanted or path.name in message
    assert message.isprintable()
    if "offset" in wanted:
        offset = re.search(r"at byte offset (\d+)", message)
        assert offset is not None
        fault = case["expect"].get("fault_offset")
        numbers = [int(number) for number in re.findall(r"\d+", message.replace(path.name, ""))]
        assert fault is None or any(fault - 512 <= number <= fault + 1536 for number in numbers)


def check_samples(expect: dict[str, Any], path: Path, adaptor: ModuleType) -> None:
    outcome = "error" if expect["outcome"] == "error" else expect["samples_outcome"]
    samples = []
    error = None
    try:
        samples.extend(
            [strip(key), sorted(strip(extension) for extension in members)]
            for key, members in adaptor.read_samples(str(path))
        )
    except adaptor.ERRORS as raised:
        error = raised
    if error is None:
        assert outcome != "error"
        assert len(samples) == expect["num_samples"]
        if "samples" in expect:
            assert samples == [[strip(key), sorted(members)] for key, members in expect["samples"]]
    else:
        assert outcome != "ok", str(error)
        assert path.name in str(error)
        assert len(samples) <= expect.get("max_samples", len(samples))


def check_features(expected: dict[str, Any], examples: list[dict[str, tuple[str, int]]]) -> None:
    for name, fact in expected.items():
        values = [example[name] for example in examples if name in example]
        counts = [count for _, count in values]
        assert sorted({kind for kind, _ in values}) == fact["kinds"]
        assert (min(counts), max(counts), len(values)) == (
            fact["min_values"],
            fact["max_values"],
            fact["num_present"],
        )


def strip(name: str) -> str:
    """Drop what no key rule looks at."""
    return re.sub(r"^(\./+|/+)+", "", name)
