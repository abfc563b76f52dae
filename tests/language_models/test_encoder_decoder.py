"""The encoder–decoder against its formulas, one pair and one token at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.language_models.backbones import EncoderDecoder, EncoderDecoderConfig, build

from .conftest import lstm

SIZES = {"embedding_size": 4, "line_size": 3, "context_size": 5, "hidden_size": 6}
CONTEXTS = [[[1, 2, 3], [4, 5]], [[6]], [[1, 2, 3], [7], [7, 8, 9, 1]]]
TEXTS = [[2, 3, 4], [5, 6, 7], [1, 9, 9]]


@pytest.fixture
def model() -> EncoderDecoder:
    torch.manual_seed(0)
    return EncoderDecoder(EncoderDecoderConfig(**SIZES), vocab_size=10).double().eval()


def _batch(contexts: list[list[list[int]]]) -> Tensor:
    lines, length = max(map(len, contexts)), max(len(line) for lines in contexts for line in lines)
    batch = torch.full((lines, length, len(contexts)), -1)
    for column, context in enumerate(contexts):
        for number, line in enumerate(context):
            batch[number, : len(line), column] = torch.tensor(line)
    return batch


def _weights(layer: nn.LSTM, suffix: str = "") -> list[Tensor]:
    return [layer.get_parameter(f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def _formula(model: EncoderDecoder, context: list[list[int]], text: list[int]) -> Tensor:
    embed = model.embedding.weight
    encodings, words = [], []
    for line in context:
        forth, _ = lstm(embed[line], _weights(model.line_encoder))
        back, _ = lstm(embed[line].flip(0), _weights(model.line_encoder, "_reverse"))
        words.append([torch.cat(both) for both in zip(forth, back.flip(0), strict=True)])
        encodings.append(torch.cat([forth[-1], back[-1]]))
    contexts, _ = lstm(encodings, _weights(model.context_encoder))
    h, c = (model.start.weight @ contexts[-1] + model.start.bias).chunk(2)
    memory = [
        model.token_memory.weight @ word + model.line_memory.weight @ u
        for line, u in zip(words, contexts, strict=True)
        for word in line
    ]
    states, _ = lstm(embed[text], _weights(model.decoder), h=h.tanh(), c=c)
    hidden = []
    for s in states:
        weights = torch.stack([m @ s for m in memory]).exp()
        attended = sum((w * m for w, m in zip(weights / weights.sum(), memory, strict=True)), torch.zeros_like(s))
        hidden.append(torch.tanh(model.combine.weight @ torch.cat([s, attended])))
    return torch.stack(hidden)


def test_the_hidden_states_are_those_of_the_formulas(model: EncoderDecoder) -> None:
    hidden, _ = model(torch.tensor(TEXTS).T, model.read(_batch(CONTEXTS)))
    for column, (context, text) in enumerate(zip(CONTEXTS, TEXTS, strict=True)):
        torch.testing.assert_close(hidden[:, column], _formula(model, context, text), rtol=1e-12, atol=1e-12)


def test_a_pair_alone_token_by_token_and_with_more_padding_gives_the_same(model: EncoderDecoder) -> None:
    contexts, ids = _batch(CONTEXTS), torch.tensor(TEXTS).T
    hidden, after = model(ids, model.read(contexts))
    for column, context in enumerate(CONTEXTS):
        state = model.read(_batch([context]))
        for step, token in enumerate(TEXTS[column]):
            alone, state = model(torch.tensor([[token]]), state)
            torch.testing.assert_close(alone[0, 0], hidden[step, column], rtol=1e-12, atol=1e-12)
        for part, one in zip(after[:2], state[:2], strict=True):
            torch.testing.assert_close(part[:, column], one[:, 0])
    wide = torch.full((6, 9, 3), -1)
    wide[:3, :4] = contexts
    torch.testing.assert_close(model(ids, model.read(wide))[0], hidden)


def test_without_a_context_there_is_nothing_to_attend_to(model: EncoderDecoder) -> None:
    ids = torch.tensor(TEXTS).T
    none, _ = model(ids, model.initial_state(3))
    assert none.isfinite().all()
    mixed = torch.full((1, 1, 3), -1)
    mixed[0, 0, 1] = 6
    some, _ = model(ids, model.read(mixed))
    torch.testing.assert_close(some[:, [0, 2]], none[:, [0, 2]])
    torch.testing.assert_close(some[:, 1], _formula(model, [[6]], TEXTS[1]))


def test_dropout_is_for_training_alone() -> None:
    model = build("encoder-decoder", vocab_size=10, dropout=0.5, **SIZES)
    ids, contexts = torch.tensor(TEXTS).T, _batch(CONTEXTS)
    model.train()
    assert not torch.equal(model(ids, model.read(contexts))[0], model(ids, model.read(contexts))[0])
    model.eval()
    assert torch.equal(model(ids, model.read(contexts))[0], model(ids, model.read(contexts))[0])


def test_a_stream_model_refuses_contexts() -> None:
    lstm = build("lstm", vocab_size=10)
    assert lstm.context_lines is None
    with pytest.raises(ConfigurationError, match="LSTM reads a text as one stream, without contexts"):
        lstm.read(_batch(CONTEXTS))
