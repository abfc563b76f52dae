"""AWD-LSTM against the recurrence written out, and each of its dropouts by what must stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads.dropout import drop_weights, drop_words, in_one_piece, locked_dropout
from softmax_bottleneck.language_models.backbones import AWDLSTM, AWDLSTMConfig
from softmax_bottleneck.language_models.backbones.awd_lstm import DROPOUTS

EPS = torch.finfo(torch.float64).eps
M = 11
Make = Callable[..., AWDLSTM]

pytestmark = pytest.mark.usefixtures("repeatable")


@pytest.fixture
def make() -> Make:
    """A model of three layers; no dropout but what is asked for."""

    def make(**settings: Any) -> AWDLSTM:
        settings = {"embedding_size": 3, "hidden_sizes": [6, 5, 4], **dict.fromkeys(DROPOUTS, 0.0), **settings}
        return AWDLSTM(AWDLSTMConfig(**settings), vocab_size=M).double()

    return make


def _recurrence(model: AWDLSTM, ids: Tensor, recurrent: list[Tensor] | None = None) -> Tensor:
    """The LSTM cell with gates i, f, g, o, with other hidden-to-hidden matrices where they are given."""
    inputs = model.embedding.weight[ids]
    for place, layer in enumerate(model.layers):
        w_x, w_h, b_x, b_h = (parameter for _, parameter in layer.named_parameters())
        w_h = w_h if recurrent is None else recurrent[place]
        h = c = torch.zeros(ids.shape[1], w_h.shape[1], dtype=inputs.dtype)
        outputs = []
        for x in inputs:
            i, f, g, o = (x @ w_x.T + b_x + h @ w_h.T + b_h).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        inputs = torch.stack(outputs)
    return inputs


def _hidden(model: AWDLSTM, ids: Tensor) -> Tensor:
    return model(ids, model.initial_state(ids.shape[1]))[0]


def test_it_is_the_recurrence(make: Make) -> None:
    model, ids = make().eval(), torch.randint(M, (9, 2))
    hidden, state = model(ids, model.initial_state(2))
    torch.testing.assert_close(hidden, _recurrence(model, ids), rtol=100 * EPS, atol=100 * EPS)
    assert [tuple(part.shape) for part in state] == [(1, 2, 6)] * 2 + [(1, 2, 5)] * 2 + [(1, 2, 4)] * 2
    torch.testing.assert_close(state[4][0], hidden[-1])


def test_nothing_is_dropped_in_eval_mode(make: Make) -> None:
    model, ids = make(**dict.fromkeys(DROPOUTS, 0.5)), torch.randint(M, (9, 2))
    plain = make()
    plain.load_state_dict(model.state_dict())
    assert not torch.equal(_hidden(model, ids), _hidden(model, ids))
    model.eval()
    assert torch.equal(_hidden(model, ids), _hidden(plain.train(), ids))


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_each_dropout_acts_in_training(dropout: str, make: Make) -> None:
    model, ids = make(**{dropout: 0.5}), torch.randint(M, (9, 2))
    assert not torch.equal(_hidden(model, ids), _hidden(model, ids))
    assert torch.equal(_hidden(model.eval(), ids), _hidden(model, ids))


def test_dropped_weights_stay_dropped_for_a_whole_segment(make: Make) -> None:
    """The recurrence with the same masks, values and gradients alike; the parameters are left as they were."""
    model, ids = make(weight_drop=0.5), torch.randint(M, (9, 2))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    torch.manual_seed(7)
    found = _hidden(model, ids)
    torch.manual_seed(7)
    dropped = [drop_weights(layer, 0.5)[1] for layer in model.layers]
    expected = _recurrence(model, ids, dropped)
    torch.testing.assert_close(found, expected, rtol=100 * EPS, atol=100 * EPS)
    upstream = torch.randn_like(found)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(found, parameters, upstream)
    for one, other in zip(gradients, torch.autograd.grad(expected, parameters, upstream), strict=True):
        torch.testing.assert_close(one, other, rtol=1000 * EPS, atol=1000 * EPS)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])


def test_only_hidden_to_hidden_weights_are_dropped() -> None:
    layer = torch.nn.LSTM(3, 4)
    weights, parameters = drop_weights(layer, 0.5), [parameter for _, parameter in layer.named_parameters()]
    for index in (0, 2, 3):
        assert torch.equal(weights[index], parameters[index])
    kept = weights[1] != 0
    assert 0 < kept.sum() < kept.numel()
    assert torch.equal(weights[1][kept], 2 * parameters[1][kept])


@pytest.mark.parametrize("probability", [0.03, 0.2, 0.5, 0.9])
def test_weights_are_dropped_one_by_one_and_as_often_as_asked(probability: float) -> None:
    """Frequencies, alone and of neighbours together, within five standard errors."""
    torch.manual_seed(3)
    layer = torch.nn.LSTM(1, 301)
    torch.nn.init.ones_(layer.weight_hh_l0)
    weights = drop_weights(layer, probability)[1].detach()
    stays = weights != 0
    torch.testing.assert_close(weights[stays], torch.full_like(weights[stays], 1 / (1 - probability)))
    pairs = stays.flatten()[:-1] & stays.flatten()[1:]
    for found, chance in ((stays, 1 - probability), (pairs[::2], (1 - probability) ** 2),
                          (pairs[1::2], (1 - probability) ** 2)):  # fmt: skip
        error = (chance * (1 - chance) / found.numel()) ** 0.5
        assert abs(found.double().mean().item() - chance) < 5 * error


def test_nearly_all_weights_may_be_dropped() -> None:
    assert not drop_weights(torch.nn.LSTM(1, 3), 1 - 1e-12)[1].any()


def test_weights_in_one_piece_are_the_same_weights() -> None:
    """W, U and the two biases, in the order in which cuDNN keeps one layer's."""
    parameters = [parameter for _, parameter in torch.nn.LSTM(3, 4).named_parameters()]
    weights = in_one_piece(parameters)
    place = 0
    for weight, parameter in zip(weights, parameters, strict=True):
        assert torch.equal(weight, parameter)
        assert weight.storage_offset() == place
        assert weight.untyped_storage().data_ptr() == weights[0].untyped_storage().data_ptr()
        place += weight.numel()
    gradients = torch.autograd.grad(sum(weight.square().sum() for weight in weights), parameters)
    for gradient, parameter in zip(gradients, parameters, strict=True):
        torch.testing.assert_close(gradient, 2 * parameter.detach())


def test_locked_dropout_drops_units_for_a_whole_sequence() -> None:
    dropped = locked_dropout(torch.ones(50, 40, 30, dtype=torch.float64), 0.25, training=True)
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, 1 / 0.75}
    share = (dropped[0] == 0).double().mean()
    assert abs(share - 0.25) < 5 * (0.25 * 0.75 / 1200) ** 0.5
    assert not torch.equal(dropped[0, 0], dropped[0, 1])  # texts beside each other have masks of their own


def test_a_dropped_word_is_dropped_wherever_it_occurs() -> None:
    embedding = torch.nn.Embedding(400, 3, dtype=torch.float64)
    ids = torch.arange(400).repeat(2, 1)
    dropped = drop_words(embedding, ids, 0.3, training=True)
    assert torch.equal(dropped[0], dropped[1])
    gone = (dropped[0] == 0).all(-1)
    torch.testing.assert_close(dropped[0][~gone], embedding.weight[~gone] / 0.7)
    assert abs(gone.double().mean() - 0.3) < 5 * (0.3 * 0.7 / 400) ** 0.5


@pytest.mark.parametrize("length", [1, 2, 9])
def test_the_penalty_by_hand(length: int, make: Make) -> None:
    """α on what comes out after dropout, β on what was there before it (Merity et al. 2018, §4.6)."""
    model = make(dropout_output=0.5, activation_penalty=2.0, temporal_penalty=3.0)
    ids = torch.randint(M, (length, 2))
    raw = _hidden(model.eval(), ids).detach().numpy()
    encoding = model.train().encode(ids, model.initial_state(2))
    expected = 2 * (encoding.hidden.detach().numpy() ** 2).mean()
    if length > 1:
        expected += 3 * ((raw[1:] - raw[:-1]) ** 2).mean()
    assert encoding.penalty is not None
    assert encoding.penalty.item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("cut", [1, 8])
def test_two_segments_are_one_text(cut: int, make: Make) -> None:
    model, ids = make().eval(), torch.randint(M, (9, 2))
    whole, end = model(ids, model.initial_state(2))
    first, state = model(ids[:cut], model.initial_state(2))
    second, last = model(ids[cut:], state)
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=20 * EPS, atol=20 * EPS)
    for one, other in zip(last, end, strict=True):
        torch.testing.assert_close(one, other, rtol=20 * EPS, atol=20 * EPS)


def test_texts_of_a_batch_do_not_mix(make: Make) -> None:
    model, ids = make().eval(), torch.randint(M, (9, 3))
    alone = [_hidden(model, ids[:, i : i + 1]) for i in range(3)]
    torch.testing.assert_close(torch.cat(alone, 1), _hidden(model, ids), rtol=20 * EPS, atol=20 * EPS)


def test_all_layers_side_by_side(make: Make) -> None:
    settings = AWDLSTMConfig(embedding_size=3, hidden_sizes=[6, 5, 4])
    model = AWDLSTM(settings, vocab_size=M, all_layers=True).double().eval()
    last = make()
    last.load_state_dict(model.state_dict())
    ids = torch.randint(M, (9, 2))
    hidden = _hidden(model, ids)
    assert model.layer_sizes == (6, 5, 4)
    assert model.hidden_size == hidden.shape[-1] == 15
    assert torch.equal(hidden[..., -4:], _hidden(last.eval(), ids))


@pytest.mark.parametrize("wrong", [{"embedding_size": 0}, {"hidden_sizes": []}, {"hidden_sizes": [4, 0]}])
def test_impossible_sizes(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))} must be at least 1, not 0"):
        AWDLSTMConfig(**wrong)


@pytest.mark.parametrize("name", DROPOUTS)
@pytest.mark.parametrize("value", [1.0, -0.1, float("nan")])
def test_impossible_dropouts(name: str, value: float) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ConfigurationError, match=rf"{name} must be in \[0, 1\), not"):
        AWDLSTMConfig(**settings)


@pytest.mark.parametrize("name", ["activation_penalty", "temporal_penalty"])
@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_impossible_penalties(name: str, value: float) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ConfigurationError, match=f"{name} must be at least 0 and finite, not"):
        AWDLSTMConfig(**settings)
