"""A measurement leaves a module as it was, or refuses one whose forward pass writes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import softmax_bottleneck as sb
from softmax_bottleneck.errors import SourceError
from softmax_bottleneck.integrations import model_statistics

M, d = 30, 6
IDS = torch.randint(M, (8, 12), generator=torch.Generator().manual_seed(0))


class Bigram(nn.Module):
    """A model from ids to logits whose forward pass does something more."""

    def __init__(self, more: Callable[[Any], object]) -> None:
        super().__init__()
        self.embedding, self.out, self.drop = nn.Embedding(M, d), nn.Linear(d, M), nn.Dropout(0.5)
        self.register_buffer("steps", torch.zeros(2))
        self._more = [more]

    def forward(self, ids: Tensor) -> Tensor:
        self._more[0](self)
        return self.out(self.drop(self.embedding(ids)))


def test_modes_of_all_parts_random_state_and_gradients_are_as_before() -> None:
    model = Bigram(lambda self: torch.rand(3)).train()
    model.drop.eval()
    before, state, random = copy.deepcopy(model.state_dict()), [*map(_mode, model.modules())], torch.get_rng_state()
    for measure in (sb.rank, sb.kld):
        measure(model, data=[IDS])
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert [*map(_mode, model.modules())] == state
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.is_grad_enabled()


def _mode(module: nn.Module) -> bool:
    return module.training


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda self: self.steps.add_(1), "steps"),
        (lambda self: self.out.weight.div_(2), r"out\.weight"),
        (lambda self: torch.mul(self.out.bias, 3, out=self.out.bias), r"out\.bias"),
    ],
)
def test_a_module_that_writes_is_refused(write: Any, name: str) -> None:
    model = Bigram(write).train()
    with pytest.raises(SourceError, match=f"forward pass of Bigram writes to its {name}, so .*: measure a function"):
        sb.rank(model, data=[IDS])
    assert model.training


class Merged(nn.Linear):
    """Low-rank weights that evaluation mode adds to the weight, as the package loralib does."""

    merged = False

    def train(self, mode: bool = True) -> Any:
        if self.merged == mode:
            self.weight.data += 0.5 if mode is False else -0.5
            self.merged = not mode
        return super().train(mode)


def test_what_evaluation_mode_merges_is_separate_again() -> None:
    model = nn.Sequential(nn.Embedding(M, d), Merged(d, M)).train()
    before = copy.deepcopy(model.state_dict())
    sb.rank(model, data=[IDS])
    torch.testing.assert_close(model.state_dict(), before)
    assert model[1].training
    assert not model[1].merged


def test_parameters_without_numbers_are_refused() -> None:
    model = nn.Sequential(nn.Embedding(M, d), nn.LazyLinear(M))
    with pytest.raises(SourceError, match=r"the parameter 1\.weight of Sequential has no numbers yet: run the module"):
        sb.rank(model, data=[IDS])


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
