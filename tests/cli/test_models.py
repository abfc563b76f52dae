"""Commands on a Hugging Face model, and what they say of it, beside the golden records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from softmax_bottleneck.hugging_face.loading import quiet

from .conftest import Bottleneck

WINDOWS = ("--data", "text.txt", "--context-length", "12", "--stride", "6")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models, ``gpt`` (padded) and ``llama``, a tokenizer in each, and a text."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(40)}, unk_token="w0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    with quiet() as transformers, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gpt = transformers.GPT2Config(
            vocab_size=44, n_embd=6, n_layer=1, n_head=2, n_positions=32, initializer_range=1.0
        )
        llama = transformers.LlamaConfig(
            vocab_size=40, hidden_size=6, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
        )
        models = {"gpt": transformers.GPT2LMHeadModel(gpt), "llama": transformers.LlamaForCausalLM(llama)}
        for name, model in models.items():
            model.save_pretrained(folder / name)
            transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder / name)
    drawn = np.random.default_rng(0).integers(0, 40, 120)
    (folder / "text.txt").write_text(" ".join(f"w{word}" for word in drawn))
    return folder


@pytest.fixture
def here(saved: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in the folder of the models."""
    monkeypatch.chdir(saved)
    return saved


def test_padding_is_shown_in_pipes(here: Path, bottleneck: Bottleneck) -> None:
    """The values are in the golden records, where the model has padding too."""
    shown = " ".join(bottleneck("rank", "gpt", *WINDOWS, "--details").stdout.split())
    assert "44 tokens" in shown
    assert "40 tokens" in shown
    assert "44 rows, 40 tokens in the tokenizer" in shown
    _, *rows = bottleneck("kld", "gpt", *WINDOWS, "--format", "csv").stdout.splitlines()
    assert [row.rpartition(",")[0].split(",")[0].strip('"') for row in rows] == ["gpt", "gpt"]
    for line, sentence in (
        ("--context-length 33", "more than the 32 tokens the model can read"),
        ("--context-length 12 --stride 13", "--stride must be between 1 and --context-length"),
        ("--context-length 12 --device cpu --bos on", "leave out --bos on"),
    ):
        done = bottleneck("rank", "gpt", "--data", "text.txt", *line.split())
        assert (done.exit_code, sentence in done.stderr) == (1, True), done.stderr
    found = " ".join(bottleneck("argmaxable", "gpt").stdout.split())
    assert "ids 40 to 43 are rows of the output layer beyond" in found


def test_dump_compare_and_kld(here: Path, bottleneck: Bottleneck, tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    done = bottleneck("dump", "gpt", *WINDOWS, "--vocab", "tokenizer", "--out", store)
    assert done.stdout == f"{store}: 113 contexts × 40 tokens, float32\n", done.stderr
    compared = bottleneck("compare", store, "llama", *WINDOWS, "--examples", "2")
    assert compared.exit_code == 0, compared.stderr
    assert "w" in compared.stdout.partition("llama is better")[2].split("▸")[1]
    assert max(map(len, compared.stdout.splitlines())) <= 80
    padded = bottleneck("compare", "gpt", "llama", store, *WINDOWS, "--json", "-")
    first, second = json.loads(padded.stdout)["results"]
    assert first["notes"][0].startswith(
        "cut to the first 40 tokens, which both have, and renormalized; the others hold"
    )
    assert second["statistics"]["kl"]["value"] == pytest.approx(0, abs=1e-12)
    assert second["statistics"]["same_top"]["value"] == 1
    one = json.loads(bottleneck("kld", "gpt", *WINDOWS, "--vocab", "tokenizer", "--json", "-").stdout)
    other = json.loads(bottleneck("kld", store, "--json", "-").stdout)
    assert one["kld"] == pytest.approx(other["kld"], rel=1e-6)
