"""Files that llama.cpp wrote (tests/fixtures/llama.cpp) against transformers, and against what llama.cpp printed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from softmax_bottleneck import compare, head, identify, rank
from softmax_bottleneck.errors import SourceError
from softmax_bottleneck.measure.identification import NOT, SAME
from softmax_bottleneck.sources import open_source

from .conftest import TOKENS, Save

FILES = Path(__file__).parents[1] / "fixtures" / "llama.cpp"
BASE, MODEL, Q5_0 = (str(FILES / name) for name in ("base.kld", "model.gguf", "q5_0.gguf"))
ROUNDOFF = 2e-5
"""Largest roundoff of llama.cpp's float32 logits, which are up to 40 in size."""


def test_a_file_holds_what_transformers_computes() -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(FILES, gguf_file="model.gguf").double()
    tokens = np.fromfile(BASE, "<i4", 8 * 32, offset=20).reshape(8, 32).astype(np.int64)
    evaluated = torch.from_numpy(tokens).clone()
    evaluated[:, 0] = 0  # <s>, which the model puts before a text
    with torch.no_grad():
        log_p = model(evaluated).logits[:, 16:31].log_softmax(-1).reshape(120, 151).numpy()
    source = open_source(BASE)
    (part,) = source.parts()
    assert np.array_equal(source.targets, tokens[:, 17:].ravel())
    assert (np.abs(part.log_probs - log_p) <= part.error + ROUNDOFF)[part.seen].all()
    assert (log_p <= part.log_probs + part.error + ROUNDOFF)[~part.seen].all()
    assert 0.01 < 1 - part.seen.mean() < 0.1
    found = compare(BASE, MODEL).statistics
    nll = -log_p[np.arange(120), source.targets].mean()
    assert found["perplexity"].value == pytest.approx(math.exp(nll), rel=1e-5)
    assert found["kl"].value - found["kl"].roundoff <= 1e-9
    assert found["kl"].value < 1e-6
    assert compare(BASE, MODEL, bos="off").statistics["kl"].value > 1e-3


def test_files_of_llama_cpp_are_told_by_their_content(tmp_path: Path) -> None:
    """llama.cpp names no suffix, and Ollama's files have none."""
    for name, file in (("base.bin", BASE), ("sha256-5f", MODEL)):
        (tmp_path / name).write_bytes(Path(file).read_bytes())
    base, model = str(tmp_path / "base.bin"), str(tmp_path / "sha256-5f")
    assert compare(base, model).statistics == compare(BASE, MODEL).statistics
    assert rank(model, data=base).to_dict()["rank"] == rank(MODEL, data=BASE).to_dict()["rank"]
    assert head(model).to_dict()["weight"] == head(MODEL).to_dict()["weight"]


def test_statistics_are_those_that_llama_cpp_prints() -> None:
    printed = (FILES / "statistics.txt").read_text(encoding="utf-8")
    found = compare(BASE, Q5_0, like_llama_cpp=True)
    assert "does not show the probability of 2 of 120 tokens that follow" in " ".join(found.notes)
    labels = {"Mean PPL(Q) ": "perplexity", "Mean PPL(base) ": "reference_perplexity", "Mean    KLD": "kl"}
    labels |= {"Mean ln(PPL(Q)/PPL(base))": "log_ratio", "Maximum KLD": "kl_max", "Median  KLD": "kl_50"}
    labels |= {f"{share}%   KLD": f"kl_{float(share):g}" for share in ("90.0", "95.0", "99.0", "99.9")}
    labels |= {f"{share}%   Δp": f"delta_p_{float(share):g}" for share in (" 1.0", " 5.0", "95.0", "99.0")}
    labels |= {"Mean    Δp": "delta_p", "Median  Δp": "delta_p_50", "RMS Δp": "delta_p_rms", "Same top p": "same_top"}
    for label, name in labels.items():
        line = next(line for line in printed.splitlines() if line.startswith(label))
        scale = 100 if line.endswith("%") else 1
        estimate = found.statistics[name]
        numbers = re.findall(r"-?\d+\.\d+", line.partition(":")[2])
        for number, value in zip(numbers, (estimate.value, estimate.standard_error), strict=False):
            half = 0.5 * 10.0 ** -len(number.partition(".")[2])
            assert scale * value == pytest.approx(float(number), abs=half, rel=1e-5), label  # float32 in llama.cpp


def test_a_file_tells_the_hidden_size_and_the_model() -> None:
    assert rank(BASE).verdict.startswith("rank ≥ 32, proved from a block of 109 × 109; σ falls by")
    assert [each.verdict for each in identify(BASE, [MODEL, Q5_0])] == [SAME, NOT]


def test_tokens_that_the_model_lacks(save: Save, write_kld: Callable[..., Path]) -> None:
    file = write_kld(np.zeros((2, TOKENS + 10)), np.full((1, 6), TOKENS + 5))
    with pytest.raises(SourceError, match="token ids must lie between 0 and"):
        compare(str(file), str(save("llama")))


def test_a_model_without_a_tokenizer(save: Save, write_kld: Callable[..., Path]) -> None:
    """Whether a token begins every text has to be said then."""
    model, ids = save("llama"), np.arange(16).reshape(1, 16)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model).double()
    with torch.no_grad():
        logits = loaded(torch.from_numpy(ids)).logits[0, 8:15].numpy()
    file = str(write_kld(logits, ids))
    for tokenizer in model.glob("tokenizer*"):
        tokenizer.unlink()
    for handed in (str(model), loaded):
        with pytest.raises(SourceError, match=r"says whether a token begins every text: .* give bos='off'"):
            compare(file, handed)
        assert compare(file, handed, bos="off").statistics["kl"].value < 1e-6
