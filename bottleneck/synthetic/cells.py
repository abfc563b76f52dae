"""One cell of the experiment: its settings, its run, and the file of its result."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from ..core.checks import check_positive
from ..core.files import sha256_json, write_json
from ..core.json_file import Count, Magnitude, Size, read_json
from ..core.version import __version__
from ..errors import ConfigurationError, OutputError, look_up
from .dirichlet import DEFAULT_MEMORY, LARGEST_SIZE, DirichletBlocks, Targets
from .fit import FitConfig, fit
from .metrics import Agreement, agreement, matrices, reachable
from .models import COMPONENTS, HIDDEN_UNITS, KNOTS, MODELS, build

FORMAT = 4
"""Version of the results; it increases when the same cell would give another result."""

CellResult = dict[str, Any]


class _Reachable(TypedDict):
    kl: float
    mode_match: float
    fitted_kl: float
    fitted_mode_match: float
    largest_gap: float


class Fitted(TypedDict):
    """What summaries and figures need of a cell's result."""

    model: str
    alpha: Magnitude
    vocab: Size
    dim: Size
    contexts: Size
    seed: Count
    mode_match: float | None
    kl: float | None
    converged: bool
    diverged: bool
    seconds: Magnitude
    reachable: _Reachable | None


class _Saved(TypedDict):
    """The file of a result."""

    cell: dict[str, Any]
    result: Fitted


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One model fitted to one sample of distributions."""

    model: str
    """A name of `MODELS`."""
    alpha: float
    """The Dirichlet concentration."""
    vocab: int
    """M."""
    dim: int
    """D, the embedding size."""
    contexts: int
    """T, N in Ganea et al. 2019."""
    seed: int = 0
    """Seed of the distributions and of the initial weights."""
    fit: FitConfig = field(default_factory=FitConfig)
    """Settings of the fit."""

    def __post_init__(self) -> None:
        look_up("model", self.model, MODELS)
        self.blocks()
        check_positive(at_most=LARGEST_SIZE, dim=self.dim)
        if not 0 <= self.seed < 2**63:
            raise ConfigurationError(f"the seed must lie between 0 and 2**63 - 1, not {self.seed}")

    def blocks(self, device: str = "cpu") -> DirichletBlocks:
        """Return the distributions to fit."""
        return DirichletBlocks(self.contexts, self.vocab, self.alpha, self.seed, device)

    def key(self) -> dict[str, Any]:
        """Return the settings that determine the result on one kind of device; each kind draws other distributions."""
        sizes = {"components": COMPONENTS, "hidden_units": HIDDEN_UNITS, "knots": KNOTS}
        return {**asdict(self), "alpha": float(self.alpha), **sizes, "format": FORMAT}

    @property
    def name(self) -> str:
        """Name of the result's file, without the suffix."""
        readable = f"{self.model}-alpha{self.alpha:g}-M{self.vocab}-D{self.dim}-T{self.contexts}-seed{self.seed}"
        return f"{readable}-{sha256_json(self.key())[:8]}"


def run(cell: Cell, *, device: str = "cpu", max_memory: int = DEFAULT_MEMORY) -> CellResult:
    """Fit one cell and measure it.

    Returns:
        The settings ``model``, ``alpha``, ``vocab``, ``dim``, ``contexts`` and ``seed``; the fields of `Fit` without
        its tensors, and of `Agreement`; the results of `matrices` and `reachable` under their names. All measures are
        ``None`` if the fit diverged, or if its KL divergence from P* is more than that after the first epoch and twice
        that of the uniform distribution.
    """
    head = build(cell.model, vocab=cell.vocab, dim=cell.dim, seed=cell.seed, device=device)
    blocks = cell.blocks(device)
    fitted = fit(head, Targets(blocks, max_memory=max_memory), config=cell.fit, seed=cell.seed)
    means = None if fitted.diverged else agreement(head, fitted.contexts, blocks)
    has_norm = fitted.gradient_norm is not None and math.isfinite(fitted.gradient_norm)
    if means:
        uniform, first = math.log(cell.vocab) - means.entropy, fitted.curve[0][1] if fitted.curve else 0.0
        if not (has_norm and means.kl <= max(2 * uniform + cell.fit.negligible, first)):
            means = None
    return {
        **{name: getattr(cell, name) for name in ("model", "alpha", "vocab", "dim", "contexts", "seed")},
        **(asdict(means) if means else dict.fromkeys(one.name for one in fields(Agreement))),
        "steps": fitted.steps,
        "epochs": fitted.epochs,
        "seconds": round(fitted.seconds, 3),
        "converged": fitted.converged and means is not None,
        "diverged": means is None,
        "gradient_norm": fitted.gradient_norm if means else None,
        "promised": fitted.promised if means else None,
        "parameters": sum(p.numel() for p in head.parameters() if p.requires_grad) + fitted.contexts.numel(),
        "device": device,
        "curve": [list(point) for point in fitted.curve],
        "matrices": matrices(head, fitted.contexts, blocks) if means else None,
        "reachable": reachable(head, fitted.contexts, blocks) if means else None,
    }


def write(cell: Cell, result: CellResult, folder: Path) -> None:
    """Write a cell's result; raise `OutputError` when the disk is full or not writable."""
    write_json(folder / f"{cell.name}.json", {"cell": cell.key(), "result": result, "version": __version__})


def read(cell: Cell, folder: Path) -> CellResult | None:
    """Return a saved result, or ``None`` if there is none; `OutputError` for a file that is damaged."""
    path = folder / f"{cell.name}.json"
    remedy = "remove it, and its cell will be computed again"
    saved = read_json(path, _Saved, error=OutputError, remedy=remedy) if os.path.lexists(path) else {"result": None}
    result: CellResult | None = saved["result"]
    return result
