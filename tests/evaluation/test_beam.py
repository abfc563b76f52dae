"""Beam search against every sequence there is."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.evaluation import Beam, Response, beam_search
from softmax_bottleneck.heads import REGISTRY
from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig
from softmax_bottleneck.language_models.reading import Batch

VOCAB, END, LONGEST = 4, 0, 3
SIZES = {"embedding_size": 3, "line_size": 3, "context_size": 4, "hidden_size": 5}
CONTEXTS = torch.tensor([[[1, 2], [2, -1]], [[3, 3], [1, 2]]]).permute(1, 2, 0).contiguous()  # two texts of two lines
FIRST = torch.tensor([[1, 2]])


def _model(head: str = "mos", **settings: Any) -> LanguageModel:
    torch.manual_seed(5)
    config = ModelConfig.model_validate(
        {"backbone": {"name": "encoder-decoder", **SIZES}, "head": {"name": head, **settings}, "tie_embeddings": False}
    )
    model = LanguageModel(config, vocab_size=VOCAB).double().eval()
    for weight in model.parameters():
        weight.data *= 3  # so that likely and unlikely responses differ
    return model


def _exhaustive(model: LanguageModel, text: int) -> list[Response]:
    """Score every response of at most `LONGEST` tokens as a whole, teacher-forced."""
    found = []
    for length in range(1, LONGEST + 1):
        for ids in itertools.product(range(VOCAB), repeat=length):
            cut_off = length == LONGEST and END not in ids
            if cut_off or (ids[-1] == END and END not in ids[:-1]):
                inputs = torch.tensor([FIRST[0, text].item(), *ids[:-1]]).unsqueeze(1)
                hidden, _ = model.hidden(inputs, contexts=CONTEXTS[..., text : text + 1])
                log_probs = model.head.log_prob(hidden)[:, 0]
                score = sum(log_probs[step, token].item() for step, token in enumerate(ids))
                found.append(Response(tuple(token for token in ids if token != END), score))
    return sorted(found, key=lambda each: -each.log_prob)


@torch.no_grad()
@pytest.mark.parametrize("head", [name for name, cls in REGISTRY.items() if not cls.takes_all_layers])
def test_a_wide_beam_finds_the_likeliest_of_all_responses(head: str) -> None:
    model = _model(head, **({"knots": 50} if "plif" in head else {}))
    everything = VOCAB**LONGEST
    settings = Beam(size=everything, longest=LONGEST, kept=7)
    found = beam_search(model, Batch(FIRST, FIRST, CONTEXTS), end=END, settings=settings)
    for text, responses in enumerate(found):
        expected = _exhaustive(model, text)[:7]
        assert [each.log_prob for each in responses] == pytest.approx([each.log_prob for each in expected], rel=1e-9)
        assert [each.ids for each in responses] == [each.ids for each in expected]


@torch.no_grad()
@pytest.mark.parametrize("size", [1, 3])
def test_a_narrow_beam_is_what_the_definition_says(size: int) -> None:
    """Against the search written down with lists, one text at a time."""
    for wrong in ({"size": 0, "kept": 0}, {"size": 3, "kept": 4}, {"longest": 0}):
        with pytest.raises(ConfigurationError, match="a response needs at least 1 token"):
            Beam(**wrong)
    model = _model()
    found = beam_search(model, Batch(FIRST, FIRST, CONTEXTS), end=END, settings=Beam(size=size, longest=6, kept=size))
    for text, responses in enumerate(found):
        beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        for _ in range(6):
            longer = []
            for score, ids in beams:
                if ids and ids[-1] == END:
                    longer.append((score, ids))
                    continue
                inputs = torch.tensor([FIRST[0, text].item(), *ids]).unsqueeze(1)
                hidden, _ = model.hidden(inputs, contexts=CONTEXTS[..., text : text + 1])
                log_probs = model.head.log_prob(hidden[-1, 0]).tolist()
                longer += [(score + log_probs[token], (*ids, token)) for token in range(VOCAB)]
            beams = sorted(longer, reverse=True)[:size]
        assert [each.log_prob for each in responses] == pytest.approx([score for score, _ in beams], rel=1e-9)
        assert [each.ids for each in responses] == [tuple(i for i in ids if i != END) for _, ids in beams]
