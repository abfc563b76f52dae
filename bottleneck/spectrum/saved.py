"""The saved state of a long computation: after an interruption it continues, with the same result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..core.files import DAMAGE, make_folder, replacing, sha256_bytes
from ..errors import OutputError
from .base import SpectrumMethod

SECONDS_BETWEEN_SAVES = 60.0
SHARE_OF_TIME = 0.05
"""Largest share of the computation's time that saving may take."""


class SavedState:
    """The state of a method after some rows, in one file.

    Args:
        folder: folder of the files.
        about: everything that the result depends on: the source, the method and the blocks. Each computation has its
            own file.
        warn: called once with a sentence if the state cannot be saved; the computation continues.
    """

    def __init__(
        self, folder: Path, about: Mapping[str, Any], *, warn: Callable[[str], None] = lambda text: None
    ) -> None:
        self._about = json.dumps(about, sort_keys=True)
        self.path = folder / f"{sha256_bytes(self._about.encode())[:32]}.npz"
        self._warn = warn
        self._interval = SECONDS_BETWEEN_SAVES
        self._last = time.monotonic()

    def restore(self, method: SpectrumMethod) -> tuple[int, int]:
        """Restore a method's state; return the number of its pass and of the rows taken in it."""
        try:
            with self.path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                if str(file["about"]) != self._about:
                    return 0, 0
                passed, rows = (int(number) for number in file["reached"])
                method.restore({name: file[name] for name in method.state()})
        except DAMAGE:
            return 0, 0  # none, or a damaged one: the computation starts anew
        return passed, rows

    def offer(self, method: SpectrumMethod, passed: int, rows: int) -> None:
        """Save the state after ``rows`` rows of a pass, if enough time has passed."""
        started = time.monotonic()
        if started - self._last < self._interval:
            return
        state = {name: tensor.cpu().numpy() for name, tensor in method.state().items()}
        arrays: dict[str, Any] = {"about": np.array(self._about), "reached": np.array([passed, rows]), **state}
        try:
            make_folder(self.path.parent)
            with replacing(self.path) as temporary, temporary.open("wb") as file:
                np.savez(file, **arrays)
        except OutputError as error:
            self._interval = float("inf")
            self._warn(f"warning: a kill would lose this computation's progress; its state cannot be kept: {error}")
            return
        self._last = time.monotonic()
        self._interval = max(SECONDS_BETWEEN_SAVES, (self._last - started) / SHARE_OF_TIME)

    def kept(self) -> str:
        """Return a sentence about the saved state, or an empty string when there is none."""
        return (
            "a state of the computation is saved, and the same command continues from it" if self.path.exists() else ""
        )

    def forget(self) -> None:
        """Remove the file: the computation is done."""
        with suppress(OSError):  # it was never there, or its folder was never writable
            self.path.unlink()
