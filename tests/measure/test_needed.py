"""What reduced output layers lose: against NumPy's SVD of the whole T × M matrix of logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from scipy.special import log_softmax

import softmax_bottleneck as sb
from softmax_bottleneck.errors import BottleneckError

T, M, d = 120, 60, 6
HALF = T // 2


def model(
    rank: int = d, *, bias: bool = False, seed: int = 0, decades: float = 0, rotated: bool = False
) -> tuple[torch.nn.Linear, dict[str, Any]]:
    """Return an output layer in float64 with W of a given rank, and hidden states of unequal directions.

    Sizes of the features that span decades in H, and as many in W, leave the logits as they are.
    """
    rng = np.random.default_rng(seed)
    layer = torch.nn.Linear(d, M, bias=bias, dtype=torch.float64)
    weight = rng.standard_normal((M, rank)) @ rng.standard_normal((rank, d)) + 1
    hidden = (rng.standard_normal((T, d)) + 0.5) * np.arange(1, d + 1) ** -0.8
    scale, turn = np.logspace(0, -decades, d), np.linalg.qr(rng.standard_normal((d, d)))[0] if rotated else np.eye(d)
    targets = rng.integers(0, M, T)
    layer.weight.data, hidden = torch.from_numpy(weight / scale @ turn), hidden * scale @ turn
    return layer, {"hidden": torch.from_numpy(hidden), "targets": targets}


def distances(logits: Any, exact: Any, targets: Any) -> list[float]:
    """Return KL, perplexity, agreement and 1 − TV of two matrices of logits."""
    log_q, log_p = log_softmax(logits, 1), log_softmax(exact, 1)
    p, q = np.exp(log_p), np.exp(log_q)
    perplexity = np.exp(-log_q[np.arange(len(q)), targets].mean())
    agreement = (p.argmax(1) == q.argmax(1)).mean()
    return [(p * (log_p - log_q)).sum(1).mean(), perplexity, agreement, 1 - abs(p - q).sum(1).mean() / 2]


@pytest.mark.parametrize(("decades", "rotated"), [(0, False), (7, False), (12, False), (7, True)])
def test_both_fits_are_those_of_the_whole_matrix(decades: float, rotated: bool) -> None:
    layer, given = model(decades=decades, rotated=rotated)
    report = sb.need(layer, **given, ranks=[1, 2, 3, 5])
    W, H = layer.weight.detach().numpy(), given["hidden"].numpy()
    logits = H @ (W - W.mean(0)).T
    first, second, targets = logits[:HALF], logits[HALF:], given["targets"][HALF:]
    for fit, fitted, contexts in (("same_text", second, H[HALF:]), ("other_text", first, H[:HALF])):
        U, sigma, V = np.linalg.svd(fitted, full_matrices=False)
        for point in getattr(report, fit):
            r = point.dimensions
            nearest = U[:, :r] * sigma[:r] @ V[:r]
            size = np.linalg.norm(contexts, axis=0)
            head = np.linalg.lstsq(contexts / size, nearest, rcond=None)[0]  # (d, M): one matrix, these logits
            expected = distances(H[HALF:] / size @ head, second, targets)
            found = [point.kl, point.perplexity, point.agreement, point.acceptance]
            np.testing.assert_allclose(found, expected, rtol=1e-6 if rotated else 1e-8, atol=1e-12)
    assert report.perplexity == pytest.approx(distances(second, second, targets)[1])
    assert [each.dimensions for each in report.other_text] == [1, 2, 3, 5, d]


@pytest.mark.parametrize("rank", [2, 4])
def test_a_layer_of_known_rank_ends_there(rank: int) -> None:
    """The mean row, here all ones, costs no dimension: it changes no probability."""
    layer, given = model(rank)
    report = sb.need(layer, **given, ranks=range(1, d + 1))
    for curve in (report.same_text, report.other_text):
        assert all(each.kl > 1e-4 for each in curve[: rank - 1])
        assert all(each.kl < 1e-12 and each.acceptance > 1 - 1e-6 for each in curve[rank - 1 :])
    assert report.needed() == report.needed("same_text")
    assert report.needed()[0] == rank
    assert sb.need(layer, hidden=torch.zeros(4, d)).needed()[0] == 1


def test_a_text_of_few_contexts_spans_little_and_the_model_needs_more() -> None:
    layer, given = model()
    few = {name: values[:6] for name, values in given.items()}
    report = sb.need(layer, **few, ranks=range(1, d + 1))
    assert report.same_text[2].kl < 1e-12  # three contexts
    assert report.other_text[2].kl > 1e-3
    assert report.other_text[-1].kl < 1e-12


HEADS = {
    "bias": lambda: sb.heads.Softmax(d, M),
    "scale": lambda: sb.heads.Softmax(d, M, scale=3.0),
    "soft cap": lambda: sb.heads.Softmax(d, M, soft_cap=0.5, bias=False),
    "moc": lambda: sb.heads.MoC(d + 1, M, embedding_size=d, components=2),
    "sigsoftmax": lambda: sb.heads.Sigsoftmax(d, M),
}


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize("name", HEADS)
def test_all_dimensions_are_the_model_itself(name: str) -> None:
    """In float32 up to its roundoff, for every head with one set of logits; a masked token stays at probability 0."""
    head: Any = HEADS[name]()
    with torch.no_grad():
        head.weight.normal_().add_(1)
        if head.bias is not None:
            head.bias.normal_()
            head.bias[3] = -torch.inf
    targets = torch.randint(4, M, (T,))
    report = sb.need(head, hidden=torch.randn(T, head.hidden_size), targets=targets)
    for curve in (report.same_text, report.other_text):
        last = curve[-1]
        assert last.dimensions == d
        assert last.kl < 1e-6
        assert 1 - 1e-5 < last.acceptance <= 1
        assert last.perplexity == pytest.approx(report.perplexity, rel=1e-5)
        assert curve[0].kl > 100 * last.kl


def test_without_targets_and_as_a_figure() -> None:
    layer, given = model()
    report = sb.need(layer, hidden=given["hidden"])
    assert report.perplexity is report.other_text[0].perplexity is report.needed()[1] is None
    axes: Any = sb.need(layer, **given).plot().figure.axes
    assert len(axes) == 2
    for line in axes[0].lines[:2]:
        assert line.get_xdata().tolist() == [1, 2, 4, 6]
        assert line.get_ydata()[-1] == pytest.approx(1)
    assert axes[0].lines[2].get_xdata()[0] == d
    plt.close("all")


def test_what_is_refused() -> None:
    layer, given = model()
    for source, options, sentence in (
        (sb.heads.MoS(d, M, components=2), {"hidden": torch.randn(9, d)}, "one set of logits: give a model"),
        (np.zeros((4, 3)), {"kind": "logits"}, "one set of logits: give a model"),
        (layer, {"hidden": given["hidden"][:1]}, "has one context, and both halves need some"),
        (layer, {**given, "ranks": [0]}, "ranks must be at least 1"),
        (layer, {**given, "ranks": [d + 1]}, f"ranks must be at most {d}"),
    ):
        with pytest.raises(BottleneckError, match=sentence):
            sb.need(source, **options)
