"""What holds for all tests."""

import sys
from pathlib import Path

# Spawned worker processes import the test module that gave them a function, as ``tests.…``. The root goes to the end of
# the path: the packages under test still come from where they are installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))
