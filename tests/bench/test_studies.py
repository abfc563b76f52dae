"""The studies of notebooks/studies, each at a size of seconds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import dirichlet_pass
import frozen_body
import pandas as pd
import pytest
import spam
import torch
import transformer
from matplotlib.figure import Figure
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from softmax_bottleneck.figures import studies
from study import main

TOKENS, LENGTH, SIZE = 41, 8, 8


def _small(monkeypatch: pytest.MonkeyPatch, module: Any, **sizes: Any) -> None:
    for name, value in sizes.items():
        monkeypatch.setattr(module, name, value)


def _results(out: Path) -> dict[str, Any]:
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in out.glob("*.json")}


def test_transformers_have_equal_parameters_and_their_study_continues(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [
        transformer.TransformerCell(300, 16, head, regime, 0)
        for regime in ("parameters", "time")
        for head in ("softmax", "mos-2")
    ]
    sizes = {"RATES": {16: 4e-3}, "STEPS": 2, "LENGTH": 16, "CONTEXTS": 64, "TEST_BYTES": 700}
    _small(monkeypatch, transformer, cells=lambda: iter(cells), **sizes)
    command = ["--out", str(tmp_path), "--data", str(corpus_folder)]
    main(transformer.study_transformers, "", [*command, "--minutes", "0"])
    assert capsys.readouterr().out == f"{tmp_path}: 4 runs are missing\n"
    main(transformer.study_transformers, "", command)
    assert capsys.readouterr().out == f"{tmp_path}: done\n"
    found = _results(tmp_path)
    softmax, mos = (found[f"M300-d16-{head}-parameters-seed0"] for head in ("softmax", "mos-2"))
    assert abs(mos["parameters"] - softmax["parameters"]) <= 3 * transformer.LAYERS * 16
    assert mos["feed_forward"] < softmax["feed_forward"] == 64
    assert softmax["rank"] <= 17
    ratio = softmax["seconds_a_step"] / mos["seconds_a_step"]
    assert found["M300-d16-mos-2-time-seed0"]["steps"] == max(1, round(2 * ratio))
    before = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    main(transformer.study_transformers, "", command)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before
    # Bits per byte count every token but the first.
    model, _ = transformer._model(cells[1])
    ids = torch.randint(300, (40,), generator=torch.Generator().manual_seed(0))
    windows = [ids[start : start + 17] for start in range(0, 39, 16)]
    with torch.no_grad():
        losses = [F.nll_loss(model(part[None]).logits[0, :-1], part[1:], reduction="sum") for part in windows]
    assert transformer._nats(model, ids) == pytest.approx(sum(map(float, losses)), rel=1e-5)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repeatable: None) -> Any:
    """A random model in the place of the pretrained one, and a study of 256 contexts and three heads."""
    folder = tmp_path / "model"
    sizes = {"hidden_size": SIZE, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    plain = LlamaForCausalLM(LlamaConfig(vocab_size=TOKENS, initializer_range=0.5, **sizes)).eval()
    plain.save_pretrained(folder)
    vocabulary = {f"w{number}": number for number in range(TOKENS - 1)} | {"<unk>": TOKENS - 1}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    monkeypatch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(tmp_path / "cache"))
    small = {"TRAIN": 256, "SCORED": 64, "RANKED": 48, "LENGTH": LENGTH, "BATCH": 16, "BLOCK": 16}
    heads = {name: frozen_body.HEADS[name] for name in ("softmax", "softmax-mlp", "mos-4")}
    _small(monkeypatch, frozen_body, MODEL=str(folder), HEADS=heads, RATES=(0.003, 0.03), SEEDS=(0, 1), **small)
    return plain


def test_heads_on_a_frozen_body_start_at_the_model_and_learn(model: Any, corpus_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    main(frozen_body.study_frozen_body, "", ["--out", str(out), "--data", str(corpus_folder)])
    runs = _results(out)
    words = (corpus_folder / "valid.txt").read_text().split()
    ids = torch.tensor([int(word.removeprefix("w")) for word in words])[: 64 + 1]
    windows = ids[:-1].view(-1, LENGTH)  # the token after a window is the target of its last state
    own = F.cross_entropy(model(windows).logits.flatten(0, 1), ids[1:])
    for head in frozen_body.HEADS:
        best = runs[f"{head}-best-seed1"]
        assert math.log(best["start_perplexity"]) == pytest.approx(own.item(), rel=5e-3)  # products in bfloat16
        searched = {rate: runs[f"{head}-{rate:g}-seed0"]["perplexity"] for rate in frozen_body.RATES}
        assert best["rate"] == min(searched, key=searched.__getitem__)
        assert best["perplexity"] < best["start_perplexity"]
        assert [step for step, _ in best["course"]] == [4, 8, 16]
        assert math.exp(sum(best["blocks"]) / 4) == pytest.approx(best["perplexity"])
        assert (out / "spectra" / f"{head}.npz").exists()
    added = {head: runs[f"{head}-best-seed1"]["added_parameters"] for head in frozen_body.HEADS}
    assert added["softmax"] == 0
    assert abs(added["softmax-mlp"] - added["mos-4"]) <= SIZE
    assert {runs[f"{head}-best-seed1"]["rank"] for head in ("softmax", "softmax-mlp")} == {SIZE + 1}
    assert runs["mos-4-best-seed1"]["rank"] > SIZE + 1


def test_a_pass_over_distributions_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    _small(monkeypatch, dirichlet_pass, CONTEXTS=50, VOCAB=20, DIM=2, REPEATS=1)
    found = dirichlet_pass.profile()
    assert found["passes"].keys() == {"softmax", "mos", "lms-plif"}
    assert found["over_softmax"]["mos"] == pytest.approx(found["passes"]["mos"] / found["passes"]["softmax"])
    assert found["over_bare"]["softmax"] == pytest.approx(found["passes"]["softmax"] / found["bare"])


def test_spam_is_learned_from_enough_texts_and_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty symbols are learned, also under outputs that are never a target, and 1,000 are not."""
    sizes = {"VOCABULARIES": (20, 1_000), "SIZES": (16,), "SYMBOLS": 20, "STEPS": 120}
    _small(monkeypatch, spam, HEADS={"mos": spam.HEADS["mos"]}, **sizes)
    cases = spam.study_spam()["cases"]
    assert len(cases) == 3
    for case in cases.values():
        assert case["chance"] == pytest.approx(math.log(case["symbols"]))
        assert (case["accuracy"] > 0.95) == (case["nats"] < 0.3) == (case["symbols"] == 20), case
    data = pd.DataFrame([*cases.values()]).assign(share=lambda rows: rows["nats"] / rows["chance"])
    studies.spam(ax := Figure().add_subplot(), data.sort_values("vocab"))
    drawn, entries = ax.lines[:2], ax.lines[2:]  # and those of the legend alone
    assert [line.get_xdata().tolist() for line in drawn] == [[20, 1_000]] * 2
    for lines in (drawn, entries):
        assert [line.get_linestyle() for line in lines] == ["-", "--"]
    assert [line.get_label() for line in entries] == ["texts of all M symbols", "texts of 20 symbols"]
