"""``bottleneck bench transformers``: GPT-2 with several output layers beside its own cross entropy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..core.machine import machine
from ..core.progress import SILENT, Progress
from ..core.version import __version__
from .in_turn import Goal, check_goals, ratio, run_cases

HEADS: dict[str, dict[str, Any]] = {"softmax": {}, "mos": {"components": 4}, "lms-plif": {}}
OWN = "own"
"""The model's own output layer and cross entropy."""
TOKENS = 1024


@dataclass(frozen=True, kw_only=True)
class Case:
    """One forward and backward pass in float32."""

    head: str
    """A registered head, or `OWN`."""
    whole: bool
    """Whether the pass is the model's, or that of the output layer alone."""
    device: str = "cpu"
    shrink: int = 1

    @property
    def shape(self) -> dict[str, Any]:
        """Settings of GPT-2 small (Radford et al. 2019, table 2); a smaller one has one layer of a width of 8 n."""
        layers, heads, vocab = (12, 12, 50_257) if self.shrink == 1 else (1, 2, 50_257 // self.shrink)
        return {"n_embd": 8 * max(1, 96 // self.shrink), "n_layer": layers, "n_head": heads, "vocab_size": vocab}


def bench_transformers(
    *, device: str = "cpu", runs: int = 3, shrink: int = 1, progress: Progress = SILENT
) -> dict[str, Any]:
    """Time the training step of GPT-2 with several output layers beside the step with its own cross entropy.

    Each case runs in a process of its own, all in turn.

    Args:
        device: ``"cpu"`` or a CUDA device.
        runs: timed runs of each case at most.
        shrink: divides width, vocabulary and tokens: 1 for the figures that count.
        progress: where to report.

    Returns:
        ``machine``, ``cases`` (median seconds, bytes above the process with its input, and the loss) and ``asked``, the
        project's goals: see `check_goals`.

    Raises:
        BottleneckError: when a case fails.
    """
    cases = {
        f"{name}, {'whole step' if whole else 'output layer'}": Case(
            head=name, whole=whole, device=device, shrink=shrink
        )
        for whole in (False, True)
        for name in (OWN, *HEADS)
    }
    imports = ["transformers.models.gpt2.modeling_gpt2"]
    how: dict[str, Any] = {"runs": runs, "warm_up": shrink == 1, "imports": imports, "progress": progress}
    rows = run_cases(cases, _work, device=device, shrink=shrink, **how)
    return {
        "machine": machine(device),
        "tokens": TOKENS // shrink,
        "shape": Case(head=OWN, whole=True, shrink=shrink).shape,
        "cases": rows,
        "asked": check_goals(_goals(rows)),
        "version": __version__,
    }


def _goals(rows: dict[str, dict[str, Any]]) -> list[Goal]:
    goals: list[Goal] = []
    for part in ("output layer", "whole step"):
        own = f"{OWN}, {part}"
        goals += [
            (f"Softmax, {part}: seconds / own", ratio(rows, f"softmax, {part}", own), "<=", 1.0),
            (f"LMS-PLIF, {part}: seconds / own", ratio(rows, f"lms-plif, {part}", own), "<=", 1.5),
        ]
    mos, softmax, own = (f"{head}, output layer" for head in ("mos", "softmax", OWN))
    return [
        *goals,
        ("Softmax, output layer: memory / own", ratio(rows, softmax, own, "memory_bytes"), "<=", 1 / 4),
        ("MoS, K = 4, output layer: seconds / four of Softmax", ratio(rows, mos, softmax) / 4, "<=", 1.15),
    ]


def _work(case: Case) -> Callable[[], dict[str, float]]:
    """Make a case's input, and return its step, which tells its loss."""
    import torch

    torch.manual_seed(0)
    tokens = TOKENS // case.shrink
    with torch.device(case.device):
        ids = torch.randint(case.shape["vocab_size"], (1, tokens))
        hidden = torch.randn(1, tokens, case.shape["n_embd"], requires_grad=True)
        model = _model(case, tokens)
    step = partial(model, ids, labels=ids, use_cache=False) if case.whole else partial(_alone, model, hidden, ids)

    def work() -> dict[str, float]:
        model.zero_grad()
        hidden.grad = None
        loss = step().loss if case.whole else step()
        loss.backward()
        return {"loss": float(loss.detach())}

    return work


def _model(case: Case, tokens: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    from ..integrations.transformers import with_head

    model = GPT2LMHeadModel(
        GPT2Config(**case.shape, n_positions=tokens)
    ).eval()  # no dropout, for one loss in all cases
    return model if case.head == OWN else with_head(model, case.head, **HEADS[case.head])


def _alone(model: Any, hidden: Any, ids: Any) -> Any:
    """Return the loss of the output layer, from hidden states."""
    if hasattr(model, "head"):
        return model.head.nll(hidden[:, :-1], ids[:, 1:])
    return model.loss_function(logits=model.lm_head(hidden), labels=ids, vocab_size=model.config.vocab_size)
