"""One cell of the experiment: its settings, how it is run, and the file that keeps its result."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from .._version import __version__
from ..errors import ConfigurationError, OutputError
from ..files import sha256_json, write_json
from .dirichlet import DirichletBlocks
from .fit import FitConfig, fit
from .metrics import Agreement, agreement, matrices, reachable
from .models import COMPONENTS, HIDDEN_UNITS, KNOTS, build, check_model
from .targets import DEFAULT_MEMORY, Targets

FORMAT = 1
"""Raised when the same cell would come out otherwise."""

Result = dict[str, Any]


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
    """T, the paper's N."""
    seed: int = 0
    """Seed of the distributions and of the starting weights."""
    fit: FitConfig = field(default_factory=FitConfig)
    """How it is fitted."""

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        check_model(self.model)
        self.blocks()
        if self.dim < 1:
            raise ConfigurationError(f"the embedding size must be at least 1, not {self.dim}")
        if self.seed < 0:
            raise ConfigurationError(f"a seed must not be negative, not {self.seed}")

    def blocks(self, device: str = "cpu") -> DirichletBlocks:
        """Return its distributions."""
        return DirichletBlocks(self.contexts, self.vocab, self.alpha, self.seed, device)

    def key(self) -> dict[str, Any]:
        """Return all that decides how it comes out on one kind of device; another kind draws other distributions."""
        sizes = {"components": COMPONENTS, "hidden_units": HIDDEN_UNITS, "knots": KNOTS}
        return {**asdict(self), "alpha": float(self.alpha), **sizes, "format": FORMAT}

    @property
    def name(self) -> str:
        """Its file's name without the suffix."""
        readable = f"{self.model}-alpha{self.alpha:g}-M{self.vocab}-D{self.dim}-T{self.contexts}-seed{self.seed}"
        return f"{readable}-{sha256_json(self.key())[:8]}"


def run(cell: Cell, *, device: str = "cpu", max_memory: int = DEFAULT_MEMORY) -> Result:
    """Fit one cell and measure it.

    Returns:
        What decides it (``model``, ``alpha``, ``vocab``, ``dim``, ``contexts``, ``seed``), `Fit` without its tensors,
        `Agreement`, and what `matrices` and `reachable` return under their names. Where the fit diverged, or ended
        more than twice as far from P* as the uniform distribution is, all measures are ``None``.
    """
    head = build(cell.model, vocab=cell.vocab, dim=cell.dim, seed=cell.seed, device=device)
    blocks = cell.blocks(device)
    fitted = fit(head, Targets(blocks, max_memory=max_memory), config=cell.fit, seed=cell.seed)
    found = None if fitted.diverged else agreement(head, fitted.contexts, blocks)
    has_norm = fitted.gradient_norm is not None and math.isfinite(fitted.gradient_norm)
    if found and not (has_norm and found.kl <= 2 * (math.log(cell.vocab) - found.entropy) + cell.fit.negligible):
        found = None
    return {
        **{name: getattr(cell, name) for name in ("model", "alpha", "vocab", "dim", "contexts", "seed")},
        **(asdict(found) if found else dict.fromkeys(one.name for one in fields(Agreement))),
        "steps": fitted.steps,
        "epochs": fitted.epochs,
        "seconds": round(fitted.seconds, 3),
        "converged": fitted.converged and found is not None,
        "diverged": found is None,
        "gradient_norm": fitted.gradient_norm if found else None,
        "parameters": sum(p.numel() for p in head.parameters() if p.requires_grad) + fitted.contexts.numel(),
        "device": device,
        "curve": [list(point) for point in fitted.curve],
        "matrices": matrices(head, fitted.contexts, blocks) if found else None,
        "reachable": reachable(head, fitted.contexts, blocks) if found else None,
    }


def write(cell: Cell, result: Result, folder: Path) -> None:
    """Keep a cell's result; `OutputError` when the disk is full or not writable."""
    content = {"cell": cell.key(), "result": result, "version": __version__}
    write_json(folder / f"{cell.name}.json", {**content, "sha256": sha256_json(content)})


def read(cell: Cell, folder: Path, warn: Callable[[str], None]) -> Result | None:
    """Return a kept result, or ``None`` where there is none or one that was changed, of which it warns.

    Raises:
        OutputError: the file cannot be read.
    """
    path = folder / f"{cell.name}.json"
    try:
        content = json.loads(path.read_bytes())
        digest = content.pop("sha256")
        if digest == sha256_json(content) and content["cell"] == json.loads(json.dumps(cell.key())):
            result: Result = content["result"]
            return result
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"the cell {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        pass
    warn(f"{path} is damaged or was changed: its cell is computed again")
    return None
