"""Heads under torch.compile and under DistributedDataParallel (tests/training/test_distributed.py trains by two)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head

Make = Callable[..., Head]


class Loss(nn.Module):
    """The loss of a tiny model whose input embeddings are the head's."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head, self.embedding = head, nn.Embedding(7, 3, dtype=torch.float64)
        head.tie(self.embedding)
        self.before = nn.Linear(3, 5, dtype=torch.float64)

    def forward(self, ids: Tensor, targets: Tensor, ignore_index: int | None = None) -> Tensor:
        return self.head.nll(torch.tanh(self.before(self.embedding(ids))), targets, ignore_index=ignore_index)


# torch's own compiler uses what torch has deprecated, and looks at gradients that are not there.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute of a Tensor:UserWarning")
def test_compiled_training_steps(make: Make) -> None:
    """The same loss and gradients, also for other numbers of rows and with `ignore_index`."""
    torch.compiler.reset()
    loss = Loss(make("mos"))
    compiled = torch.compile(loss, backend="aot_eager")
    for rows, ignore in ((6, None), (6, None), (9, 2)):
        ids, targets = torch.randint(7, (rows,)), torch.randint(7, (rows,))
        ours, expected = compiled(ids, targets, ignore), loss(ids, targets, ignore)
        torch.testing.assert_close(ours, expected, rtol=1e-13, atol=0)
        found, wanted = (torch.autograd.grad(each, list(loss.parameters())) for each in (ours, expected))
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-14)


@pytest.fixture(scope="module")
def _group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    place: Path = tmp_path_factory.mktemp("group") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("_group")
@pytest.mark.parametrize("name", heads.REGISTRY)
def test_gradients_that_are_reduced_in_buckets(name: str, make: Make) -> None:
    """Each parameter's gradient arrives once, that of tied embeddings too."""
    loss, ids, targets = Loss(make(name)), torch.randint(7, (8,)), torch.randint(7, (8,))
    assert loss.head.weight is loss.embedding.weight
    alone = copy.deepcopy(loss)
    parallel = nn.parallel.DistributedDataParallel(loss, gradient_as_bucket_view=True)
    for each in (parallel, alone):
        each(ids, targets).backward()
    for (key, parameter), expected in zip(loss.named_parameters(), alone.parameters(), strict=True):
        assert parameter.grad is not None, key
        assert parameter.grad.any(), key
        torch.testing.assert_close(parameter.grad, expected.grad, rtol=1e-10, atol=1e-14)
