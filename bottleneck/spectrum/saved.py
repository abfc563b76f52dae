"""The saved states of a long computation: after an interruption it continues, with the same result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.files import DAMAGE, make_folder, replacing, sha256_bytes
from ..errors import OutputError
from .base import SpectrumMethod, Stream
from .sketch import RangeFinder

SECONDS_BETWEEN_SAVES = 60.0
SHARE_OF_TIME = 0.05
"""Largest share of the computation's time that saving may take."""


class SavedState:
    """The stream of each pass of a computation after some rows, in a file.

    Args:
        folder: folder of the files.
        about: everything that the result depends on: the source, the method and the blocks. Each computation has its
            own files.
        warn: called once with a sentence if the state cannot be saved; the computation continues.
    """

    def __init__(
        self, folder: Path, about: Mapping[str, Any], *, warn: Callable[[str], None] = lambda text: None
    ) -> None:
        self._about, self._folder, self._warn = json.dumps(about, sort_keys=True), folder, warn
        self._interval, self._last = SECONDS_BETWEEN_SAVES, time.monotonic()
        self._paths: list[Path] = []

    def restore(self, method: SpectrumMethod | RangeFinder) -> tuple[Stream, int] | None:
        """Begin a pass; return its saved stream and the number of its rows, or ``None`` if none can be read."""
        name = sha256_bytes(f"{self._about} {type(method).__name__}".encode())[:32]
        self._paths.append(self._folder / f"{name}.npz")
        try:
            with self._paths[-1].open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                arrays = [file[str(place)] for place in range(len(file.files))]
                *state, totals = (torch.from_numpy(array).to(method.arithmetic.device) for array in arrays)
        except DAMAGE:
            return None  # there is none, or a damaged one
        return Stream(tuple(state), totals), int(totals[0])

    def offer(self, stream: Stream) -> None:
        """Save the stream, if enough time has passed."""
        started = time.monotonic()
        if started - self._last < self._interval:
            return
        tensors = enumerate((*stream.state, stream.totals))
        arrays: dict[str, Any] = {str(place): tensor.cpu().numpy() for place, tensor in tensors}
        try:
            make_folder(self._folder)
            with replacing(self._paths[-1]) as temporary, temporary.open("wb") as file:
                np.savez(file, **arrays)
        except OutputError as error:
            self._interval = float("inf")
            self._warn(f"warning: a kill would lose this computation's progress; its state cannot be kept: {error}")
            return
        self._last = time.monotonic()
        self._interval = max(SECONDS_BETWEEN_SAVES, (self._last - started) / SHARE_OF_TIME)

    def kept(self) -> str:
        """Return a sentence about the saved state, or an empty string when there is none."""
        exists = any(path.exists() for path in self._paths)
        return "a state of the computation is saved, and the same command continues from it" if exists else ""

    def forget(self) -> None:
        """Remove the files: the computation is done."""
        for path in self._paths:
            with suppress(OSError):  # it was never there, or its folder was never writable
                path.unlink()
