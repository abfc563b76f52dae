"""Every row of the matrix is the model's own prediction from exactly the tokens of its window before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.hugging_face import tokenizer as tokens
from softmax_bottleneck.hugging_face.loading import quiet
from softmax_bottleneck.language_models import reading as states
from softmax_bottleneck.language_models.reading import Batch, Reading, States
from softmax_bottleneck.sources import open_source

from .conftest import Open, Save


def encode(batch: Batch) -> torch.Tensor:
    """Stand in for a body: the running sum of ids, and how many there were."""
    mask = (torch.arange(len(batch.inputs))[:, None] < batch.lengths).long()
    return torch.stack([(batch.inputs * mask).cumsum(0), mask.cumsum(0)], 2).double()


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.integers(1, 40), st.integers(1, 4), st.booleans())
def test_each_token_is_predicted_once_from_its_window(
    length: int, stride: int, more: int, contexts: int, batch_size: int, in_memory: bool
) -> None:
    """Row r predicts token ``least + r`` from all tokens of its window before it, in any order of rows."""
    ids, stride = np.arange(length + more) ** 2, min(stride, length)
    least = length - stride + 1
    places, starts = np.arange(least, len(ids)), np.arange(0, len(ids) - least, stride)
    windows = Reading(ids, places, starts, least=least, at_once=batch_size).first(contexts)
    contexts = min(contexts, len(ids) - least)
    read: list[int] = []

    def counted(batch: Batch, state: None) -> tuple[torch.Tensor, None]:
        read.append(batch.inputs.shape[1])
        assert len(batch.inputs) <= length
        return encode(batch), None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "LARGEST_IN_MEMORY", 1 << 30 if in_memory else 0)
        hidden = States(counted, windows, size=2, dtype=torch.float64)
    expected = []
    for row in range(contexts):
        context = ids[row // stride * stride : least + row]
        assert length - stride < len(context) <= length
        expected.append([float(context.sum()), float(len(context))])
    later = hidden[contexts // 2 : contexts].clone()
    np.testing.assert_array_equal(later.numpy(), expected[contexts // 2 :])
    blocks = [hidden[row : min(row + 4, contexts)] for row in range(0, contexts, 4)]
    np.testing.assert_array_equal(torch.cat(blocks).numpy(), expected)
    assert sum(read) == -(-contexts // stride)


def check_rows(source: Any, folder: Path, text: Path, prefix: list[int], rows: tuple[int, ...]) -> None:
    """Compare with the model itself, one context at a time, without batches, padding or a mask; the stride is 6."""
    ours = np.concatenate([block.log_probs for block in source.blocks(source.ranges(7))])
    with quiet() as transformers:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids, least = torch.tensor([int(word[1:]) for word in text.read_text().split()]), 11 - len(prefix)
    for row in rows:
        context = torch.cat([torch.tensor(prefix, dtype=torch.int64), ids[row // 6 * 6 : least + row]])
        with torch.no_grad():
            logits = model(input_ids=context.unsqueeze(0), use_cache=False).logits[0, -1]
        assert_allclose(ours[row], torch.log_softmax(logits.double(), -1).numpy(), atol=2e-5)
        assert source.targets[row] == ids[least + row]


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "opt", "mamba"])
def test_rows_are_the_models_own(save: Save, open_model: Open, text: Path, name: str) -> None:
    folder = save(name)
    check_rows(open_model(folder, stride=6, batch_size=4, contexts=60), folder, text, [], (0, 5, 6, 7, 31, 59))


def begin(folder: Path, token: str = "w9", **settings: Any) -> None:
    """Let a tokenizer begin its texts with a token, as Gemma's does; or only say so beside it."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if not settings:
        number = tokenizer.token_to_id(token)
        tokenizer.post_processor = TemplateProcessing(single=f"{token} $A", special_tokens=[(token, number)])
        tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "bos", "prefix"),
    [
        ({}, "auto", ["w9"]),
        ({}, "on", ["w9"]),
        ({}, "off", []),
        ({"bos_token": "w9"}, "auto", []),
        ({"bos_token": {"content": "w9"}, "add_bos_token": True}, "auto", ["w9"]),
        ({"bos_token": "w9", "add_bos_token": False}, "on", ["w9"]),
    ],
)
def test_windows_begin_with_the_tokenizers_first_token(
    settings: dict[str, Any], bos: str, prefix: list[str], save: Save, open_model: Open, text: Path, tmp_path: Path
) -> None:
    """Rows recomputed one context at a time, the token before each."""
    folder = save("opt")
    begin(folder, **settings)
    source = open_model(folder, stride=6, batch_size=3, contexts=60, bos=bos)
    assert source.description["prefix"] == prefix
    assert source.description["context_length"] == 16
    assert [len(window) for window in source.windows()][:2] == [16, 16]
    check_rows(source, folder, text, [9] * len(prefix), (0, 5, 6, 59))
    other = open_model(folder, stride=6, contexts=60, bos="off")
    assert (source.identity == other.identity) == (not prefix)


@pytest.mark.parametrize("token", ["<s>", "w9"])
def test_texts_that_begin_with_the_token_lose_it(token: str, save: Save, text: Path, tmp_path: Path) -> None:
    """Each of several: a chat template writes it before every text."""
    folder, lines = save("opt"), [text.read_text()] * 9
    whole = json.loads((folder / "tokenizer.json").read_text())
    whole["added_tokens"].append({**whole["added_tokens"][0], "id": 9, "content": "<s>"})
    if token == "<s>":
        whole["model"]["vocab"]["<s>"] = whole["model"]["vocab"].pop("w9")
        (folder / "tokenizer.json").write_text(json.dumps(whole))
    begin(folder, token)
    plain, space = open_source(folder, data=lines), "" if token == "<s>" else " "
    for data in ([f"{token} {line}" for line in lines], [f"{token}{space}{line}" for line in lines]):
        assert open_source(folder, data=data).identity["tokens"] == plain.identity["tokens"]
    assert all((window[0], int((window == 9).sum())) == (9, 1) for window in plain.windows()) or token == "w9"
    kept = open_source(folder, data=[f"{token} {line}" for line in lines], bos="off")
    assert kept.shape[0] - open_source(folder, data=lines, bos="off").shape[0] == 9


SCHEMES: dict[str, Any] = {
    "as GPT-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "as Llama 2": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "as T5": pre_tokenizers.Metaspace(prepend_scheme="always"),
    "characters": pre_tokenizers.Sequence([]),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_long_text_is_encoded_in_pieces(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the ids of the whole, wherever spaces belong."""
    generator = np.random.default_rng(0)
    words = ["".join(generator.choice([*"abé漢12,."], n)) for n in generator.integers(1, 9, 200)]
    spaces = [" "] * 9 + ["  ", "\n", "\n\n", "\t", " \n"]
    text = "".join(f"{generator.choice(words)}{generator.choice(spaces)}" for _ in range(600))
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = SCHEMES[scheme]
    tokenizer.train_from_iterator([text], BpeTrainer(vocab_size=400, show_progress=False))
    monkeypatch.setattr(tokens, "PIECE", 300)
    wrapped = tokens.wrap_tokenizer(tokenizer)
    pieces = [*wrapped._pieces(text)]
    assert len(pieces) > 5
    assert max(map(len, pieces)) < 1200
    found, *_ = wrapped.encode(text, bos="off", vocab_size=400)
    assert found.tolist() == tokenizer.encode(text, add_special_tokens=False).ids


def test_nothing_to_begin_windows_with(save: Save, open_model: Open, tmp_path: Path) -> None:
    folder = save("opt")
    with pytest.raises(SourceError, match="names no token that begins a text: leave out bos='on'"):
        open_model(folder, bos="on")
    for token in (None, [], {}, {"content": [1]}, 5, "w999"):
        begin(folder, add_bos_token=True, bos_token=token)
        assert open_model(folder).description["prefix"] == []
    begin(folder, add_bos_token=True)
    (folder / "special_tokens_map.json").write_text('{"bos_token": {"content": "w9"}}')
    assert open_model(folder).description["prefix"] == ["w9"]
    begin(folder)
    with pytest.raises(ConfigurationError, match=r"context_length 1 leaves no room .* 1 special tokens .*: give a"):
        open_model(folder, context_length=1, stride=1)
    with pytest.raises(ConfigurationError, match="unknown bos 'yes'; it is one of auto, on, off"):
        open_model(folder, bos="yes")
    whole = open_model(folder, context_length=16, stride=16)
    assert (whole.description["context_length"], whole.description["stride"]) == (16, 15)  # no overlap
    with pytest.raises(ConfigurationError, match="stride must be between 1 and context_length, not 17 with 16"):
        open_model(folder, context_length=16, stride=17)


def test_a_tokenizer_that_knows_nothing_but_the_text(save: Save, open_model: Open, tmp_path: Path) -> None:
    """It has no token for unknown words, and begins its texts with one of its own."""
    folder = save("opt")
    tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(60)}))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    begin(folder)
    assert open_model(folder).description["prefix"] == ["w9"]
    other = tmp_path / "other.txt"
    other.write_text("w1 w2 hello " * 20)
    with pytest.raises(SourceError, match=r"the tokenizer of .*OPT\d+ cannot encode the text: .*UNK"):
        open_source(folder, data=str(other))
