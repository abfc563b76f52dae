"""LSTM and AWD-LSTM against the recurrence written out, what a carried state must mean, and each dropout's law."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads.layers import drop_weights, drop_words, in_one_piece, locked_dropout
from softmax_bottleneck.language_models.backbones import (
    AWDLSTMConfig,
    Backbone,
    EncoderDecoderConfig,
    LSTMConfig,
    build,
)
from softmax_bottleneck.language_models.backbones.awd_lstm import DROPOUTS

from .conftest import lstm

EPS = torch.finfo(torch.float64).eps
M = 11
NOTHING_DROPPED: dict[str, dict[str, Any]] = {
    "lstm": {"dropout": 0.0},
    "awd-lstm": {"hidden_sizes": [6, 5, 4], **dict.fromkeys(DROPOUTS, 0.0)},
}

pytestmark = pytest.mark.usefixtures("repeatable")


def _make(name: str, *, all_layers: bool = False, **settings: Any) -> Any:
    sizes = {"embedding_size": 3, **({"hidden_size": 4} if name == "lstm" else {})}
    settings = {**sizes, **NOTHING_DROPPED[name], **settings}
    return build(name, vocab_size=M, all_layers=all_layers, **settings).double()


def _hidden(model: Backbone, ids: Tensor) -> Tensor:
    hidden: Tensor = model(ids, model.initial_state(ids.shape[1]))[0]
    return hidden


def _recurrence(inputs: Tensor, layers: list[list[Tensor]]) -> Tensor:
    for weights in layers:
        inputs, _ = lstm(inputs, weights)
    return inputs


def _layers(model: Any) -> list[list[Tensor]]:
    if hasattr(model, "layers"):
        return [[parameter for _, parameter in layer.named_parameters()] for layer in model.layers]
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [[getattr(model.lstm, f"{name}_l{layer}") for name in names] for layer in range(model.config.layers)]


@pytest.mark.parametrize("all_layers", [True, False])
@pytest.mark.parametrize(("name", "settings"), [("lstm", {"layers": 1}), ("lstm", {"layers": 3}), ("awd-lstm", {})])
def test_it_is_the_recurrence(name: str, settings: dict[str, Any], all_layers: bool) -> None:
    """Whether a text comes whole or in two segments; with the outputs of all layers, the first sees no other."""
    model, ids = _make(name, all_layers=all_layers, **settings).eval(), torch.randint(M, (9, 2))
    first, state = model(ids[:5], model.initial_state(2))
    second, state = model(ids[5:], state)
    hidden, inputs, layers = torch.cat([first, second]), model.embedding.weight[ids], _layers(model)
    counts = range(1 if all_layers else len(layers), len(layers) + 1)
    expected = torch.cat([_recurrence(inputs, layers[:count]) for count in counts], -1)
    torch.testing.assert_close(hidden, expected, rtol=100 * EPS, atol=100 * EPS)
    torch.testing.assert_close(_hidden(model, ids), hidden, rtol=20 * EPS, atol=20 * EPS)
    sizes = (4,) * settings["layers"] if name == "lstm" else (6, 5, 4)
    assert model.layer_sizes == (sizes if all_layers else sizes[-1:])
    assert model.hidden_size == sum(model.layer_sizes)
    h = state[0] if name == "lstm" else state[-2]
    torch.testing.assert_close(h[-1], hidden[-1, :, -4:])
    shapes = [(settings["layers"], 2, 4)] if name == "lstm" else [(1, 2, 6), (1, 2, 5), (1, 2, 4)]
    assert [tuple(part.shape) for part in state] == [shape for shape in shapes for _ in ("h", "c")]


@pytest.mark.parametrize(
    ("name", "dropouts"), [("lstm", {"dropout": 0.5}), *(("awd-lstm", {dropout: 0.5}) for dropout in DROPOUTS)]
)
def test_each_dropout_acts_in_training_alone(name: str, dropouts: dict[str, float]) -> None:
    model, ids = _make(name, **dropouts), torch.randint(M, (9, 2))
    plain = _make(name)
    plain.load_state_dict(model.state_dict())
    assert not torch.equal(_hidden(model, ids), _hidden(model, ids))
    assert torch.equal(_hidden(model.eval(), ids), _hidden(plain.train(), ids))


@pytest.mark.parametrize(
    ("config", "wrong", "said"),
    [
        *((LSTMConfig, {name: 0}, f"{name} must be at least 1, not 0") for name in ("embedding_size", "hidden_size")),
        (LSTMConfig, {"layers": 10**9}, "layers must be at most 1,000"),
        (EncoderDecoderConfig, {"line_size": 0}, "line_size must be at least 1, not 0"),
        (EncoderDecoderConfig, {"dropout": 1.0}, r"dropout must be in \[0, 1\), not"),
        (EncoderDecoderConfig, {"context_lines": 10**9}, "context_lines must be at most 1,000"),
        (AWDLSTMConfig, {"hidden_sizes": []}, "hidden_sizes must be at least 1, not 0"),
        (AWDLSTMConfig, {"hidden_sizes": [4, 0]}, "hidden_sizes must be at least 1, not 0"),
        *((LSTMConfig, {"dropout": p}, r"dropout must be in \[0, 1\), not") for p in (1.0, -0.1, float("nan"))),
        *((AWDLSTMConfig, {name: 1.0}, rf"{name} must be in \[0, 1\), not") for name in DROPOUTS),
        *(
            (AWDLSTMConfig, {name: weight}, f"{name} must be at least 0 and finite, not")
            for name in ("activation_penalty", "temporal_penalty")
            for weight in (-1.0, float("inf"), float("nan"))
        ),
    ],
)
def test_settings_out_of_range(config: Any, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        config(**wrong)


def test_the_dropout_of_all_layers() -> None:
    wide = _make("lstm", hidden_size=50, dropout=0.5, all_layers=True)
    for part in _hidden(wide, torch.randint(M, (1, 1))).split(50, -1):
        assert 10 < (part == 0).sum() < 40


def test_dropped_weights_stay_dropped_for_a_whole_segment() -> None:
    """The recurrence with the same masks, values and gradients alike; the parameters are left as they were."""
    model, ids = _make("awd-lstm", weight_drop=0.5), torch.randint(M, (9, 2))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    torch.manual_seed(7)
    hidden = _hidden(model, ids)
    torch.manual_seed(7)
    dropped = [drop_weights(layer, 0.5) for layer in model.layers]
    expected = _recurrence(model.embedding.weight[ids], dropped)
    torch.testing.assert_close(hidden, expected, rtol=100 * EPS, atol=100 * EPS)
    upstream, parameters = torch.randn_like(hidden), list(model.parameters())
    gradients = torch.autograd.grad(hidden, parameters, upstream)
    torch.testing.assert_close(
        gradients, torch.autograd.grad(expected, parameters, upstream), rtol=1000 * EPS, atol=1000 * EPS
    )
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


@pytest.mark.parametrize("probability", [0.03, 0.5, 0.9])
def test_hidden_to_hidden_weights_are_dropped_one_by_one_and_as_often_as_set(probability: float) -> None:
    """Frequencies, alone and of neighbours together, within five standard errors; no other weight is dropped."""
    layer = nn.LSTM(1, 301)
    nn.init.ones_(layer.weight_hh_l0)
    weights, parameters = drop_weights(layer, probability), [parameter for _, parameter in layer.named_parameters()]
    assert all(torch.equal(weights[index], parameters[index]) for index in (0, 2, 3))
    stays = weights[1].detach() != 0
    torch.testing.assert_close(weights[1][stays], torch.full_like(weights[1][stays], 1 / (1 - probability)))
    pairs = stays.flatten()[:-1] & stays.flatten()[1:]
    for sample, chance in (
        (stays, 1 - probability), (pairs[::2], (1 - probability) ** 2), (pairs[1::2], (1 - probability) ** 2),
    ):  # fmt: skip
        error = (chance * (1 - chance) / sample.numel()) ** 0.5
        assert abs(sample.double().mean().item() - chance) < 5 * error
    assert not drop_weights(nn.LSTM(1, 3), 1 - 1e-12)[1].any()


def test_weights_in_one_piece_are_the_same_weights() -> None:
    """W, U and the two biases, in the order in which cuDNN keeps one layer's."""
    parameters = [parameter for _, parameter in nn.LSTM(3, 4).named_parameters()]
    weights = in_one_piece(parameters)
    place = 0
    for weight, parameter in zip(weights, parameters, strict=True):
        assert torch.equal(weight, parameter)
        assert weight.storage_offset() == place
        assert weight.untyped_storage().data_ptr() == weights[0].untyped_storage().data_ptr()
        place += weight.numel()
    gradients = torch.autograd.grad(sum(weight.square().sum() for weight in weights), parameters)
    torch.testing.assert_close(gradients, tuple(2 * parameter.detach() for parameter in parameters))


def test_locked_dropout_and_dropped_words() -> None:
    """A unit is dropped for a whole sequence, each text with a mask of its own; a word wherever it occurs."""
    dropped = locked_dropout(torch.ones(50, 40, 30, dtype=torch.float64), 0.25, training=True)
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, 1 / 0.75}
    assert abs((dropped[0] == 0).double().mean() - 0.25) < 5 * (0.25 * 0.75 / 1200) ** 0.5
    assert not torch.equal(dropped[0, 0], dropped[0, 1])
    embedding = nn.Embedding(400, 3, dtype=torch.float64)
    words = drop_words(embedding, torch.arange(400).repeat(2, 1), 0.3, training=True)
    assert torch.equal(words[0], words[1])
    gone = (words[0] == 0).all(-1)
    torch.testing.assert_close(words[0][~gone], embedding.weight[~gone] / 0.7)
    assert abs(gone.double().mean() - 0.3) < 5 * (0.3 * 0.7 / 400) ** 0.5


@pytest.mark.parametrize("length", [1, 9])
def test_the_penalty_by_hand(length: int) -> None:
    """α on what comes out after dropout, β on what was there before it (Merity et al. 2018, §4.6)."""
    model = _make("awd-lstm", dropout_output=0.5, activation_penalty=2.0, temporal_penalty=3.0)
    ids = torch.randint(M, (length, 2))
    raw = _hidden(model.eval(), ids).detach().numpy()
    encoding = model.train().encode(ids, model.initial_state(2))
    expected = 2 * (encoding.hidden.detach().numpy() ** 2).mean()
    if length > 1:
        expected += 3 * ((raw[1:] - raw[:-1]) ** 2).mean()
    assert encoding.penalty.item() == pytest.approx(expected, rel=1e-14)
