"""Measures of fits made by hand, where every number is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from softmax_bottleneck.synthetic import DirichletBlocks, agreement, dirichlet, matrices
from softmax_bottleneck.synthetic.models import build

BLOCKS = DirichletBlocks(300, 40, 0.1)


def test_against_plain_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirichlet, "BLOCK_ENTRIES", 5000)
    blocks = DirichletBlocks(120, 100, 0.1)
    head = build("mos", vocab=100, dim=3, seed=0)
    contexts = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    found = agreement(head, contexts, blocks)
    assert len(blocks) == 3
    p = torch.cat([block.double().exp() for block in blocks])
    q = head.double().log_prob(contexts.double()).detach().exp()
    assert found.kl == pytest.approx(float(torch.nn.functional.kl_div(q.log(), p, reduction="batchmean")), rel=1e-6)
    assert found.mode_match == pytest.approx(float((p.argmax(1) == q.argmax(1)).double().mean()))
    overlap = [
        len(set(a) & set(b)) / 10
        for a, b in zip(np.argsort(-p.numpy())[:, :10].tolist(), np.argsort(-q.numpy())[:, :10].tolist(), strict=True)
    ]
    assert found.top_overlap == pytest.approx(np.mean(overlap))
    assert found.entropy == pytest.approx(float(torch.distributions.Categorical(probs=p).entropy().mean()), rel=1e-6)


def test_ranks_of_fits() -> None:
    contexts = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    low = matrices(build("softmax", vocab=40, dim=5, seed=0), contexts, BLOCKS)
    assert low["contexts"] == 256
    assert low["rank"]["value"] == 6
    assert low["rank_centered"]["value"] == 5
    for scale in (0.0, 1.0, 30.0):  # no fit goes below Eckart and Young
        found = matrices(build("softmax", vocab=40, dim=5, seed=0), scale * contexts, BLOCKS)
        assert found["squared_error"] >= found["eckart_young"]["centered"] >= found["eckart_young"]["raw"] > 0
    high = matrices(build("mos", vocab=40, dim=5, seed=0), contexts, BLOCKS)
    assert high["rank"]["value"] > 20
    assert low["pairwise_kl"] == pytest.approx(low["pairwise_kl_expected"], rel=0.05)
    assert low["pairwise_kl_expected"] == pytest.approx(39 / 4)
