"""Whose log-probabilities these are: models with an RMSNorm and a LayerNorm, edited, quantized, and rows rounded."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from scipy.special import log_softmax
from transformers import AutoModelForCausalLM, GPT2Config, GraniteConfig, LlamaConfig

from softmax_bottleneck import dump, heads, identify
from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.hugging_face.final_norm import final_ellipse
from softmax_bottleneck.hugging_face.model import loaded_model
from softmax_bottleneck.measure import entries
from softmax_bottleneck.measure.identification import EDITED, LAYER, NOT, SAME, STATES, UNKNOWN, Identification

M, D = 300, 8
Rows = NDArray[Any]


LLAMA = LlamaConfig(
    vocab_size=M, hidden_size=D, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
    initializer_range=1.0, tie_word_embeddings=False,
)  # fmt: skip
GPT2 = GPT2Config(vocab_size=M, n_embd=D, n_layer=1, n_head=2, n_positions=64, initializer_range=1.0)


def llama(seed: int = 0) -> Any:
    return _random(LLAMA, "model.norm", seed)


def gpt2(seed: int = 0) -> Any:
    return _random(GPT2, "transformer.ln_f", seed)


def _random(config: Any, norm: str, seed: int) -> Any:
    torch.manual_seed(seed)
    model: Any = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.get_submodule(norm).parameters():
        torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def rows_of(model: Any, dtype: torch.dtype = torch.float32) -> Rows:
    ids = torch.randint(M, (1, 40), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        return np.asarray(model(ids).logits[0].to(dtype).float().log_softmax(1))


def edited(model: Any, change: Callable[[Any], None]) -> Any:
    changed = copy.deepcopy(model)
    with torch.no_grad():
        change(changed)
    return changed


def body(model: Any) -> None:
    layer = model.model.layers[0].mlp.down_proj if hasattr(model, "model") else model.transformer.h[0].mlp.c_proj
    layer.weight += torch.outer(*(torch.randn(size) for size in layer.weight.shape)) / 5


def head(model: Any) -> None:
    model.lm_head.weight += torch.outer(torch.randn(M), torch.randn(D)) / 1e3


def quantized(model: Any) -> None:
    step = model.lm_head.weight.abs().amax(1, keepdim=True) / 127
    model.lm_head.weight.copy_((model.lm_head.weight / step).round() * step)


def one(rows: Rows, model: Any, **options: Any) -> Identification:
    (found,) = identify(rows, model, **options)
    return found


@pytest.mark.parametrize("make", [llama, gpt2])
def test_a_body_may_change_and_a_head_may_not(make: Callable[..., Any]) -> None:
    model, other = make(), make(1)
    rows = rows_of(model)
    assert final_ellipse(loaded_model(model, dtype="auto")).centers == (make is gpt2)
    same = one(rows, model)
    assert same.verdict == SAME, same
    assert same.span.value < 1e-5
    assert same.on_ellipse == (pytest.approx(1, abs=1e-5), pytest.approx(0, abs=1e-5))
    found = one(rows, other)
    assert found.verdict == NOT
    assert found.span.value == pytest.approx(found.unrelated, rel=0.2)
    tuned = rows_of(edited(model, body))
    assert np.abs(tuned - rows).max() > 0.1
    assert one(tuned, model).verdict == SAME
    for change in (head, quantized):
        broken = one(rows_of(edited(model, change)), model)
        assert broken.verdict == NOT
        assert "a changed or quantized version" in broken.why
    norm = model.model.norm if make is llama else model.transformer.ln_f
    beta = getattr(norm, "bias", None) if make is gpt2 else torch.zeros(D)

    def one_sided(_: Any, inputs: Any) -> Any:
        """Make (h − β)/γ positive, so that its norm stays and its mean does not."""
        return beta + norm.weight * ((inputs[0] - beta) / norm.weight).abs()

    folded = edited(model, lambda each: each.get_output_embeddings().register_forward_pre_hook(one_sided))
    assert one(rows_of(folded), model).verdict == (STATES if make is gpt2 else SAME)
    steered = edited(
        model, lambda each: each.get_output_embeddings().register_forward_pre_hook(lambda _, h: h[0] + 0.1)
    )
    assert one(rows_of(steered), model).verdict == STATES


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_that_runs_in_a_narrower_type(dtype: torch.dtype) -> None:
    model = llama()
    found = one(rows_of(edited(model, lambda each: each.to(dtype).float())), model)
    assert (found.verdict, f"W is in {str(dtype)[6:]} here" in found.why) == (SAME, True)
    assert one(rows_of(edited(edited(model, head), lambda each: each.to(dtype).float())), model).verdict == NOT


def test_one_temperature_of_all_rows_and_noise_are_named() -> None:
    model = llama()
    rows = rows_of(model)
    found = one(log_softmax(rows / 0.8, 1), model)
    assert (found.verdict, found.why.endswith("1.25 times as long, as at a temperature of 0.8")) == (STATES, True)
    noisy = one(rows + np.random.default_rng(0).normal(0, 0.01, rows.shape).astype(rows.dtype), model)
    assert "or hold as much noise, which hides small changes of W" in noisy.why


@pytest.mark.parametrize("rank", [1, 5])
def test_rows_in_a_part_of_the_span_may_be_those_of_a_compressed_layer(rank: int) -> None:
    model = llama()
    W = model.lm_head.weight.detach().numpy()
    states = np.random.default_rng(0).normal(size=(40, D))
    left, values, right = np.linalg.svd(W, full_matrices=False)
    rows = log_softmax(states @ (left[:, :rank] * values[:rank] @ right[:rank]).T, 1)
    for layer in (model, W):
        found = one(rows, layer)
        assert found.verdict == UNKNOWN
        assert f"use {rank} of its 8 directions alone, as those of a pruned or low-rank version" in found.why
    few = log_softmax(states[:rank] @ W.T, 1)
    assert one(np.concatenate([few, few.astype(np.float32)]), W, kind="logits").verdict == LAYER


def test_directions_that_rounding_hides_are_not_missing() -> None:
    """As in a model, whose states have directions of very different size."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((3000, 64)).astype(np.float32)
    states = rng.standard_normal((200, 64)) * np.logspace(0, -3, 64) @ np.linalg.qr(rng.standard_normal((64, 64)))[0]
    rows = torch.from_numpy(log_softmax(states @ W.T, 1))
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        assert one(rows.to(dtype), W, kind="logits").verdict == LAYER


def test_rows_of_several_models_and_edits_at_other_tokens_in_each_row() -> None:
    model, random = llama(), np.random.default_rng(0)
    rows = rows_of(model)
    found = one(np.concatenate([rows[:12], rows_of(llama(1))[12:]]), model)
    assert (found.verdict, found.why) == (UNKNOWN, "12 of 40 rows lie in the span of W, and the others not")
    found = one(log_softmax(rows + 2 * (random.random(rows.shape) < 0.1), 1), model)
    assert (found.verdict, "% of their numbers, at other tokens in each row" in found.why) == (UNKNOWN, True)
    found = one(log_softmax(np.concatenate([rows + 2 * (random.random(M) < 0.1), rows_of(llama(1))]), 1), model)
    assert "40 of 80 rows lie in the span of W but for some of their tokens, and the others not" in found.why


def test_logits_rounded_by_more_than_their_step_tells() -> None:
    model = llama()
    with torch.no_grad():
        logits = model(torch.arange(M).reshape(10, 30)).logits.reshape(M, M)
    found = one(log_softmax(logits.to(torch.float8_e4m3fn).double().numpy(), 1), model)
    assert (found.verdict, "noise on this one's logits" in found.why) == (UNKNOWN, True)


def test_rows_at_two_temperatures_are_counted() -> None:
    model = llama()
    rows = rows_of(model)
    rows[::2] = log_softmax(1.3 * rows[::2], 1)
    found = one(rows, model)
    assert (found.verdict, "but for 20 of 40 rows" in found.why) == (SAME, True)


def test_a_single_row_does_not_decide() -> None:
    model = llama()
    rows = rows_of(model)
    rows[0] = log_softmax(1.01 * rows[0])  # in the span of W, off the ellipse
    assert one(rows, model).verdict == SAME
    assert one(log_softmax(1.01 * rows, 1), model).verdict == STATES


def test_coarse_and_floored_rows_say_what_they_still_can(write_kld: Callable[..., Path]) -> None:
    model, other = llama(), llama(1)
    rows = rows_of(model)
    for coarse, kind in ((rows_of(model, torch.bfloat16), "log-probs"), (rows.round(3), "matrix")):
        found = one(coarse, model, kind=kind)
        assert found.verdict in (SAME, LAYER)
        assert one(coarse, other, kind=kind).verdict == NOT
    assert one(rows.round(0), model, kind="matrix").verdict in (SAME, LAYER)
    assert one(10 * (rows / 40).round(), model, kind="matrix").verdict == UNKNOWN
    floored = np.maximum(rows, np.median(rows, 1, keepdims=True))  # half the tokens are hidden
    found = one(floored, model, kind="matrix")
    assert (found.verdict, found.contexts) == (SAME, 32)
    assert one(floored, other, kind="matrix").verdict == NOT
    kld = write_kld(rows_of(model) * 2, np.zeros((1, 82), np.int64))
    wide = edited(model, lambda each: each.lm_head.weight.mul_(2))
    found = one(kld, wide)
    assert (found.verdict, found.span.limit < 1e-3) == (SAME, True)
    assert one(kld, other).verdict == NOT
    few = np.maximum(rows, np.sort(rows, 1)[:, -D - 1 :][:, :1])
    assert one(few, model, kind="matrix").verdict == UNKNOWN


def masked(rows: Rows, **values: float) -> Rows:
    rows = rows.copy()
    for number, value in enumerate(values.values()):
        rows[:, [11 + number, 200 + number, 333 + number]] = value
    return rows


def biased(z: Rows, *tokens: int) -> Rows:
    return z + 5.0 * np.isin(np.arange(z.shape[1]), tokens)


BIAS = np.random.default_rng(5).standard_normal(600)
TEMPERATURES = np.random.default_rng(6).uniform(0.5, 1.5, (40, 1))
EDITS: dict[str, tuple[Callable[[Rows], Rows], NDArray[Any] | None, str, str]] = {
    "floor of one token": (lambda z: np.maximum(log_softmax(z, 1), np.sort(log_softmax(z, 1), 1)[:, 2:3]), None, LAYER,
                           ""),
    "floor": (lambda z: np.maximum(log_softmax(z, 1), np.log(1e-9)), None, LAYER, ""),
    "mask": (lambda z: masked(log_softmax(z, 1), a=-100.0), None, LAYER, ""),
    "masks": (lambda z: masked(log_softmax(z, 1), a=-100.0, b=-60.0), None, EDITED, "which lie below all others"),
    "half at two masks": (lambda z: np.where(np.arange(600) % 2, log_softmax(z, 1), -100.0 - np.arange(600) % 4), None,
                          LAYER, ""),
    "top-k": (lambda z: np.where(z < np.quantile(z, 0.8, axis=1)[:, None], -100, log_softmax(z, 1)), None, LAYER, ""),
    "logit bias": (lambda z: log_softmax(biased(z, 3, 7), 1), None, EDITED, "with a bias of rank 1 on tokens 3, 7"),
    "many logits": (lambda z: biased(z, *range(150)), None, EDITED, "with a bias of rank 1 on "),
    "lacking bias": (lambda z: z + BIAS, None, EDITED, "with a bias of rank 1 on most tokens"),
    "edited bias": (lambda z: biased(z + BIAS, 9), BIAS, EDITED, "with a bias of rank 1 on token 9"),
    "temperature": (lambda z: (z + BIAS) / 0.7, BIAS, EDITED, "with its bias 1.43 times"),
    "temperatures": (lambda z: (z + BIAS) / TEMPERATURES, BIAS, EDITED, "times, as a temperature makes it"),
    "temperatures, no bias": (lambda z: (z + BIAS) / TEMPERATURES, None, UNKNOWN, "one vector in other strengths"),
    "bias and floor": (lambda z: np.maximum(log_softmax(z + BIAS, 1), -15), None, EDITED, "a bias of rank 1"),
    "soft cap": (lambda z: 9 * np.tanh(z / 9), None, UNKNOWN, "such as a soft cap"),
    "added": (lambda z: np.log(np.exp(log_softmax(z, 1)) + 1e-8), None, UNKNOWN, ""),
    "penalty": (lambda z: z * np.where(np.arange(600) % 90, 1, 1.3), None, UNKNOWN, "but for tokens 0, 90, 180, 270"),
    "watermark": (lambda z: z + 2 * np.random.default_rng(7).integers(2, size=z.shape), None, UNKNOWN, "a watermark"),
    "one other row": (lambda z: np.vstack([z[:-1], z[-1:, ::-1]]), None, UNKNOWN, "39 of 40 rows"),
    "one row": (lambda z: (z + BIAS)[:1], None, UNKNOWN, "a single row"),
}  # fmt: skip
DOUBTED = "one row", "soft cap", "added", "watermark"


@pytest.mark.parametrize("name", EDITS)
def test_edited_rows_are_told_from_another_layer(name: str) -> None:
    """Floors, masks, biases and temperatures leave W what it is; another W is not excused by them."""
    edit, bias, verdict, sentence = EDITS[name]
    rng = np.random.default_rng(0)
    W, H = rng.standard_normal((600, 16)), rng.standard_normal((40, 16)) + 0.5 * rng.standard_normal(16)
    layer = heads.Softmax.of(torch.from_numpy(W), None if bias is None else torch.from_numpy(bias))
    found = one(edit(H @ W.T).astype(np.float32), layer, kind="logits")
    assert (found.verdict, sentence in found.why) == (verdict, True), found
    for other in (rng.standard_normal(W.shape), W + 0.03 * rng.standard_normal(W.shape), W[rng.permutation(600)]):
        found = one(edit(H @ other.T).astype(np.float32), layer, kind="logits")
        assert found.verdict == NOT or (found.verdict, name in DOUBTED) == (UNKNOWN, True), found


@pytest.mark.parametrize("bias", [0.0, 0.5])
@pytest.mark.parametrize("share", [0.01, 0.2, 0.4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_layer_with_other_rows_is_not_the_same(dtype: torch.dtype, share: float, bias: float) -> None:
    """A bias on all tokens, or a narrower W, hides nothing: the tokens whose rows of W are others are named."""
    rng = np.random.default_rng(0)
    W, H, b = (rng.standard_normal(shape) for shape in ((1000, 16), (60, 16), 1000))
    others = np.sort(rng.permutation(1000)[: int(share * 1000)])
    changed = W.copy()
    changed[others] = rng.standard_normal((len(others), 16))
    changed = torch.from_numpy(changed).to(dtype).double().numpy()
    rows = log_softmax(0.8 * H @ changed.T + bias * b, axis=1).astype("f4")
    (found,) = identify(rows, W)
    assert found.verdict == UNKNOWN
    assert f"but for tokens {', '.join(map(str, others[:8]))} and " in found.why


def test_fewer_rows_than_dimensions() -> None:
    """Their directions, all different, look like noise, and must not excuse a quantized W."""
    torch.manual_seed(0)
    layer, H = torch.nn.Linear(64, 3000, bias=False), 3 * torch.randn(40, 64)
    rows, step = layer(H).log_softmax(1).detach().numpy(), layer.weight.abs().amax(1, keepdim=True) / 127
    quantized = ((layer.weight / step).round() * step).detach().numpy()
    assert identify(rows, layer)[0].verdict == LAYER
    assert identify(rows, quantized)[0].verdict == NOT
    assert identify(rows.round(2), layer, kind="matrix")[0].verdict == LAYER
    assert identify(torch.from_numpy(rows).double().log_softmax(1).numpy(), layer)[0].verdict == LAYER
    coarse = identify(layer(H).bfloat16().float().log_softmax(1).detach().numpy(), layer)[0]
    assert (coarse.verdict, "logits in bfloat16" in coarse.why) == (UNKNOWN, True)
    with pytest.raises(SourceError, match="W of array holds numbers that are not finite"):
        identify(rows, np.where(quantized == quantized[0, 0], np.nan, quantized))


def test_noise_is_told_from_another_layer_though_few_rows_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MOST_ENTRIES", 20 * 1000)  # 20 rows of all tokens, fewer than d
    rng = np.random.default_rng(0)
    W, H = rng.standard_normal((1000, 32)), rng.standard_normal((200, 32))
    logits, step = H @ W.T, np.abs(W).max(1, keepdims=True) / 127
    green = one(log_softmax(logits + rng.integers(2, size=logits.shape), axis=1).astype("f4"), W)
    assert (green.verdict, green.contexts, "a watermark" in green.why) == (UNKNOWN, 20, True)
    assert one(log_softmax(H @ (np.round(W / step) * step).T, axis=1).astype("f4"), W).verdict == NOT


def test_rows_that_show_little() -> None:
    """Copies of a row are one row, tokens that W lacks may be masked, and few tokens let any bias fit."""
    rng = np.random.default_rng(0)
    W, H = rng.standard_normal((400, 24)), rng.standard_normal((40, 24))
    others = log_softmax(H @ rng.standard_normal((400, 24)).T, axis=1).astype("f4")
    copies = one(np.repeat(others[:1], 30, 0), W)
    assert (copies.verdict, copies.contexts, "a single row" in copies.why) == (UNKNOWN, 1, True)
    rows = log_softmax(H @ W.T, axis=1).astype("f4")
    padded = np.pad(rows, ((0, 0), (0, 10)), constant_values=-np.inf)
    fewer = one(rows, W[:-1])
    assert (one(padded, W).verdict, fewer.verdict) == (LAYER, EDITED)
    assert "the vocabularies differ: the rows have 400 tokens, and W has 399" in fewer.why
    assert one(others, W[:-1]).verdict == NOT
    few = one(log_softmax(H @ rng.standard_normal((27, 24)).T, axis=1), W[:27])
    assert (few.verdict, "share hardly more than d = 24 tokens" in few.why) == (UNKNOWN, True)
    tokens = one(log_softmax(H[:, :4] @ rng.standard_normal((20, 4)).T, axis=1), rng.standard_normal((20, 19)))
    assert (tokens.contexts, "rows that show more tokens may tell" in str(tokens)) == (0, True)
    with pytest.raises(SourceError, match="all rows of W of array are equal"):
        identify(rows, np.ones((400, 24)))


def test_a_bias_is_that_of_rows_made_of_states_too(bottleneck: Any, tmp_path: Path, repeatable: None) -> None:
    arrays = {"h": torch.randn(60, 16), "w": torch.randn(300, 16), "b": torch.randn(300)}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array.numpy())
    h, w, b = (str(tmp_path / f"{name}.npy") for name in arrays)
    np.save(tmp_path / "rows.npy", (arrays["h"] @ arrays["w"].T + arrays["b"]).log_softmax(1).numpy())
    states = dump(h, tmp_path / "states", head=w, states=True)  # which have a layer of their own, without a bias
    for rows, *head, verdict in ((h, "--head", w, LAYER), (tmp_path / "rows.npy", LAYER), (states, EDITED)):
        done = bottleneck("identify", str(rows), w, *head, "--bias", b, "--json", "-")
        assert json.loads(done.stdout)["verdict"] == verdict, done.output


@pytest.mark.parametrize("offset", [0, -10])
def test_logits_in_bfloat16_far_from_zero(offset: int, repeatable: None) -> None:
    """Their rounding is as large as the logits, of which the rows keep the differences alone."""
    W, H = torch.randn(300, 32), torch.randn(110, 32)
    W[:, 0] = 1 + 0.01 * W[:, 0]
    H[:, 0] = offset
    rows = (H @ W.T).bfloat16().float().log_softmax(1).numpy()
    assert identify(rows, W)[0].verdict in (UNKNOWN, LAYER)
    assert identify(rows, torch.randn(300, 32))[0].verdict == NOT


@pytest.mark.parametrize(
    "config", [GPT2Config(n_embd=D), GraniteConfig(hidden_size=D, num_key_value_heads=2, logits_scaling=4.0)]
)
def test_small_states_and_scaled_logits(config: Any) -> None:
    """ε counts beside the variance of untrained states, and a configuration does not say how it scales logits."""
    torch.manual_seed(0)
    config.update({"vocab_size": M, "n_layer": 1, "n_head": 2, "num_hidden_layers": 1, "num_attention_heads": 2})
    model = AutoModelForCausalLM.from_config(config).eval()
    rows = rows_of(model)
    assert one(rows, model).verdict == SAME
    with torch.no_grad():
        finer = model(torch.arange(40)[None]).logits[0].half().float().log_softmax(1).numpy()
    assert one(finer, model).verdict == SAME


def test_an_output_layer_without_a_norm(tmp_path: Path) -> None:
    """It is found from logits, and from a server's hidden states whose layer a second file holds."""
    rng = np.random.default_rng(0)
    W, H = rng.standard_normal((50, 4)), rng.standard_normal((20, 4))
    layers = {"W": W, "padded": np.vstack([W, W]), "narrow": W[:40], "other": W[::-1].copy()}
    found = identify(H @ W.T, layers, kind="logits")
    assert {each.name: each.verdict for each in found} == dict(zip(layers, (LAYER, LAYER, EDITED, NOT), strict=True))
    save_file({"W": torch.from_numpy(W)}, tmp_path / "head.safetensors")
    save_file({"hidden_states": torch.from_numpy(H)}, tmp_path / "states.safetensors")
    of_states = identify(str(tmp_path / "states.safetensors"), layers, head=f"{tmp_path}/head.safetensors:W")
    assert [each.verdict for each in of_states] == [each.verdict for each in found]
    assert found["narrow"].why.endswith("the vocabularies differ: the rows have 50 tokens, and W has 40")
    assert found["narrow"].why in " ".join(str(found).split())
    assert f"<p>narrow: {found['narrow'].why}</p>" in found._repr_html_()
    assert "unrelated W" in found.details()
    assert found[:1].verdict == LAYER
    assert found.to_dict()["results"][0]["span"]["value"] < 1e-14
    assert "verdict  same output layer" in str(found[0])
    with pytest.raises(SourceError, match="is not a log-linear output layer"):
        identify(H @ W.T, heads.MoS(hidden_size=4, vocab_size=50, components=2), kind="logits")
    with pytest.raises(SourceError, match="give the rows before the model"):
        identify(H @ W.T, H @ W.T, kind="logits")
    with pytest.raises(ConfigurationError, match="takes the rows first, one source"):
        identify({"one": W, "other": W}, H @ W.T)
