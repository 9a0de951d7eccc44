"""Writes ``expected/NAME.json`` anew for all nasty trees, or for those named: ``regenerate.py [NAME…]``.

Read the differences before committing them: the packer's word is not proof that it is right. ``docs/format.md`` is.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# to the end: the packages under test still come from where they are installed
sys.path.append(str(HERE.parents[2]))

from tests.packer.nasty.entries import CannotPlantError  # noqa: E402
from tests.packer.nasty.observe import Report, make_place, observe  # noqa: E402
from tests.packer.nasty.trees import TREES  # noqa: E402

EXPECTED = HERE / "expected"


def main(names: list[str]) -> None:
    for name in names or TREES:
        with tempfile.TemporaryDirectory() as base:
            os.chmod(base, 0o755)
            try:
                report = observe(make_place(base, TREES[name]))
            except CannotPlantError as error:
                print(f"left as it is, {name}: {error}")
                continue
        if write_if_changed(EXPECTED / f"{name}.json", report):
            print(f"written: {name}")
    for path in sorted(EXPECTED.glob("*.json")):
        if path.stem not in TREES:
            path.unlink()
            print(f"removed: {path.stem}")


def write_if_changed(path: Path, report: Report) -> bool:
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.write_text(text, encoding="utf-8")
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
