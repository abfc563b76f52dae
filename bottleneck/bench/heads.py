"""``bottleneck bench heads``: each output layer's training step against its plain formulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import heads
from ..core import plugins
from ..core.machine import machine
from ..core.progress import SILENT, Progress
from ..core.version import __version__
from ..errors import ConfigurationError
from ..heads import Head
from ..heads.lms_net import MonotonicNetwork
from ..heads.plif import PLIF
from ..heads.scores import Scores
from .in_turn import Goal, check_goals, ratio, run_cases

COMPONENTS = (5, 7, 10, 15)
"""K of table 13 of Yang et al. 2018, where training times are compared."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training step: forward and backward, in float32."""

    head: str
    """A registered head, or ``"products"`` for the matrix products alone."""
    contexts: int
    """N."""
    size: int
    """d, of hidden states and output embeddings."""
    vocab: int
    """M."""
    components: int = 1
    """K, for heads with components."""
    plain: bool = False
    """Whether the step is that of the plain formulation, which holds N × K × M tensors."""
    device: str = "cpu"

    @property
    def floor(self) -> float:
        """Floating-point operations of the three matrix products of a step, a lower bound for any exact step.

        Each product is N·K × d × M; MoC mixes its K contexts into one before them.
        """
        softmaxes = 1 if self.head == "moc" else self.components
        return 6.0 * self.contexts * softmaxes * self.size * self.vocab


MOS = Case(head="mos", contexts=840, size=280, vocab=10_000, components=15)
"""The Penn Treebank model of Yang et al. 2018: 12 texts of 70 tokens."""
BILLION = Case(head="mos", contexts=2_100, size=280, vocab=100_000, components=7)
"""Contexts, vocabulary and K of the 1B Word model of Yang et al. 2018 (table 10), which has d = 900."""
POINTWISE = Case(head="softmax", contexts=1_400, size=400, vocab=10_000)
"""The Penn Treebank model of Ganea et al. 2019 (d = 400), with AWD-LSTM's 20 texts of 70 tokens."""
OTHERS = {"moc": 15, "sigsoftmax": 1, "gss": 1, "lms-plif": 1, "lms-net": 1, "mos-plif": 5, "doc": 5, "mixtape": 4}
"""The heads timed at ``POINTWISE``'s shape, with their K."""


def bench_heads(
    *, only: Collection[str] = (), device: str = "cpu", shrink: int = 1, progress: Progress = SILENT
) -> dict[str, Any]:
    """Measure the time of every head's training step and of its plain formulation, each in its own process.

    Args:
        only: heads to measure beside the matrix products; by default all.
        device: ``"cpu"`` or a CUDA device.
        shrink: divisor of contexts and vocabulary of every case; the goals hold for 1.
        progress: progress display.

    Returns:
        ``machine``, ``cases`` (median ``seconds`` of the ``runs``, which are in turn; bytes above the idle process;
        GFLOP/s of the floor, and their share of the rate of the matrix products beside them), ``slowdown`` over
        Softmax by K, and ``asked``, the project's goals: see `check_goals`. The last two hold what ``only`` leaves.

    Raises:
        ConfigurationError: for a head in ``only`` that has no case.
        BottleneckError: when a case fails.
    """
    cases = _cases()
    known = {case.head for case in cases.values()} - {"products"}
    if unknown := sorted(set(only) - known):
        raise ConfigurationError(f"no head {unknown[0]!r} is timed; those timed are {', '.join(sorted(known))}")
    cases = {
        name: replace(case, contexts=max(1, case.contexts // shrink), vocab=max(2, case.vocab // shrink), device=device)
        for name, case in cases.items()
        if not only or case.head in {"products", *only}
    }
    rows: dict[str, dict[str, Any]] = {}
    for group in _comparable(cases):
        measured = run_cases(group, _work, device=device, shrink=shrink, progress=progress)
        rates = {name: case.floor / measured[name]["seconds"] / 1e9 for name, case in group.items()}
        products = next(rates[name] for name, case in group.items() if case.head == "products")
        rows |= {
            name: {**row, "gflops": rates[name], "share": rates[name] / products} for name, row in measured.items()
        }
    return {
        "machine": machine(device),
        "device": device,
        "shrink": shrink,
        "cases": rows,
        "slowdown": {
            formulation: {str(K): ratio(rows, f"mos K={K}{suffix}", f"softmax d=280{suffix}") for K in COMPONENTS}
            for formulation, suffix in (("ours", ""), ("plain", " plain")) if not only or {"mos", "softmax"} <= {*only}
        },
        "asked": check_goals(_goals(rows)),
        "version": __version__,
    }  # fmt: skip


def _cases() -> dict[str, Case]:
    """Return every case by name, with its plain formulation if that fits into memory."""
    ours = {
        "softmax d=280": replace(MOS, head="softmax", components=1),
        **{f"mos K={K}": replace(MOS, components=K) for K in COMPONENTS},
        "softmax": POINTWISE,
        **{head: replace(POINTWISE, head=head, components=K) for head, K in OTHERS.items()},
        **{head: replace(POINTWISE, head=head, components=_components(head)) for head in plugins.names("heads")},
        "softmax M=100,000": replace(BILLION, head="softmax", components=1),
    }
    paired: dict[str, Case] = {}
    for name, case in ours.items():
        paired |= {name: case, f"{name} plain": replace(case, plain=True)}
    return {
        "products": replace(MOS, head="products"),
        "products d=400": replace(POINTWISE, head="products"),
        "products M=100,000": replace(BILLION, head="products", components=1),
        **paired,
        "mos M=100,000": BILLION,
    }


def _components(head: str) -> int:
    """Return the default K of a head of another package, 1 for a head without components."""
    setting = heads.parameters(head).get("components")
    return 1 if setting is None else int(setting.default)


def _comparable(cases: Mapping[str, Case]) -> list[dict[str, Case]]:
    """Return the cases in groups of equal contexts and vocabulary, without groups that hold only matrix products."""
    groups: dict[tuple[int, int], dict[str, Case]] = {}
    for name, case in cases.items():
        groups.setdefault((case.contexts, case.vocab), {})[name] = case
    return [group for group in groups.values() if len(group) > 1]


def _goals(rows: dict[str, dict[str, Any]]) -> list[Goal]:
    def of(name: str, key: str) -> float:
        return float(rows[name][key]) if name in rows else math.nan

    mos, softmax, large = "mos K=15", "softmax", "softmax M=100,000"
    return [
        ("MoS, K = 15: plain seconds / ours", ratio(rows, f"{mos} plain", mos), ">=", 1.8),
        ("MoS, K = 15: memory / plain", ratio(rows, mos, f"{mos} plain", "memory_bytes"), "<=", 1 / 6),
        ("MoS, K = 15: share of the matrix products' rate", of(mos, "share"), ">=", 0.8),
        ("MoS, K = 7, M = 100,000: GiB", of("mos M=100,000", "memory_bytes") / 2**30, "<=", 2.0),
        ("LMS-PLIF: seconds / Softmax", ratio(rows, "lms-plif", softmax), "<=", 1.5),
        ("Sigsoftmax: seconds / Softmax", ratio(rows, "sigsoftmax", softmax), "<=", 1.3),
        ("GSS: seconds / Softmax", ratio(rows, "gss", softmax), "<=", 1.3),
        ("Softmax: seconds / F.cross_entropy", ratio(rows, softmax, f"{softmax} plain"), "<=", 1.0),
        ("Softmax, M = 100,000: seconds / F.cross_entropy", ratio(rows, large, f"{large} plain"), "<=", 1.0),
        ("Softmax, M = 100,000: memory / plain", ratio(rows, large, f"{large} plain", "memory_bytes"), "<=", 1 / 4),
    ]


def _work(case: Case) -> Callable[[], dict[str, float]]:
    """Make a case's input, and return a function that runs its step and returns the loss."""
    torch.manual_seed(0)
    make = _products if case.head == "products" else _step
    make(replace(case, contexts=2, vocab=8))()  # the step's memory must not include what torch loads on first use
    step = make(case)
    return lambda: {"loss": float(step())}


def _step(case: Case) -> Callable[[], Tensor]:
    settings = {"components": case.components} if "components" in heads.parameters(case.head) else {}
    with torch.device(case.device):
        head = heads.build(case.head, hidden_size=case.size, vocab_size=case.vocab, **settings)
        hidden = torch.randn(case.contexts, case.size, requires_grad=True)
        targets = torch.randint(case.vocab, (case.contexts,))

    def step() -> Tensor:
        head.zero_grad()
        hidden.grad = None
        loss = plain_nll(head, hidden, targets) if case.plain else head.nll(hidden, targets)
        loss.backward()
        return loss.detach()

    return step


def _products(case: Case) -> Callable[[], Tensor]:
    """Return a function that computes only the three matrix products of a step, into existing buffers."""
    rows = case.contexts * case.components
    with torch.device(case.device):
        contexts, weight = torch.randn(rows, case.size), torch.randn(case.vocab, case.size)
        logits, back, down = torch.randn(rows, case.vocab), torch.empty_like(contexts), torch.empty_like(weight)

    def step() -> Tensor:
        torch.mm(contexts, weight.T, out=logits)
        torch.mm(logits, weight, out=back)
        torch.mm(logits.T, contexts, out=down)
        return down[0, 0]

    return step


def plain_nll(head: Head, hidden: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss by the formulas as the papers print them, in plain torch: N × K × M tensors and autograd.

    Args:
        head: any head.
        hidden: float, (N, hidden_size).
        targets: int64, (N,).

    Source: Yang et al. 2018, §2.4; Ganea et al. 2019, eq. 12 to 14. Only its logarithm has nothing added inside.
    """
    scores = head.scores(hidden)
    logits = _plain_logits(scores)
    if scores.log_prior is None:
        return F.cross_entropy(logits.squeeze(1), targets)
    probability = (scores.log_prior.exp().unsqueeze(2) * torch.softmax(logits, 2)).sum(1)
    return F.nll_loss(torch.log(probability), targets)


def _plain_logits(scores: Scores) -> Tensor:
    logits, *others = (F.linear(*factors) for factors in scores.factors)
    function = scores.function
    if isinstance(function, PLIF):
        slopes, width = function.slopes(), 2 * function.interval / function.knots
        at_knot = width * (torch.cumsum(slopes, 0) - slopes) - function.interval
        piece = ((logits.detach() + function.interval) / width).long().clamp(0, function.knots - 1)
        return at_knot[piece] + slopes[piece] * (logits - (piece.to(logits.dtype) * width - function.interval))
    if isinstance(function, MonotonicNetwork):
        units = torch.sigmoid(logits.unsqueeze(-1) * F.softplus(function.u) + function.b)
        return units @ F.softplus(function.v)
    return logits if function is None else function(logits, *others)
