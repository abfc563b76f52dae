"""What the page's script draws and counts: singular values, tolerances and histograms, as plain values for JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..results.plotting import Look
from .contents import Contents, Model


def curves(contents: Contents) -> list[dict[str, Any]]:
    """Return for each model its label, look, both matrices and its histogram; ``None`` for what is not known."""
    return [
        {
            "label": label,
            "rule": model.report.rule,
            **_look(look, contents.on_dark),
            "raw": _matrix(model, centered=False),
            "centered": _matrix(model, centered=True),
            "histogram": _histogram(model),
        }
        for label, look, model in zip(contents.labels, contents.looks, contents.models, strict=True)
    ]


def _look(look: Look, on_dark: Mapping[str, str]) -> dict[str, Any]:
    width = 2 * look.width
    dash = "solid" if look.dashes[1:] == (0,) else ",".join(f"{width * length:g}px" for length in look.dashes)
    return {"color": look.color, "dark": on_dark.get(look.color, look.color), "dash": dash, "width": width}


def _matrix(model: Model, *, centered: bool) -> dict[str, Any] | None:
    """Return the spectrum of the raw or the row-centred matrix with the rank that the report gives it."""
    spectrum, (T, M), report = model.spectrum, model.shape, model.report
    if spectrum is None:
        return None
    values, error = (spectrum.centered, spectrum.centered_error) if centered else (spectrum.values, spectrum.error)
    rank = report.rank_centered if centered else report.rank
    noise = 0.0 if report.eps.rounding is None else report.eps.rounding.noise((T, M))
    return {
        "values": _bytes(values[values > 0]),
        "size": min(T, M),
        "full": min(T, M - centered),
        "known": len(values),
        "error": error,
        "residual": spectrum.residual,
        "noise": noise if np.isfinite(noise) else 0.0,
        "tolerance": rank.tolerance,
        "bound": report.bound["centered" if centered else "raw"],
        "reported": {"text": str(rank), "determinate": rank.determinate},
    }


def _bytes(values: NDArray[np.float64]) -> str:
    """Return numbers in base64, exactly: the script then counts what `numerical_rank` counts."""
    return base64.b64encode(values.astype("<f8").tobytes()).decode()


def _histogram(model: Model) -> dict[str, Any] | None:
    """Return the percentage of drawn pairs whose divergence is at most each edge of the histogram."""
    if model.drawn is None:
        return None
    edges, counts = (np.asarray(model.drawn["histogram"][key], dtype=float) for key in ("edges", "counts"))
    share = 100 * np.append(0.0, counts.cumsum()) / counts.sum()
    mean = model.numbers.get(f"{model.split} pairwise KL", model.drawn["kld"])
    drawn = edges > 0  # the axis is logarithmic
    return {"edges": [*edges[drawn]], "share": [*share[drawn]], "mean": mean, "pairs": model.drawn["pairs"]}
