"""Sorted probabilities of Dirichlet distributions, by their concentration (Ganea et al. 2019, figure 5).

python -m softmax_bottleneck.synthetic.concentrations FILE.json
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import torch

from .dirichlet import DirichletBlocks

ALPHAS = (0.01, 0.1, 1.0)
VOCABS = (100, 1000, 10_000)
CONTEXTS = 1000
RANKS = 48
"""Number of ranks in the result, with equal ratios between them."""
QUANTILES = (0.1, 0.5, 0.9)


def concentrations() -> Mapping[str, Any]:
    """Sample distributions and take quantiles over contexts of their largest, second largest, … log-probability.

    Returns:
        ``contexts``, ``seed``, ``quantiles``, and ``curves``: each with ``alpha``, ``vocab``, ``ranks`` from 1 and
        ``log_probs``, quantiles × ranks, nats.
    """
    curves = []
    for vocab, alpha in product(VOCABS, ALPHAS):
        ranks = torch.logspace(0, math.log10(vocab), RANKS).round().long().unique()
        blocks = DirichletBlocks(CONTEXTS, vocab, alpha)
        log_probs = torch.cat([block.sort(1, descending=True).values[:, ranks - 1] for block in blocks]).double()
        quantiles = torch.quantile(log_probs, torch.tensor(QUANTILES, dtype=torch.float64), dim=0)
        numbers = {"ranks": ranks.tolist(), "log_probs": quantiles.round(decimals=4).tolist()}
        curves.append({"alpha": alpha, "vocab": vocab, **numbers})
    return {"kind": "concentrations", "contexts": CONTEXTS, "seed": 0, "quantiles": list(QUANTILES), "curves": curves}


if __name__ == "__main__":
    import sys
    from pathlib import Path

    from ..core.files import write_json

    write_json(Path(sys.argv[1]), concentrations())
