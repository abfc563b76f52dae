"""A measurement leaves a module as it was, whatever its forward pass writes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import softmax_bottleneck as sb
from softmax_bottleneck.errors import SourceError
from softmax_bottleneck.integrations import model_statistics

M, d = 30, 6
IDS = torch.randint(M, (8, 12), generator=torch.Generator().manual_seed(0))


class Bigram(nn.Module):
    """A model from ids to logits whose forward pass changes it."""

    def __init__(self, write: Callable[[Any, Tensor], object]) -> None:
        super().__init__()
        self.embedding, self.norm, self.out = nn.Embedding(M, d), nn.BatchNorm1d(d), nn.Linear(d, M)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("steps", torch.zeros(2))
        self.calls, self.seen, self.cache, self.recent = 0, set(), {}, []
        self.tensor, self.array, self.object = torch.zeros(3), np.zeros(3), SimpleNamespace(n=0, all=[])
        self._write = [write]

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.embedding(ids)
        with torch.no_grad():
            self._write[0](self, hidden)
        return self.out(self.drop(hidden))


def _count(self: Any, hidden: Tensor) -> None:
    self.calls += 1
    self.seen.add(self.calls)
    self.cache[self.calls] = hidden
    self.recent.append([hidden])
    self.object.n += 1
    self.object.all.append(hidden)


def _buffers(self: Any, hidden: Tensor) -> None:
    self.steps.add_(1)
    self.steps.data[0] += 1
    self.tensor[1] = 7
    self.array += 1
    if not hasattr(self, "mask"):
        self.register_buffer("mask", torch.ones(3))


def _parameters(self: Any, hidden: Tensor) -> None:
    self.out.weight.div_(2)
    torch.mul(self.out.bias, 3, out=self.out.bias)
    self.embedding.weight.data = self.embedding.weight.data * 2
    self.norm.weight = nn.Parameter(torch.zeros(d))
    self.register_parameter("late", nn.Parameter(torch.zeros(2)))


def _statistics(self: Any, hidden: Tensor) -> None:
    F.batch_norm(hidden.transpose(1, 2), self.norm.running_mean, self.norm.running_var, training=True)
    self.norm.train()(hidden.transpose(1, 2))
    F.embedding(IDS, self.embedding.weight, max_norm=0.1)


def _structure(self: Any, hidden: Tensor) -> None:
    self.drop = nn.Identity()
    self.extra = nn.Linear(2, 2)
    self.out.half().float()
    self.requires_grad_(True).register_forward_hook(lambda *_: None)


WRITES = (_count, _buffers, _parameters, _statistics, _structure)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_module_is_the_same_after_a_measurement(write: Any) -> None:
    torch.manual_seed(0)
    model = Bigram(write).train()
    model.drop.eval()
    before, places = pickle.dumps(model), {key: each.data_ptr() for key, each in model.state_dict().items()}
    for measure in (sb.rank, sb.kld):
        measure(model, data=[IDS])
        assert pickle.dumps(model) == before
        assert {key: each.data_ptr() for key, each in model.state_dict().items()} == places


class Merged(nn.Linear):
    """Low-rank weights that evaluation mode adds to the weight, as the package loralib does."""

    merged = False

    def train(self, mode: bool = True) -> Any:
        if self.merged == mode:
            self.weight.data += 0.5 if mode is False else -0.5
            self.merged = not mode
        return super().train(mode)


def test_what_evaluation_mode_writes_is_undone() -> None:
    model = nn.Sequential(nn.Embedding(M, d), Merged(d, M)).train()
    before = copy.deepcopy(model.state_dict())
    sb.rank(model, data=[IDS])
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert model[1].training
    assert not model[1].merged


def test_a_failure_changes_nothing() -> None:
    def fail(self: Any, hidden: Tensor) -> None:
        _count(self, hidden)
        _parameters(self, hidden)
        raise IndexError("too long")

    model = Bigram(fail)
    before = {key: each.clone() for key, each in model.state_dict().items()}
    with pytest.raises(SourceError, match="too long"):
        sb.rank(model, data=[IDS])
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert model.calls == 0


def test_parameters_without_numbers_are_refused() -> None:
    model = nn.Sequential(nn.Embedding(M, d), nn.LazyLinear(M))
    with pytest.raises(SourceError, match=r"the parameter 1\.weight of Sequential has no numbers yet: run the module"):
        sb.rank(model, data=[IDS])


def test_threads_measure_one_module_in_turn() -> None:
    torch.manual_seed(0)
    model = Bigram(_count).train()
    expected = sb.rank(model, data=[IDS]).spectrum.values
    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(lambda _: sb.rank(model, data=[IDS]), range(16)))
    assert all((report.spectrum.values == expected).all() for report in reports)
    assert model.training
    assert model.calls == 0


@pytest.mark.parametrize("mode", [True, False])
def test_rwkv_keeps_its_weights(mode: bool) -> None:
    """It halves the weights of its seventh block and those after it when it is evaluated, and doubles them again."""
    from transformers import RwkvConfig, RwkvForCausalLM

    sizes = {"hidden_size": 16, "attention_hidden_size": 16, "intermediate_size": 32, "context_length": 64}
    torch.manual_seed(0)
    model = RwkvForCausalLM(RwkvConfig(vocab_size=M, num_hidden_layers=14, **sizes)).train(mode)
    before, ids = copy.deepcopy(model.state_dict()), torch.randint(M, (100,))
    own = copy.deepcopy(model).eval()(ids[None, :64]).logits[0].detach()
    source = sb.open(model, data=ids, context_length=64, stride=64)
    rows = next(iter(source.blocks([range(64)]))).log_probs
    torch.testing.assert_close(torch.from_numpy(rows), own.log_softmax(-1), rtol=1e-4, atol=1e-5)
    model_statistics(model, ids.view(5, 20))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert (model.training, model.rwkv.layers_are_rescaled) == (mode, False)
