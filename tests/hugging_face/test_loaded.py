"""Loaded models of transformers: the numbers of their folders, and nothing of theirs changes."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import softmax_bottleneck as sb
from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.integrations.transformers import with_head

from .conftest import TOKENS as M
from .conftest import Save


@pytest.fixture
def folder(save: Save) -> Path:
    """A GPT-2 with a tokenizer."""
    return save("gpt2", n_layer=2, n_positions=32, attn_pdrop=0.5)


@pytest.fixture
def loaded(folder: Path) -> Any:
    """The model, in training mode as in the middle of a training, with one part frozen in evaluation mode."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).train()
    model.transformer.drop.eval()
    return model


def test_a_loaded_model_is_measured_as_its_folder(folder: Path, loaded: Any, text: Path) -> None:
    modes, weights = _modes(loaded), {name: each.clone() for name, each in loaded.state_dict().items()}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = {"data": text.read_text(), "tokenizer": tokenizer}
    ours, theirs = sb.rank(loaded, **given), sb.rank(folder, data=str(text))
    assert ours.spectrum.method == theirs.spectrum.method == "factored"
    np.testing.assert_array_equal(ours.spectrum.values, theirs.spectrum.values)
    assert (ours.rank, ours.bound) == (theirs.rank, theirs.bound)
    assert sb.kld(loaded, **given).kld == sb.kld(folder, data=str(text)).kld
    assert _modes(loaded) == modes
    assert all(torch.equal(weights[name], each) for name, each in loaded.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in loaded.parameters())


def test_threads_that_measure_one_model(loaded: Any) -> None:
    ids, modes = torch.arange(240).reshape(60, 4) % M, _modes(loaded)
    expected = sb.kld(loaded, data=ids).kld
    with ThreadPoolExecutor(4) as threads:
        assert {*threads.map(lambda _: sb.kld(loaded, data=ids).kld, range(12))} == {expected}
    assert _modes(loaded) == modes
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in loaded.modules())


def _modes(module: nn.Module) -> list[bool]:
    return [part.training for part in module.modules()]


def test_tokens_that_only_the_input_has() -> None:
    """400 embeddings, 300 rows of output."""
    config = transformers.GPT2Config(vocab_size=80, n_embd=12, n_layer=1, n_head=2, n_positions=32)
    model = transformers.GPT2LMHeadModel(config)
    model.config.tie_word_embeddings, model.lm_head = False, nn.Linear(12, M, bias=False)
    assert sb.rank(model, data=np.arange(80)).spectrum.shape == (63, M)
    assert sb.open(model, data=np.arange(M)).targets is not None
    with pytest.raises(SourceError, match="0 and 79, the last token with an input embedding, not 1 to 80"):
        sb.rank(model, data=np.arange(1, 81))
    model.lm_head = nn.Linear(12, 90, bias=False)
    assert sb.rank(model, data=np.arange(80)).spectrum.shape == (63, 90)


def test_a_model_without_logits(loaded: Any) -> None:
    """A fused loss: the output layer is bypassed, or its logits are not returned."""
    CausalLMOutput = transformers.modeling_outputs.CausalLMOutput
    forward = type(loaded).forward
    loaded.forward = lambda **given: CausalLMOutput(logits=None, loss=forward(loaded, **given).logits.sum())
    with pytest.raises(SourceError, match=r"GPT2LMHeadModel has no logits: measure a function .* W\.T, data=batches"):
        sb.rank(loaded, data=np.arange(M))
    body, W = loaded.transformer, loaded.lm_head.weight.detach()
    loaded.forward = lambda input_ids, **given: CausalLMOutput(logits=body(input_ids).last_hidden_state @ W.T)
    with pytest.raises(SourceError, match="measure it through a function"):
        sb.rank(loaded, data=np.arange(M))
    through = sb.rank(lambda ids: (body.eval()(torch.as_tensor(ids))[0] @ W.T).detach(), data=[np.arange(30)[None]])
    assert through.rank.value <= 13


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"data": "a whole text"}, "a text needs the model's tokenizer"),
        ({"data": [0, M]}, f"token ids must lie between 0 and {M - 1}"),
        ({"data": [[1], [2]]}, "no token is predicted: give texts of at least two tokens"),
        ({"data": "a b c", "tokenizer": 5}, "a int is not a tokenizer"),
    ],
)
def test_what_a_loaded_model_cannot_read(loaded: Any, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        sb.rank(loaded, **arguments)


def test_a_loaded_model_keeps_its_type(loaded: Any) -> None:
    ids = np.arange(M)
    with pytest.raises(ConfigurationError, match=r"the model is in float32, .*model\.to\(torch\.bfloat16\)"):
        sb.rank(loaded, data=ids, dtype="bfloat16")
    half = sb.rank(loaded.to(torch.bfloat16), data=ids)
    assert (half.source["body_dtype"], half.eps.dtype) == ("bfloat16", "float32")


def test_a_failure_for_its_length_names_the_option(loaded: Any) -> None:
    embeddings = loaded.transformer.wte.forward

    def short(ids: Any) -> Any:
        if ids.shape[1] > 20:
            raise IndexError("index out of range in self")
        return embeddings(ids)

    loaded.transformer.wte.forward = short
    with pytest.raises(SourceError, match=r"GPT2LMHeadModel cannot read 32 tokens of text: .*set another context_leng"):
        sb.rank(loaded, data=np.arange(M))


class Quantized(torch.Tensor):
    """A weight in whole numbers and one scale, as packages for quantization make them: few operations know it."""

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, scale: float) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=torch.float32)

    def __init__(self, numbers: torch.Tensor, scale: float) -> None:
        self.numbers, self.scale = numbers, scale

    def dequantize(self) -> torch.Tensor:
        return self.numbers * self.scale

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].numbers, args[0].scale)
        if func is torch.ops.aten.t.default:
            return args[0].dequantize().T
        raise NotImplementedError(f"{func} of a quantized tensor")


class Packed(Quantized):
    """One that does not tell its numbers, like one that is spread over processes."""

    def dequantize(self) -> torch.Tensor:
        raise NotImplementedError


def test_a_quantized_output_layer_is_measured_as_the_numbers_it_means(loaded: Any) -> None:
    ids, hidden = np.arange(M), torch.randn(90, loaded.config.n_embd)
    numbers = (100 * loaded.lm_head.weight.detach()).round()
    plain, quantized, packed = (copy.deepcopy(loaded) for _ in range(3))
    plain.lm_head.weight = nn.Parameter(numbers * 0.01)
    for model, kind in ((quantized, Quantized), (packed, Packed)):
        model.config.tie_word_embeddings = False
        model.lm_head.weight = nn.Parameter(kind(numbers, 0.01), requires_grad=False)
    quantized.transformer.wte.weight = plain.transformer.wte.weight
    plain.transformer.wte.weight = nn.Parameter(plain.transformer.wte.weight.detach())
    for measure in (sb.rank, sb.kld, sb.gradient):
        assert str(measure(quantized, data=ids)) == str(measure(plain, data=ids))
    assert sb.head(quantized).to_dict()["raw"] == sb.head(plain).to_dict()["raw"]
    layers = plain.lm_head, quantized.lm_head
    assert len({str(sb.rank(layer, hidden=hidden).rank) for layer in layers}) == 1
    for model, options in ((packed, {"data": ids}), (packed.lm_head, {"hidden": hidden})):
        with pytest.raises(SourceError, match=r"W of .* is a Packed of torch\.float32, .*: put a plain tensor"):
            sb.rank(model, **options)
    with pytest.raises(ConfigurationError, match="the weight of lm_head is a Quantized, not a plain parameter"):
        with_head(quantized, "mos")


def test_a_folder_named_like_a_pretrained_model_is_the_folder(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one in which a training script logged its losses."""
    monkeypatch.chdir(tmp_path)
    save("gpt2").rename("smollm2")
    Path("smollm2/metrics.jsonl").write_text('{"step": 1, "loss": 2.0}')
    ids = np.arange(60) % 50
    for name in ("smollm2", Path("smollm2"), "./smollm2"):
        assert sb.open(name, data=ids).shape == (59, 60)
    np.save("states.npy", np.eye(3, 8, dtype=np.float32))
    assert sb.open("states.npy", head="smollm2").shape == (3, 60)


def test_ids_are_read_as_they_are(save: Save) -> None:
    folder = save("gpt2")
    for option, given in {"bos": "on", "split": "valid"}.items():
        with pytest.raises(ConfigurationError, match=rf"{option}.* does not apply to token ids, which are read as"):
            sb.open(folder, data=np.arange(60) % 50, **{option: given})
