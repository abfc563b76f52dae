"""Models of transformers on a pretended accelerator: measured, trained and generating as on the CPU."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import softmax_bottleneck as sb
from softmax_bottleneck.integrations import model_statistics
from softmax_bottleneck.integrations.transformers import with_head

from ..integrations.conftest import IDS, M, make


@pytest.mark.parametrize("head", ["", "mos"])
def test_loss_generation_and_statistics(head: str, no_float64: None, device: str) -> None:
    model = with_head(make("gpt2"), head) if head else make("gpt2")
    moved, where = copy.deepcopy(model).to(device), IDS.to(device)
    results = [(one(ids, labels=ids).loss, one) for one, ids in ((model, IDS), (moved, where))]
    for loss, _ in results:
        loss.backward()
    torch.testing.assert_close(results[1][0].cpu(), results[0][0])
    for one, other in zip(moved.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-4, atol=1e-6)
    how = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    found = moved.generate(where[:, :5], attention_mask=torch.ones_like(where[:, :5]), **how)
    assert found.tolist() == model.generate(IDS[:, :5], attention_mask=torch.ones_like(IDS[:, :5]), **how).tolist()
    statistics = model_statistics(moved, IDS)
    assert statistics == pytest.approx(model_statistics(model, IDS), rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"precise": True}, {"dtype": "bfloat16"}], ids=str)
def test_a_saved_model(options: dict[str, Any], tmp_path: Path, device: str) -> None:
    make("gpt2").save_pretrained(tmp_path)
    ids = torch.randint(M, (200,))
    expected, found = (sb.rank(tmp_path, data=ids, device=where, **options) for where in ("cpu", device))
    assert found.rank.value == expected.rank.value
    assert found.spectrum.values[:5] == pytest.approx(expected.spectrum.values[:5], rel=1e-3)
