"""Heads under torch.compile and under DistributedDataParallel, whose processes are real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head


# torch's own compiler uses what torch has deprecated, and looks at gradients that are not there.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("name", ["mos"])
def test_compiled_training_steps(name: str, make: Callable[..., Head]) -> None:
    """The same loss and gradients, also for other numbers of rows and with `ignore_index`."""
    torch.compiler.reset()
    head, before = make(name), torch.nn.Linear(5, 5).double()

    def loss(inputs: Tensor, targets: Tensor, ignore_index: int | None) -> Tensor:
        return head.nll(torch.tanh(before(inputs)), targets, ignore_index=ignore_index)

    compiled = torch.compile(loss, backend="aot_eager")
    for rows, ignore in ((6, None), (6, None), (9, 2)):
        inputs, targets = torch.randn(rows, 5).double(), torch.randint(7, (rows,))
        learned = [*before.parameters(), *head.parameters()]
        ours, expected = compiled(inputs, targets, ignore), loss(inputs, targets, ignore)
        torch.testing.assert_close(ours, expected, rtol=1e-13, atol=0)
        found, wanted = torch.autograd.grad(ours, learned), torch.autograd.grad(expected, learned)
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-14)


DDP = """
import copy
import sys

import torch
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel

from softmax_bottleneck import heads
from softmax_bottleneck.core.parallel import launched


def compare(name, rank):
    torch.manual_seed(0)
    settings = {"knots": 50} if "plif" in name else {}
    head = heads.build(name, hidden_size=6, vocab_size=20, embedding_size=4, **settings).double()

    class Loss(torch.nn.Module):
        def __init__(self, head):
            super().__init__()
            self.head, self.embedding = head, torch.nn.Embedding(20, 4, dtype=torch.float64)
            head.tie(self.embedding)
            self.before = torch.nn.Linear(4, 6, dtype=torch.float64)

        def forward(self, ids, targets):
            return self.head.nll(self.before(self.embedding(ids)), targets)

    model = Loss(head)
    alone = copy.deepcopy(model)
    ids, targets = torch.randint(20, (8,)), torch.randint(20, (8,))
    parallel = DistributedDataParallel(model)
    parallel(ids[rank::2], targets[rank::2]).backward()
    found = {f"found.{key}": parameter.grad for key, parameter in model.named_parameters()}
    if rank == 0:
        alone(ids, targets).backward()
        whole = {f"whole.{key}": parameter.grad for key, parameter in alone.named_parameters()}
        save_file(found | whole, f"{sys.argv[1]}/{name}.safetensors")


with launched() as processes:
    for name in heads.REGISTRY:
        compare(name, processes.index)
"""


def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    """Half of the batch each; DistributedDataParallel's mean of the gradients is that of the whole batch."""
    (tmp_path / "program.py").write_text(DDP, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*launcher, str(tmp_path / "program.py"), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for name in heads.REGISTRY:
        tensors = load_file(tmp_path / f"{name}.safetensors")
        found = {key.removeprefix("found."): value for key, value in tensors.items() if key.startswith("found.")}
        assert "head.weight" in found
        for key, gradient in found.items():
            assert gradient.any(), (name, key)
            torch.testing.assert_close(gradient, tensors[f"whole.{key}"], rtol=1e-10, atol=1e-14)
