"""A Hugging Face model beside llama.cpp's file of log-probabilities reads the file's tokens, as llama.cpp does."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from softmax_bottleneck import compare
from softmax_bottleneck.errors import SourceError

from .conftest import TOKENS, Save


@pytest.mark.parametrize("first", [None, 9])
def test_a_model_on_the_tokens_of_a_kld_file(first: int | None, save: Save, write_kld: Callable[..., Path]) -> None:
    folder = save("llama")
    if first is not None:
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        changed = settings | {"add_bos_token": True, "bos_token": f"w{first}"}
        (folder / "tokenizer_config.json").write_text(json.dumps(changed))
    tokens = np.random.default_rng(1).integers(TOKENS - 1, size=(3, 10))
    evaluated = torch.from_numpy(tokens).clone()
    if first is not None:
        evaluated[:, 0] = first
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        logits = model(evaluated).logits[:, 5:9].double().numpy()  # n_ctx / 2 to n_ctx − 2
    found = compare(str(write_kld(logits.reshape(12, -1), tokens)), str(folder)).statistics
    log_p = logits - np.logaddexp.reduce(logits, 2, keepdims=True)
    nll = -np.take_along_axis(log_p, tokens[:, 6:, None], 2).mean()
    assert found["perplexity"].value == pytest.approx(math.exp(nll), rel=1e-5)
    assert found["kl"].value - found["kl"].roundoff <= 1e-9
    assert found["kl"].value < 1e-3


def test_tokens_that_the_model_lacks(save: Save, write_kld: Callable[..., Path]) -> None:
    file = write_kld(np.zeros((2, TOKENS + 10)), np.full((1, 6), TOKENS + 5))
    with pytest.raises(SourceError, match="token ids must lie between 0 and"):
        compare(str(file), str(save("llama")))
