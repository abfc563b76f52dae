"""Checks of a device against the CPU: every head's loss and gradient, every method's singular values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import heads
from ..core.machine import machine
from ..core.version import __version__
from ..spectrum import REGISTRY, singular_values
from .in_turn import Goal, check_goals

CONTEXTS, SIZE, VOCAB = 300, 48, 1000
"""N, d and M of the heads."""
SHAPE = 600, 150
"""T and M of the matrix, whose singular values are 10⁻⁶ to 1."""
SETTINGS: dict[str, dict[str, Any]] = {
    "moc": {"components": 3},
    "mos": {"components": 3},
    "lms-plif": {"knots": 1000},
    "mos-plif": {"components": 3, "knots": 1000},
    "doc": {"components": (2, 1), "layer_sizes": (SIZE // 2, SIZE // 2)},
    "mixtape": {"components": 4},
}
SLACK = 10.0
"""Largest error of the device, as a multiple of the CPU's float32 error; sums are computed in another order."""
EXACT = 1e-12
"""Largest error of σ / σ_1, in float64, of methods that state no resolution."""


def check_device(device: str) -> dict[str, Any]:
    """Compare a device with float64 on the CPU.

    Args:
        device: a CUDA device, or ``"cpu"`` to test this function.

    Returns:
        ``machine``; ``heads``: for each the largest relative error of the loss or of a gradient in float32, on the
        device and on the CPU; ``spectra``: for each method the largest error of a singular value, over σ_1;
        ``goals``: whether the device's errors are within `SLACK` of the CPU's, and those of spectra within the method's
        resolution.
    """
    errors = {name: _head_errors(name, device) for name in heads.REGISTRY}
    spectra = dict(_spectrum_errors(device))
    eps = torch.finfo(torch.float32).eps
    goals = {
        **{Goal(f"{name}: error / CPU's", name, "<=", SLACK): one["device"] / max(one["cpu"], eps)
           for name, one in errors.items()},
        **{Goal(f"{name}: error / σ_1", name, "<=", max(REGISTRY[name].resolution, EXACT)): error
           for name, error in spectra.items()},
    }  # fmt: skip
    return {
        "machine": machine(device),
        "device": device,
        "heads": errors,
        "spectra": spectra,
        "goals": check_goals(goals),
        "version": __version__,
    }


def _head_errors(name: str, device: str) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = heads.build(name, hidden_size=SIZE, vocab_size=VOCAB, **SETTINGS.get(name, {}))
    hidden = torch.randn(CONTEXTS, SIZE, generator=generator)
    targets = torch.randint(VOCAB, (CONTEXTS,), generator=generator)
    weights = {key: value.clone() for key, value in head.state_dict().items()}

    def loss_and_gradients(where: str, dtype: torch.dtype) -> list[Tensor]:
        head.load_state_dict(weights)
        copied = head.to(where, dtype).eval()
        inputs = nn.Parameter(hidden.to(where, dtype))
        loss = copied.nll(inputs, targets.to(where))
        variables = [inputs, *(parameter for parameter in copied.parameters() if parameter.requires_grad)]
        return [piece.detach().double().cpu() for piece in (loss, *torch.autograd.grad(loss, variables))]

    truth = loss_and_gradients("cpu", torch.float64)

    def error(where: str) -> float:
        """Return the largest relative error of a tensor, by its norm."""
        pairs = zip(loss_and_gradients(where, torch.float32), truth, strict=True)
        return max(float((one - true).norm() / true.norm()) for one, true in pairs if true.any())

    return {"cpu": error("cpu"), "device": error(device)}


def _spectrum_errors(device: str) -> Iterator[tuple[str, float]]:
    generator = np.random.default_rng(0)
    T, M = SHAPE
    left, right = (np.linalg.qr(generator.standard_normal((size, M)))[0] for size in (T, M))
    values = np.logspace(0, -6, M)
    matrix = (left * values) @ right.T
    for method in ("gram", "tsqr", "dense"):
        measured = singular_values(matrix, method=method, device=device).values
        yield method, float(np.abs(measured - values).max())
