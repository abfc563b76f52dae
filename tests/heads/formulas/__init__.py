"""Each head's formula, written out a second time: exponentials, sums, and one logarithm at the end.

One file a head, named like it, with ``naive(head, hidden)``, which returns P, (…, M); and ``SETTINGS`` where the
defaults are too large for a test.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest


def formula(name: str) -> ModuleType:
    """Return the file of a head; a missing one fails the test that asks."""
    file = Path(__file__).parent / f"{name.replace('-', '_')}.py"
    if not file.exists():
        pytest.fail(f"the head {name!r} has no formula to be tested against: write {file} with naive(head, hidden)")
    return import_module(f".{file.stem}", __name__)
