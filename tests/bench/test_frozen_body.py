"""The study of output layers on a frozen body, on a model of seconds."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch.nn import functional as F

from softmax_bottleneck.bench import frozen_body as study
from softmax_bottleneck.bench import study_frozen_body

TOKENS, LENGTH, SIZE = 41, 8, 8


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repeatable: None) -> Any:
    """A random model in the place of the pretrained one, and a study of 256 contexts."""
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path / "model"
    sizes = {"hidden_size": SIZE, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    plain = LlamaForCausalLM(LlamaConfig(vocab_size=TOKENS, initializer_range=0.5, **sizes)).eval()
    plain.save_pretrained(folder)
    vocabulary = {f"w{number}": number for number in range(TOKENS - 1)} | {"<unk>": TOKENS - 1}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    monkeypatch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(tmp_path / "cache"))
    changes = {"MODEL": str(folder), "TRAIN": 256, "SCORED": 64, "RANKED": 48, "LENGTH": LENGTH, "BATCH": 16}
    for name, value in {**changes, "BLOCK": 16, "RATES": (0.003, 0.03), "SEEDS": (0, 1)}.items():
        monkeypatch.setattr(study, name, value)
    return plain


def test_heads_start_at_the_model_and_learn(
    model: Any, corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ("softmax", "softmax-mlp", "mos-4")
    monkeypatch.setattr(study, "HEADS", {name: study.HEADS[name] for name in chosen})
    out = tmp_path / "out"
    assert study_frozen_body(out, data=str(corpus_folder), minutes=0) == 9
    assert study_frozen_body(out, data=str(corpus_folder)) == 0
    runs = {file.stem: json.loads(file.read_text()) for file in out.glob("*.json")}
    words = (corpus_folder / "valid.txt").read_text().split()
    ids = torch.tensor([int(word.removeprefix("w")) for word in words])[: 64 + 1]
    windows = ids[:-1].view(-1, LENGTH)  # the token after a window is the target of its last state
    own = F.cross_entropy(model(windows).logits.flatten(0, 1), ids[1:])
    for head in chosen:
        best = runs[f"{head}-best-seed1"]
        assert math.log(best["start_perplexity"]) == pytest.approx(own.item(), rel=5e-3)  # products in bfloat16
        searched = {rate: runs[f"{head}-{rate:g}-seed0"]["perplexity"] for rate in study.RATES}
        assert best["rate"] == min(searched, key=searched.__getitem__)
        assert best["perplexity"] < best["start_perplexity"]
        assert best["float32_perplexity"] == pytest.approx(best["perplexity"], rel=5e-3)
        assert [step for step, _ in best["course"]] == [4, 8, 16]
        assert math.exp(sum(best["blocks"]) / 4) == pytest.approx(best["perplexity"])
        assert (out / "spectra" / f"{head}.npz").exists()
    added = {head: runs[f"{head}-best-seed1"]["added_parameters"] for head in chosen}
    assert added["softmax"] == 0
    assert added["mos-4"] == 4 * SIZE * (SIZE + 2)
    assert abs(added["softmax-mlp"] - added["mos-4"]) <= SIZE
    assert {runs[f"{head}-best-seed1"]["rank"] for head in chosen[:2]} == {SIZE + 1}
    assert runs["mos-4-best-seed1"]["rank"] > SIZE + 1
    removed = out / "mos-4-best-seed1.json"
    removed.unlink()
    assert study_frozen_body(out, data=str(corpus_folder)) == 0
    assert json.loads(removed.read_text())["course"] == runs["mos-4-best-seed1"]["course"]


def test_every_head_starts_near_the_model(model: Any) -> None:
    layer, hidden = model.lm_head, torch.randn(20, SIZE)
    states = study.States(hidden, torch.arange(20))
    own = F.cross_entropy(layer(hidden), states.targets).item()
    for name in study.HEADS:
        loss = float(study._losses(study._layer(name, layer, 0), states, torch.float32).mean())
        assert (loss == pytest.approx(own, rel=1e-5)) == (name != "sigsoftmax"), name


def test_the_scored_weights_are_the_polynomial_decay_average(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "WARMUP", 1)
    train = study.States(torch.randn(48, SIZE), torch.randint(TOKENS, (48,)))

    def average(contexts: int) -> torch.Tensor:
        """Return the average after so many contexts, in an order that does not depend on the number."""
        monkeypatch.setattr(torch, "randperm", lambda size, **_: torch.arange(size))
        part = study.States(train.hidden[:contexts], train.targets[:contexts])
        return study._train(study._layer("softmax", model.lm_head, 0), part, part, rate=0.01, seed=0)[0].weight

    first, second, third = (average(16 * steps) for steps in (1, 2, 3))
    # w̄_t = (1 − c) w̄_{t−1} + c w_t with c = (η + 1) / (η + t), so Adam's weights follow from two averages.
    share = [(study.DECAY + 1) / (study.DECAY + step) for step in (1, 2, 3)]
    assert share[0] == 1
    weights = [first, (second - (1 - share[1]) * first) / share[1], (third - (1 - share[2]) * second) / share[2]]
    steps = [(after - before).abs().max().item() for before, after in pairwise([model.lm_head.weight, *weights])]
    assert steps == pytest.approx([0.01] * 3, rel=0.2)  # Adam's first steps are as large as its learning rate
