"""``bottleneck bench heads``: each output layer's training step against its plain formulation."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import heads
from ..core import plugins
from ..core.progress import SILENT, Progress
from ..errors import ConfigurationError
from ..heads import Head
from ..heads.lms_net import MonotonicNetwork
from ..heads.plif import PLIF
from ..heads.scores import Scores
from .in_turn import RUNS, Cases, Goal, Timings, Work, in_turn, report

COMPONENTS = (5, 7, 10, 15)
"""K of table 13 of Yang et al. 2018, where training times are compared."""
PRODUCTS = "products"
"""In place of a head: the matrix products alone."""
MOS, POINTWISE, LARGE = (840, 280, 10_000), (1_400, 400, 10_000), (2_100, 280, 100_000)
"""N, d and M: the Penn Treebank models of Yang et al. 2018, with 12 texts of 70 tokens, and of Ganea et al. 2019, with
AWD-LSTM's 20 texts; contexts and vocabulary of the 1B Word model of Yang et al. 2018 (table 10), which has d = 900."""
ALONE = {
    "softmax": 1, "moc": 15, "sigsoftmax": 1, "gss": 1, "lms-plif": 1, "lms-net": 1, "mos-plif": 5, "doc": 5,
    "mixtape": 4,
}  # fmt: skip
"""K of the heads that are measured at one shape."""
CASES: dict[str, tuple[str, int, tuple[int, int, int]]] = {
    "products": (PRODUCTS, 15, MOS),
    "softmax d=280": ("softmax", 1, MOS),
    **{f"mos K={K}": ("mos", K, MOS) for K in COMPONENTS},
    "products d=400": (PRODUCTS, 1, POINTWISE),
    **{head: (head, K, POINTWISE) for head, K in ALONE.items()},
    "products M=100,000": (PRODUCTS, 1, LARGE),
    "softmax M=100,000": ("softmax", 1, LARGE),
    "mos M=100,000": ("mos", 7, LARGE),
}
"""Head, K and shape of each case. Beside each stands its plain formulation, but for `TOO_LARGE`."""
TOO_LARGE = "mos M=100,000"
"""The case whose plain formulation does not fit into memory."""
GOALS = (
    Goal("MoS, K = 15: plain seconds / ours", "mos K=15 plain", ">=", 1.8, "mos K=15"),
    Goal("MoS, K = 15: memory / plain", "mos K=15", "<=", 1 / 6, "mos K=15 plain", "memory_bytes"),
    Goal("MoS, K = 15: share of the matrix products' rate", "mos K=15", ">=", 0.8, key="share"),
    Goal("MoS, K = 7, M = 100,000: GiB", "mos M=100,000", "<=", 2.0, key="memory_bytes", unit=2**30),
    Goal("LMS-PLIF: seconds / Softmax", "lms-plif", "<=", 1.5, "softmax"),
    Goal("Sigsoftmax: seconds / Softmax", "sigsoftmax", "<=", 1.3, "softmax"),
    Goal("GSS: seconds / Softmax", "gss", "<=", 1.3, "softmax"),
    Goal("Softmax: seconds / F.cross_entropy", "softmax", "<=", 1.0, "softmax plain"),
    Goal("Softmax, M = 100,000: seconds / F.cross_entropy", "softmax M=100,000", "<=", 1.0, "softmax M=100,000 plain"),
    Goal("Softmax, M = 100,000: memory / plain", "softmax M=100,000", "<=", 1 / 4, "softmax M=100,000 plain",
         "memory_bytes"),
)  # fmt: skip


def bench_heads(
    *, only: Collection[str] = (), device: str = "cpu", shrink: int = 1, progress: Progress = SILENT
) -> dict[str, Any]:
    """Measure the time of every head's training step and of its plain formulation, each in its own process.

    Each case has its ``loss``, and ``gflops``: the floating-point operations of a step's three matrix products
    N·K × d × M, a lower bound for any exact step, over its time; ``share`` is their share of the rate that the matrix
    products have alone. ``slowdown`` is that of MoS over Softmax by K.

    Args:
        only: heads to measure beside the matrix products, by default all; `ConfigurationError` for one without a case.
        device: see `bench`, as all others.
        shrink: divides contexts and vocabulary.
        progress: where to report.
    """
    rows: Timings = {}
    for group in _groups(only, device, shrink):
        measured = in_turn(group, device=device, runs=RUNS if shrink == 1 else 1, progress=progress)
        for row in measured.values():
            row["gflops"] = floor(**row["case"]) / row["seconds"] / 1e9
        products = next(row["gflops"] for row in measured.values() if row["case"]["head"] == "products")
        rows |= {name: {**row, "share": row["gflops"] / products} for name, row in measured.items()}
    slowdown = {
        which: {str(K): rows[f"mos K={K}{end}"]["seconds"] / rows[f"softmax d=280{end}"]["seconds"] for K in COMPONENTS}
        for which, end in (("ours", ""), ("plain", " plain"))
        if not only or {"mos", "softmax"} <= {*only}
    }
    return report(rows, GOALS, device=device, shrink=shrink, slowdown=slowdown)


def _groups(only: Collection[str], device: str, shrink: int) -> list[Cases]:
    """Return the cases of each shape, without shapes of which only the matrix products are left."""
    others = {head: (head, _default_components(head), POINTWISE) for head in plugins.names("heads")}
    table = CASES | others
    timed = {head for head, _, _ in table.values()} - {PRODUCTS}
    if unknown := sorted({*only} - timed):
        raise ConfigurationError(f"no head {unknown[0]!r} is timed; those timed are {', '.join(sorted(timed))}")
    groups: dict[tuple[int, int, int], dict[str, Any]] = {}
    for name, (head, K, shape) in table.items():
        if only and head not in {PRODUCTS, *only}:
            continue
        N, d, M = shape
        sizes = {"contexts": max(1, N // shrink), "size": d, "vocab": max(2, M // shrink)}
        for end in ("",) if head == PRODUCTS or name == TOO_LARGE else ("", " plain"):
            case = partial(_work, head=head, **sizes, components=K, plain=bool(end), device=device)
            groups.setdefault(shape, {})[name + end] = case
    return [group for group in groups.values() if len(group) > 1]


def _default_components(head: str) -> int:
    """Return a head's default K, 1 for a head without components."""
    setting = heads.parameters(head).get("components")
    return 1 if setting is None or not isinstance(setting.default, int) else setting.default


def floor(*, head: str, contexts: int, size: int, vocab: int, components: int, **_: Any) -> float:
    """Return the floating-point operations of a step's matrix products; MoC mixes its K contexts before them."""
    return 6.0 * contexts * (1 if head == "moc" else components) * size * vocab


def _work(*, contexts: int, vocab: int, **case: Any) -> Work:
    """Make a case's input, and return a function that runs its forward and backward pass in float32."""
    torch.manual_seed(0)
    make = _products if case["head"] == PRODUCTS else _step
    make(contexts=2, vocab=8, **case)()  # the step's memory must not include what torch loads on first use
    step = make(contexts=contexts, vocab=vocab, **case)
    return lambda: {"loss": float(step())}


def _step(
    *, head: str, contexts: int, size: int, vocab: int, components: int, plain: bool, device: str
) -> Callable[[], Tensor]:
    settings = {} if components == _default_components(head) else {"components": components}
    with torch.device(device):
        layer = heads.build(head, hidden_size=size, vocab_size=vocab, **settings)
        hidden = torch.randn(contexts, size, requires_grad=True)
        targets = torch.randint(vocab, (contexts,))

    def step() -> Tensor:
        layer.zero_grad()
        hidden.grad = None
        loss = plain_nll(layer, hidden, targets) if plain else layer.nll(hidden, targets)
        loss.backward()
        return loss.detach()

    return step


def _products(*, contexts: int, size: int, vocab: int, components: int, device: str, **_: Any) -> Callable[[], Tensor]:
    """Return a function that computes only the three matrix products of a step, into existing buffers."""
    with torch.device(device):
        vectors, weight = torch.randn(contexts * components, size), torch.randn(vocab, size)
        logits = torch.randn(contexts * components, vocab)
        back, down = torch.empty_like(vectors), torch.empty_like(weight)

    def step() -> Tensor:
        torch.mm(vectors, weight.T, out=logits)
        torch.mm(logits, weight, out=back)
        torch.mm(logits.T, vectors, out=down)
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
