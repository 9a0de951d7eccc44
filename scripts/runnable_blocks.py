"""Runs the Python examples of the documentation that are marked as runnable.

A block is runnable when the line before its fence is ``<!-- runnable -->``, or ``<!-- runnable with tensorflow -->``
(torch likewise) when it needs that package. The blocks of a page run in order, as one program, in a new directory that
holds:

    photos/cats/*.jpg, photos/dogs/*.jpg   a tree of small files, each with a .txt beside it
    packed/                                the tree as ``pack build photos packed --class-from-dir`` made it
"""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

_BLOCK = re.compile(r"^<!-- runnable(?: with (\w+))? -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECONDS_FOR_A_PAGE = 120


def run_blocks(pages: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Run the runnable blocks of pages and report those that fail.

    Args:
        pages: (path, text) of each.
    """
    wanted = [(path, text) for path, text in pages if _BLOCK.search(text)]
    if not wanted:
        return
    with tempfile.TemporaryDirectory() as directory:
        _write_photos(directory)
        pack = [sys.executable, "-m", "packer", "build", "photos", "packed", "--class-from-dir"]
        packed = subprocess.run(pack, cwd=directory, capture_output=True, text=True, check=False)
        if packed.returncode != 0:
            yield f"the examples' dataset could not be packed: {packed.stderr.strip()}"
            return
        for path, text in wanted:
            yield from _run_page(path, text, directory)


def _run_page(path: str, text: str, directory: str) -> Iterator[str]:
    program = []
    for needed, block in _BLOCK.findall(text):
        if needed and importlib.util.find_spec(needed) is None:
            print(f"docs: {path}: an example that needs {needed} was left out")
        else:
            program.append(block)
    # a main guard: examples may start worker processes
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir=directory, encoding="utf-8") as script:
        script.write("\n".join(program))
        script.flush()
        try:
            done = subprocess.run(
                [sys.executable, "-W", "error::DeprecationWarning:__main__", script.name],
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=SECONDS_FOR_A_PAGE,
                check=False,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            )
        except subprocess.TimeoutExpired:
            yield f"{path}: its examples take more than {SECONDS_FOR_A_PAGE} seconds"
            return
    if done.returncode != 0:
        last_words = "\n    ".join(done.stderr.strip().splitlines()[-6:])
        yield f"{path}: its examples fail:\n    {last_words}"


def _write_photos(directory: str) -> None:
    for class_name in ("cats", "dogs"):
        os.makedirs(os.path.join(directory, "photos", class_name))
        for number in range(1, 9):
            base = os.path.join(directory, "photos", class_name, f"{number:04d}")
            with open(f"{base}.jpg", "wb") as file:
                file.write(_picture(number))
            with open(f"{base}.txt", "w", encoding="utf-8") as text:
                text.write(f"{class_name} number {number}\n")


def _picture(number: int) -> bytes:
    """Give a real, tiny JPEG, so that examples can decode it."""
    import io  # noqa: PLC0415 (only when examples run)

    from PIL import Image  # noqa: PLC0415 (only when examples run)

    buffer = io.BytesIO()
    Image.new("RGB", (64, 48), (number * 25, 90, 160)).save(buffer, "JPEG")
    return buffer.getvalue()
