"""The LSTM backbone against the recurrence written out, and what a carried state must mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.language_models import backbones
from softmax_bottleneck.language_models.backbones import LSTM, LSTMConfig

EPS = torch.finfo(torch.float64).eps
Make = Callable[..., LSTM]

pytestmark = pytest.mark.usefixtures("repeatable")


@pytest.fixture
def make() -> Make:
    def make(**settings: Any) -> LSTM:
        settings = {"embedding_size": 3, "hidden_size": 4, "layers": 2, "dropout": 0.5, **settings}
        return LSTM(LSTMConfig(**settings), vocab_size=11).double()

    return make


def _recurrence(model: LSTM, ids: Tensor) -> Tensor:
    """Hochreiter and Schmidhuber's cell with a forget gate, gates in torch's order i, f, g, o."""
    inputs = model.embedding.weight[ids]
    for layer in range(model.config.layers):
        w_x, w_h, b_x, b_h = (
            getattr(model.lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        h = c = torch.zeros(ids.shape[1], model.hidden_size, dtype=inputs.dtype)
        outputs = []
        for x in inputs:
            i, f, g, o = (x @ w_x.T + b_x + h @ w_h.T + b_h).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        inputs = torch.stack(outputs)
    return inputs


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_it_is_the_recurrence(layers: int, make: Make) -> None:
    model, ids = make(layers=layers).eval(), torch.randint(11, (9, 2))
    hidden, state = model(ids, model.initial_state(2))
    torch.testing.assert_close(hidden, _recurrence(model, ids), rtol=100 * EPS, atol=100 * EPS)
    assert [tuple(part.shape) for part in state] == [(layers, 2, 4)] * 2
    torch.testing.assert_close(state[0][-1], hidden[-1])


def test_it_is_torchs_lstm(make: Make) -> None:
    model, ids = make().eval(), torch.randint(11, (9, 2))
    reference = torch.nn.LSTM(3, 4, 2).double()
    reference.load_state_dict(model.lstm.state_dict())
    expected, _ = reference(model.embedding(ids))
    assert torch.equal(model(ids, model.initial_state(2))[0], expected)


@pytest.mark.parametrize("cut", [1, 4, 8])
def test_two_segments_are_one_text(cut: int, make: Make) -> None:
    model, ids = make().eval(), torch.randint(11, (9, 2))
    whole, end = model(ids, model.initial_state(2))
    first, state = model(ids[:cut], model.initial_state(2))
    second, last = model(ids[cut:], state)
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=20 * EPS, atol=20 * EPS)
    torch.testing.assert_close(last, end, rtol=20 * EPS, atol=20 * EPS)


def test_texts_of_a_batch_do_not_mix(make: Make) -> None:
    model, ids = make().eval(), torch.randint(11, (9, 3))
    whole, _ = model(ids, model.initial_state(3))
    alone = [model(ids[:, i : i + 1], model.initial_state(1))[0] for i in range(3)]
    torch.testing.assert_close(torch.cat(alone, 1), whole, rtol=20 * EPS, atol=20 * EPS)


def test_a_hidden_state_does_not_see_what_follows(make: Make) -> None:
    model, ids = make().eval(), torch.randint(11, (9, 2))
    changed = ids.clone()
    changed[5:] = (changed[5:] + 1) % 11
    before, after = (model(text, model.initial_state(2))[0] for text in (ids, changed))
    assert torch.equal(before[:5], after[:5])
    assert not torch.isclose(before[5:], after[5:]).any()


@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_only_in_training(layers: int, make: Make) -> None:
    model, ids = make(layers=layers), torch.randint(11, (9, 2))

    def once() -> Tensor:
        result: Tensor = model(ids, model.initial_state(2))[0]
        return result

    assert not torch.equal(once(), once())
    dropped = once() == 0
    assert 0.2 < dropped.double().mean() < 0.8
    model.eval()
    assert torch.equal(once(), once())
    assert not (once() == 0).any()


def test_no_dropout_is_the_same_in_training(make: Make) -> None:
    model, ids = make(dropout=0.0), torch.randint(11, (9, 2))
    trained, _ = model.train()(ids, model.initial_state(2))
    evaluated, _ = model.eval()(ids, model.initial_state(2))
    assert torch.equal(trained, evaluated)


def test_the_first_state_follows_the_model(make: Make) -> None:
    for dtype in (torch.float32, torch.float64):
        state = make().to(dtype).initial_state(5)
        assert all(part.dtype == dtype and part.shape == (2, 5, 4) and not part.any() for part in state)
    with torch.device("meta"):
        model = LSTM(LSTMConfig(), vocab_size=11)
    assert model.initial_state(1)[0].device.type == "meta"


def test_the_registry() -> None:
    built = backbones.build("lstm", vocab_size=11, hidden_size=4)
    assert isinstance(built, LSTM)
    assert built.hidden_size == 4
    with pytest.raises(ConfigurationError, match="unknown backbone 'gru'; known backbones are lstm"):
        backbones.build("gru", vocab_size=11)


@pytest.mark.parametrize("wrong", [{"embedding_size": 0}, {"hidden_size": -1}, {"layers": 0}])
def test_impossible_sizes(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))} must be at least 1, not {min(wrong.values())}"):
        LSTMConfig(**wrong)


@pytest.mark.parametrize("dropout", [1.0, -0.1, float("nan")])
def test_impossible_dropout(dropout: float) -> None:
    with pytest.raises(ConfigurationError, match=r"dropout must be in \[0, 1\), not"):
        LSTMConfig(dropout=dropout)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_all_layers_are_the_stack_one_by_one(layers: int) -> None:
    """The last of them is torch's own stack with the same weights, and so are the states; the first sees no other."""
    settings: dict[str, Any] = {"embedding_size": 3, "hidden_size": 4, "dropout": 0.0}
    every = LSTM(LSTMConfig(layers=layers, **settings), vocab_size=11, all_layers=True).double()
    assert every.layer_sizes == (4,) * layers
    assert every.hidden_size == 4 * layers
    ids = torch.randint(11, (5, 2), generator=torch.Generator().manual_seed(0))
    state = (torch.randn(layers, 2, 4).double(), torch.randn(layers, 2, 4).double())
    hidden, after = every(ids, state)
    assert hidden.shape == (5, 2, 4 * layers)
    for count in range(1, layers + 1):
        stack = LSTM(LSTMConfig(layers=count, **settings), vocab_size=11).double()
        stack.embedding.load_state_dict(every.embedding.state_dict())
        if layers == 1:
            stack.load_state_dict(every.state_dict())
        else:
            for name, parameter in stack.lstm.named_parameters():
                kind, _, layer = name.rpartition("_l")
                parameter.data.copy_(every.layers[int(layer)].get_parameter(f"{kind}_l0").data)
        expected, theirs = stack(ids, tuple(part[:count] for part in state))
        torch.testing.assert_close(hidden[..., 4 * (count - 1) : 4 * count], expected)
        torch.testing.assert_close(tuple(part[:count] for part in after), theirs)


def test_all_layers_are_dropped_out_in_training_alone() -> None:
    lstm = LSTM(LSTMConfig(embedding_size=3, hidden_size=50, layers=2, dropout=0.5), vocab_size=11, all_layers=True)
    ids = torch.zeros(1, 1, dtype=torch.long)
    for part in lstm(ids, lstm.initial_state(1))[0].split(50, -1):
        assert 10 < (part == 0).sum() < 40
    assert (lstm.eval()(ids, lstm.initial_state(1))[0] != 0).all()
