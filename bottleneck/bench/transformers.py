"""``bottleneck bench transformers``: GPT-2 with several output layers beside its own cross entropy."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ..core.progress import SILENT, Progress
from .in_turn import Goal, Work, in_turn, report

HEADS: dict[str, dict[str, Any]] = {"softmax": {}, "mos": {"components": 4}, "lms-plif": {}}
OWN = "own"
"""The model's own output layer and cross entropy."""
PARTS = {"output layer": False, "whole step": True}
"""Whether a case runs the whole model."""
TOKENS = 1024
GOALS = (
    *(
        Goal(f"{label}, {part}: seconds / own", f"{head}, {part}", "<=", bound, f"{OWN}, {part}")
        for part in PARTS
        for label, head, bound in (("Softmax", "softmax", 1.0), ("LMS-PLIF", "lms-plif", 1.5))
    ),
    Goal("Softmax, output layer: memory / own", "softmax, output layer", "<=", 1 / 4, "own, output layer",
         "memory_bytes"),
    Goal("MoS, K = 4, output layer: seconds / four of Softmax", "mos, output layer", "<=", 1.15,
         "softmax, output layer", unit=4),
)  # fmt: skip


def bench_transformers(
    *, device: str = "cpu", runs: int = 3, shrink: int = 1, progress: Progress = SILENT
) -> dict[str, Any]:
    """Time the training step of GPT-2 with several output layers beside the step with its own cross entropy.

    Each case, with at most ``runs`` timed runs, is a forward and backward pass in float32, and has its ``loss``.
    ``shrink`` divides width, vocabulary and tokens.
    """
    cases = {
        f"{head}, {part}": partial(_work, head=head, whole=whole, device=device, shrink=shrink)
        for part, whole in PARTS.items()
        for head in (OWN, *HEADS)
    }
    imports = ["transformers.models.gpt2.modeling_gpt2"]
    rows = in_turn(cases, device=device, runs=runs, warm_up=shrink == 1, imports=imports, progress=progress)
    return report(rows, GOALS, device=device, tokens=TOKENS // shrink, shape=_shape(shrink))


def _shape(shrink: int) -> dict[str, Any]:
    """Return settings of GPT-2 small (Radford et al. 2019, table 2); a smaller one has one layer of a width of 8 n."""
    layers, heads, vocab = (12, 12, 50_257) if shrink == 1 else (1, 2, 50_257 // shrink)
    return {"n_embd": 8 * max(1, 96 // shrink), "n_layer": layers, "n_head": heads, "vocab_size": vocab}


def _work(*, head: str, whole: bool, device: str, shrink: int) -> Work:
    """Make a case's input, and return its step, which returns its loss."""
    torch.manual_seed(0)
    tokens, shape = TOKENS // shrink, _shape(shrink)
    with torch.device(device):
        ids = torch.randint(shape["vocab_size"], (1, tokens))
        hidden = torch.randn(1, tokens, shape["n_embd"], requires_grad=True)
        model = _model(head, shape, tokens)

    def loss() -> torch.Tensor:
        if whole:
            return model(ids, labels=ids, use_cache=False).loss
        if head == OWN:
            return model.loss_function(logits=model.lm_head(hidden), labels=ids, vocab_size=shape["vocab_size"])
        return model.head.nll(hidden[:, :-1], ids[:, 1:])

    def work() -> dict[str, float]:
        model.zero_grad()
        hidden.grad = None
        value = loss()
        value.backward()
        return {"loss": float(value.detach())}

    return work


def _model(head: str, shape: dict[str, Any], tokens: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    from ..integrations.transformers import with_head

    model = GPT2LMHeadModel(GPT2Config(**shape, n_positions=tokens)).eval()  # no dropout, for one loss in all cases
    return model if head == OWN else with_head(model, head, **HEADS[head])
