"""What reduced output layers lose: against NumPy's SVD of the whole T × M matrix of logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from safetensors.numpy import load_file
from scipy.special import log_softmax

import softmax_bottleneck as sb
from softmax_bottleneck.errors import BottleneckError, OutputError
from softmax_bottleneck.measure import needed, trained_heads
from softmax_bottleneck.measure.reduced_layers import Reduced

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
    assert "the contexts have 3 of 6 dimensions: more, or other, text may have the rest" in str(report)
    (_, own) = (line for line in str(sb.need(layer, **few, ranks=[1])).splitlines() if "keep 99 %" in line)
    assert "between 2 and 3 of 6 dimensions" in own  # of which three contexts have three
    repeated = sb.need(
        layer, **{name: np.tile(values[:3], (20,) + (1,) * (values.ndim - 1)) for name, values in given.items()}
    )
    assert (repeated.fitted, repeated.directions) == (30, 3)
    assert "the contexts have" not in str(sb.need(layer, **given))


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
    lines = [line.get_xydata() for line in axes[0].lines]
    assert [line[:, 0].tolist() for line in lines[:2]] == [[1, 2, 4, 5, 6]] * 2
    assert [line[-1, 1] for line in lines[:2]] == pytest.approx([1, 1])
    assert (len(axes), lines[2][0, 0]) == (2, d)
    plt.close("all")


def test_the_number_of_dimensions_is_refined() -> None:
    """The number that every r one by one gives, from fewer of them; given values of r leave it open."""
    rng = np.random.default_rng(1)
    hidden = rng.standard_normal((400, 40)) * np.arange(1, 41) ** -1.5
    layer = torch.nn.Linear(40, 90, dtype=torch.float64)
    layer.weight.data = torch.from_numpy(rng.standard_normal((90, 40)))
    given = {"hidden": torch.from_numpy(hidden), "targets": rng.integers(0, 90, 400)}
    every, some, few = (sb.need(layer, **given, ranks=ranks) for ranks in (range(1, 41), None, [2, 30]))
    for fit in ("other_text", "same_text"):
        assert some.needed(fit) == every.needed(fit)
        kept, perplexity = every.needed(fit)
        assert f"{kept} of 40 dimensions keep 99 % of the distribution (1 − TV), and {perplexity} a perpl" in str(some)
    assert 2 < every.needed()[0] < 30
    assert len(some.other_text) < 25
    assert str(few).strip().startswith("verdict  between 3 and 30 of 40 dimensions keep")


def check_table(text: str, report: Any) -> None:
    """The printed table is aligned and has the numbers of the report."""
    lines = text.splitlines()
    start, stop = (next(at for at, line in enumerate(lines) if word in line.split()[:1]) for word in ("one", "next"))
    names, columns, *rows = lines[start:stop]
    assert names.split() == ["one", "head", "trained"]
    assert columns.split() == ["r", *["KL", "perplexity", "1", "−", "TV"] * 2]
    assert [int(row.split()[0]) for row in rows] == [each.dimensions for each in report.other_text]
    assert len({len(line) for line in (names, columns, *rows[:-1])}) == 1
    assert max(map(len, rows)) <= 80
    point = report.other_text[1]
    found = [float(each) for each in rows[1].split()[1:4]]
    assert found == pytest.approx([point.kl, point.perplexity, point.acceptance], rel=5e-3)


def skewed() -> tuple[Any, dict[str, Any]]:
    """Return a layer whose largest direction moves only tokens that are never likely, and its hidden states."""
    rng = np.random.default_rng(2)
    head = sb.heads.Softmax(3, 40)
    weight = rng.standard_normal((40, 3))
    weight[:, 0], weight[20:] = 0, [6, 0, 0] * rng.standard_normal((20, 1))
    bias = np.where(np.arange(40) < 20, 0.0, -60.0)
    head.weight.data, head.bias.data = (torch.from_numpy(each).float() for each in (weight, bias))
    return head, {
        "hidden": torch.from_numpy(rng.standard_normal((1200, 3))).float(),
        "targets": rng.integers(0, 20, 1200),
    }


def test_a_trained_layer_keeps_what_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Frobenius keeps the largest direction, and KL the two that tokens depend on; the written layer is that layer."""
    monkeypatch.setattr(trained_heads, "EPOCHS", 40)
    head, given = skewed()
    report = sb.need(head, **given, ranks=[1, 2], train=True, save=tmp_path)
    truncated, trained = report.other_text[1], report.trained[1]
    assert truncated.kl > 0.1
    assert trained.kl < 0.02 * truncated.kl
    assert trained.kl == pytest.approx(np.mean(trained.kl_of_seeds))
    assert len(set(trained.kl_of_seeds)) == 3
    assert trained.agreement == 1 > truncated.agreement
    check_table(str(report), report)
    np.save(tmp_path / "h.npy", given["hidden"][600:].numpy())
    file = f"{tmp_path}/rank-2.safetensors"
    found = sb.open(f"{tmp_path}/h.npy", head=f"{file}:weight", bias=f"{file}:bias")
    kl = sb.compare(sb.open(head, hidden=given["hidden"][600:]), found).statistics["kl"].value
    assert min(abs(kl - each) for each in trained.kl_of_seeds) < 1e-5
    arrays = load_file(file)
    np.testing.assert_allclose(arrays["up"] @ arrays["down"], arrays["weight"], atol=1e-4)
    assert arrays["up"].shape == (40, 2)
    report.save(tmp_path / "r.json")
    assert sb.load(tmp_path / "r.json") == report
    axes: Any = report.plot().figure.axes
    assert axes[1].lines[2].get_xdata().tolist() == [1, 2]
    plt.close("all")


def test_training_that_cannot_help_gives_the_reduced_layer() -> None:
    """A layer of rank 2 has nothing to gain at r = 2."""
    layer, given = model(2)
    report = sb.need(layer, **given, ranks=[2], train=True)
    assert report.trained[0].rate == 0
    assert report.trained[0].kl == pytest.approx(report.other_text[0].kl, abs=1e-12)


@pytest.mark.parametrize("name", ["scale", "soft cap"])
@pytest.mark.usefixtures("repeatable")
def test_a_written_layer_has_the_scale_and_the_cap_of_the_model(name: str, tmp_path: Path) -> None:
    head: Any = HEADS[name]()
    with torch.no_grad():
        head.weight.normal_().add_(1)
    hidden = torch.randn(200, d)
    reports = [sb.need(head, hidden=hidden, ranks=[3], train=True, save=tmp_path) for _ in range(2)]
    assert reports[0].trained[0].kl_of_seeds == reports[1].trained[0].kl_of_seeds
    np.save(tmp_path / "h.npy", hidden[100:].numpy())
    file = f"{tmp_path}/rank-3.safetensors"
    bias = {} if head.bias is None else {"bias": f"{file}:bias"}
    found = sb.open(f"{tmp_path}/h.npy", head=f"{file}:weight", scale=head.scale, softcap=head.soft_cap, **bias)
    kl = sb.compare(sb.open(head, hidden=hidden[100:]), found).statistics["kl"].value
    assert min(abs(kl - each) for each in reports[0].trained[0].kl_of_seeds) < 1e-5


def test_what_is_refused() -> None:
    layer, given = model()
    seven = {"hidden": given["hidden"][:7], "train": True}
    masking, _ = model(bias=True)
    loud, _ = model()
    loud.weight.data *= 1e4
    masking.bias.data[given["targets"][-1]] = -torch.inf
    for source, options, sentence in (
        (sb.heads.MoS(d, M, components=2), {"hidden": torch.randn(9, d)}, "one set of logits: give a model"),
        (np.zeros((4, 3)), {"kind": "logits"}, "one set of logits: give a model"),
        (layer, {"hidden": given["hidden"][:1]}, "has 1 contexts, and this needs 2"),
        (layer, {**given, "ranks": [0]}, "ranks must be at least 1"),
        (layer, {**given, "ranks": [d + 1]}, f"ranks must be at most {d}"),
        (layer, {**given, "save": "x"}, "save goes with train"),
        (layer, {**given, "train": True, "ranks": [d]}, f"train takes ranks below {d}, the model's own"),
        (loud, given, "whose exponential is beyond every number"),
        (masking, given, "probability 0: the loss is infinite"),
        (layer, seven, "has 7 contexts, and this needs 8 or more"),
    ):
        with pytest.raises(BottleneckError, match=sentence):
            sb.need(source, **options)


def test_a_folder_of_other_files_is_not_written(tmp_path: Path) -> None:
    """Layers that were trained before are replaced, another model's file and the source's own are not."""
    hidden = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    layer = torch.nn.Linear(6, 30, bias=False)
    states = tmp_path / "states"
    sb.dump(layer, states, states=True, hidden=hidden, targets=torch.zeros(40, dtype=torch.long))
    (tmp_path / "rank-2.safetensors").write_text("another")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for folder, why in ((tmp_path, "another file is there"), (states / "hidden", "it is part of what is read")):
        with pytest.raises(OutputError, match=why):
            sb.need(states, ranks=[2], train=True, save=folder)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    for _ in range(2):
        sb.need(states, ranks=[2], train=True, save=tmp_path / "drafts")
    assert [each.name for each in (tmp_path / "drafts").iterdir()] == ["rank-2.safetensors"]


@pytest.mark.parametrize(
    ("acceptance", "shown"),
    [(0.98951, "0.989"), (0.98999, "0.989"), (0.99, "0.990"), (0.9884, "0.988"), (1 - 1e-15, "1.000")],
)
def test_what_is_too_little_is_not_shown_as_enough(acceptance: float, shown: str) -> None:
    """By an acceptance that is rounded up to the 0.99 of the verdict."""
    assert needed._numbers(Reduced(3, 0.1, None, 1.0, acceptance)).split() == ["0.1", shown]
