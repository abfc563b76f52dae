"""Statistics of a model and its reference, against their definitions and against sixty digits."""

from __future__ import annotations

import itertools
import json
import math
import re
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import rel_entr, softmax
from scipy.stats import t as student
from torch import nn

from softmax_bottleneck import compare, heads, load
from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.measure import Comparison
from softmax_bottleneck.measure import pair as pairs
from softmax_bottleneck.measure.divergences import ByContext
from softmax_bottleneck.measure.standard_errors import block_starts, standard_error

Matrix = NDArray[np.float64]


def normalized(logits: Any) -> Matrix:
    logits = np.asarray(logits, float)
    return np.asarray(logits - np.logaddexp.reduce(logits, -1)[..., None])


def values(comparison: Comparison) -> dict[str, float | None]:
    return {name: each.value for name, each in comparison.statistics.items()}


def on_targets(P: Matrix, Q: Matrix, targets: Any, **options: Any) -> Comparison:
    """Compare two matrices as heads whose weights are the identity, so that the tokens that follow are known."""
    layers = [heads.Softmax.of(torch.from_numpy(np.ascontiguousarray(each.T))) for each in (P, Q)]
    return compare(*layers, hidden=torch.eye(len(P), dtype=torch.float64), targets=targets, **options)


def truth(P: Matrix, Q: Matrix, targets: Any) -> dict[str, float]:
    """Every statistic from its definition: divergences of SciPy, quantiles of NumPy, llama.cpp's sum term by term."""
    p, q, at = np.exp(P), np.exp(Q), (np.arange(len(P)), targets)
    kl, middle, change = rel_entr(p, q).sum(1), (p + q) / 2, (q - p)[at]
    alpha = np.minimum(p, q).sum(1).mean()
    tops = [np.argsort(-each, 1)[:, :5].tolist() for each in (P, Q)]
    rows = zip(P.tolist(), Q.tolist(), strict=True)
    cut = [math.fsum(math.exp(b) * (b - c) for b, c in zip(*row, strict=True) if b > -16) for row in rows]
    return {
        "kl": kl.mean(), "kl_max": kl.max(), "reverse_kl": rel_entr(q, p).sum(1).mean(), "kl_llama_cpp": np.mean(cut),
        "jsd": (rel_entr(p, middle) + rel_entr(q, middle)).sum(1).mean() / 2, "tv": 1 - alpha, "acceptance": alpha,
        "tokens_a_step": (1 - alpha**5) / (1 - alpha), "log_ratio": (P - Q)[at].mean(), "delta_p": change.mean(),
        "delta_p_rms": math.sqrt((change**2).mean()), "perplexity": math.exp(-Q[at].mean()),
        "same_top": np.mean([one[0] == other[0] for one, other in zip(*tops, strict=True)]),
        "top_5": np.mean([len({*one} & {*other}) / len(one) for one, other in zip(*tops, strict=True)]),
        **{f"kl_{share}": np.percentile(kl, share) for share in (50, 90, 95, 99, 99.9)},
        **{f"delta_p_{share}": np.percentile(change, share) for share in (1, 5, 50, 95, 99)},
    }  # fmt: skip


NEAR = normalized(3 * np.random.default_rng(0).standard_normal((200, 40)))
PAIRS: dict[str, tuple[Matrix, Matrix]] = {
    **{
        f"{p} {q}": tuple(np.log([[x * share, 1 - x * share] for share in (1, 0.99, 0.98)]) for x in (p, q))
        for p, q in ((0.9, 0.1), (1e-6, 0.3))
    },
    "near": (NEAR, normalized(NEAR + 0.3 * np.random.default_rng(1).standard_normal(NEAR.shape))),
    "far": tuple(normalized(8 * np.random.default_rng(seed).standard_normal((30, 20))) for seed in (2, 3)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_every_statistic_is_that_of_its_definition(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "CACHED", 40 * 7)  # seven rows at once
    P, Q = PAIRS[name]
    targets = np.random.default_rng(4).integers(P.shape[1], size=len(P))
    found, expected = on_targets(P, Q, targets), truth(P, Q, targets)
    assert {key: values(found)[key] for key in expected} == pytest.approx(expected, rel=1e-9, abs=1e-14)
    kl = rel_entr(np.exp(P), np.exp(Q)).sum(1)
    log_p, log_q = (each[range(len(P)), targets] for each in (P, Q))
    same_top, tv = (P.argmax(1) == Q.argmax(1)).astype(float), np.abs(np.exp(P) - np.exp(Q)).sum(1) / 2
    starts = block_starts([kl, -log_q, log_p - log_q, same_top, tv])
    for key, array in (("kl", kl), ("delta_p", np.exp(log_q) - np.exp(log_p)), ("log_ratio", log_p - log_q)):
        error = standard_error(array, starts)
        assert found.statistics[key].standard_error == pytest.approx(error, rel=1e-6, abs=1e-14)
    np.testing.assert_allclose(found.by_context["kl"], kl, rtol=1e-9)
    np.testing.assert_allclose(found.by_context["entropy"], -(np.exp(P) * P).sum(1))


@pytest.mark.parametrize("name", ["log_ratio", "same_top", "acceptance"])
def test_runs_that_one_statistic_alone_shows(name: str) -> None:
    """Runs of 50 contexts change it, and neither KL(P‖Q) nor the loss: its error is that of 40 independent runs."""
    rng, p = np.random.default_rng(0), np.array([0.3, 0.2, 0.5])
    runs, targets = rng.random(40) < 0.5, np.full(2000, 2)
    level = np.repeat(runs, 50)
    if name == "log_ratio":  # Q finds both tokens equally likely
        q, targets, change = np.array([[0.25, 0.25, 0.5]]), level.astype(int), math.log(0.3 / 0.2)
    elif name == "same_top":
        p, change = np.array([0.4001, 0.3999, 0.2]), 1.0
        q = np.where(level[:, None], [0.5, 0.3, 0.2], [0.3, 0.5, 0.2])
    else:  # on both sides of P
        x = brentq(lambda x: rel_entr(p, [x, 0.5 - x, 0.5]).sum() - rel_entr(p, [0.15, 0.35, 0.5]).sum(), 0.31, 0.49)
        q, change = np.where(level[:, None], [0.15, 0.35, 0.5], [x, 0.5 - x, 0.5]), 0.15 - (x - 0.3)
    Q = normalized(np.log(q) + 0.02 * rng.standard_normal((2000, 3)))
    error = change * runs.std(ddof=1) / math.sqrt(40)
    found = on_targets(np.tile(np.log(p), (2000, 1)), Q, targets).statistics[name]
    assert found.standard_error == pytest.approx(error, rel=0.5)


def test_an_infinite_divergence_does_not_make_contexts_independent() -> None:
    values = np.repeat(np.random.default_rng(0).random(40), 50)
    with_infinity = np.where(np.arange(2000) == 7, np.inf, values)
    np.testing.assert_array_equal(block_starts([with_infinity]), block_starts([values]))
    assert len(block_starts([with_infinity])) < 40


def test_like_llama_cpp() -> None:
    """Its KL takes the place of ours, and the error of the root mean square is its own."""
    P, Q = PAIRS["far"]
    targets = np.argmax(P, 1)
    found, expected = on_targets(P, Q, targets, like_llama_cpp=True), truth(P, Q, targets)
    assert values(found)["kl"] == pytest.approx(expected["kl_llama_cpp"], rel=1e-10)
    assert expected["kl_llama_cpp"] != pytest.approx(expected["kl"], rel=1e-9)
    squares = np.square((np.exp(Q) - np.exp(P))[range(30), targets])
    uncertainty = math.sqrt(((squares**2).mean() - squares.mean() ** 2) / 29) / (2 * math.sqrt(squares.mean()))
    assert found.statistics["delta_p_rms"].standard_error == pytest.approx(uncertainty)
    assert "KL leaves out tokens below e^-16 in P" in str(found)


def test_two_tokens_that_are_equally_likely_leave_the_likeliest_open() -> None:
    found = on_targets(np.log([[0.5, 0.5]] * 3), np.log([[0.2, 0.8]] * 3), [0, 0, 1])
    assert found.statistics["same_top"].roundoff == 1


@pytest.mark.parametrize("distance", [1.0, 1e-3, 1e-7, 1e-12])
def test_close_models_against_sixty_digits(distance: float) -> None:
    rng = np.random.default_rng(8)
    P = 12 * rng.standard_normal((5, 9))
    Q = P + distance * rng.standard_normal(P.shape)
    truth = dict.fromkeys(("kl", "reverse_kl", "jsd", "kl_llama_cpp"), Decimal(0))
    with localcontext(prec=60):
        for rows in zip(P, Q, strict=True):
            exps = [[Decimal(float(each)).exp() for each in row] for row in rows]
            for p, q in zip(*([each / sum(row) for each in row] for row in exps), strict=True):
                m, kl = (p + q) / 2, p * (p / q).ln() / 5
                truth["kl"] += kl
                truth["reverse_kl"] += q * (q / p).ln() / 5
                truth["jsd"] += (p * (p / m).ln() + q * (q / m).ln()) / 10
                truth["kl_llama_cpp"] += kl * (p.ln() > -16)
        found = compare(P, Q, kind="logits").statistics
        for name, value in truth.items():
            assert abs(Decimal(found[name].value) - value) <= found[name].roundoff, name
    assert found["kl"].roundoff < 1e-13 * distance + 1e-24


def test_the_error_of_a_quantile_is_that_of_its_order_statistics() -> None:
    """The standard deviation of the quantile q of uniform draws is √(q (1 − q)/n)."""
    draws = np.random.default_rng(1).random((300, 1000))
    found = [ByContext(each, np.full(1000, 1e-3)).quantile(0.9) for each in draws]
    assert np.std([each.value for each in found]) == pytest.approx(math.sqrt(0.09 / 1000), rel=0.15)
    assert np.mean([each.standard_error for each in found]) == pytest.approx(math.sqrt(0.09 / 1000), rel=0.1)
    assert found[0].roundoff == pytest.approx(1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rounding_changes_less_than_the_roundoff_says(dtype: str) -> None:
    rng = np.random.default_rng(2)
    P = 4 * rng.standard_normal((60, 50))
    Q = P + 0.2 * rng.standard_normal((60, 50))
    exact = compare(P, Q, kind="logits").statistics
    rounded = compare(P.astype(dtype), Q.astype(dtype), kind="logits").statistics
    for name, each in rounded.items():
        assert abs(each.value - exact[name].value) <= each.roundoff
        assert each.roundoff < 1 or name in ("same_top", "top_5")
    noisy = compare(*(normalized(each).astype("float16") for each in (P, Q))).difference
    assert (noisy.rank.low, noisy.rank.high, noisy.most) == (0, 49, 49)  # of 60 × 50
    assert rounded["kl"].roundoff < 300 * abs(rounded["kl"].value - exact["kl"].value)


@pytest.mark.parametrize("directions", [40, 150])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_rounding_before_normalization_hides_the_rank_of_a_difference(dtype: str, directions: int) -> None:
    rng = np.random.default_rng(4)
    logits = 3 * rng.standard_normal((150, directions)) @ rng.standard_normal((directions, 200)) / directions**0.5
    change = 0.05 * rng.standard_normal((150, 3)) @ rng.standard_normal((3, 200))
    single = (normalized(each.astype(dtype)).astype("float32") for each in (logits, logits + change))
    rank = compare(*single).difference.rank
    assert (rank.low, rank.high) == ((3, 3) if dtype == "float32" else (3, 150))


ROUNDINGS = {
    "bfloat16": lambda x: torch.from_numpy(x).bfloat16().double().numpy(),
    "float16": lambda x: x.astype("float16").astype(float),
    "decimals": lambda x: x.round(2),
    "none": lambda x: x,
}


@pytest.mark.parametrize("size", [1e-1, 3e-3, 3e-4, 1e-6])
@pytest.mark.parametrize("edits", [0, 2])
@pytest.mark.parametrize(
    ("rounding", "when"), [*itertools.product(list(ROUNDINGS)[:3], ("P", "P and Q")), ("none", "")]
)
def test_an_edit_under_a_coarse_rounding_leaves_the_rank_open(
    rounding: str, when: str, edits: int, size: float
) -> None:
    """The truth is the edit's rank, by algebra; what stands ten times above the noise of the rounding is seen."""
    rng = np.random.default_rng(0)
    H, W = rng.standard_normal((300, 8)), rng.standard_normal((270, 8))
    z, U = H @ W.T, size * rng.standard_normal((300, edits)) @ rng.standard_normal((edits, 270))
    round_to = ROUNDINGS[rounding]
    P, Q = round_to(z), round_to(z + U) if "Q" in when else z + U
    noise = np.linalg.norm(round_to(z) - z + (round_to(z + U) - z - U if "Q" in when else 0), 2)
    for pair in ((P, Q), tuple(map(normalized, (P, Q)))):
        found = compare(*pair, kind="logits", examples=0).difference.rank
        if np.array_equal(*pair):
            assert (found.value, found.determinate) == (0, True)
            continue
        seen = (np.linalg.svd(U, compute_uv=False) > 10 * noise).sum()
        assert min(seen, edits) <= found.low <= edits <= found.high
        assert found.determinate == (rounding == "none")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_two_equal_matrices_differ_by_nothing(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for d in (8, 200):
        logits = (rng.standard_normal((300, d)) @ rng.standard_normal((d, 92))).astype(dtype)
        found = compare(logits, logits.copy(), kind="logits", examples=0)
        assert str(found.difference.rank) == "0"
        assert found.statistics["kl"].value == 0
        assert r"$10^{-12}$ stands for less" in found.plot().get_xlabel()


def test_independent_errors_are_another_model_and_not_roundoff() -> None:
    """They are a sentence, and no part of the roundoff."""
    rng = np.random.default_rng(0)
    P = normalized(rng.standard_normal((200, 8)) @ rng.standard_normal((8, 150)))
    found = compare(P, normalized(P + 0.05 * rng.standard_normal(P.shape)))
    assert (found.statistics["same_top"].roundoff, found.statistics["kl"].roundoff < 1e-11) == (0, True)
    sentence = (
        r"the numbers of Q look rounded in steps of about 0\.\d+, or hold as much noise: "
        "the KL of the unrounded numbers may differ"
    )
    assert [bool(re.fullmatch(sentence, note)) for note in found.notes].count(True) == 1


def test_the_error_of_an_output_layer_is_not_taken_for_noise() -> None:
    rng = np.random.default_rng(5)
    hidden, weight = rng.standard_normal((150, 100)), rng.standard_normal((200, 100))
    step = np.abs(weight).max(1, keepdims=True) / 127
    single = (normalized(hidden @ W.T).astype("float32") for W in (weight, np.rint(weight / step) * step))
    rank = compare(*single).difference.rank
    assert (rank.low, rank.high) == (100, 100)


def test_a_verdict_says_what_roundoff_leaves_open() -> None:
    """What it says of two models whose logits round to the same numbers, or to other ones, holds before rounding."""
    rng = np.random.default_rng(0)
    P = 12 + 4 * rng.standard_normal((1000, 50))
    for size in (0.01, 0.05):
        Q = P + size * rng.standard_normal(P.shape)
        kl, same = rel_entr(softmax(P, 1), softmax(Q, 1)).sum(1).mean(), (P.argmax(1) == Q.argmax(1)).mean()
        rows = [torch.tensor(each).to(torch.bfloat16) for each in (P, Q)]
        found = compare(*rows, kind="logits", examples=0)
        kl_said, low, high = re.fullmatch(
            r"KL.* ≤ (.*) nats; same top token: (.*) to (.*) ± .* %", found.verdict
        ).groups()
        assert kl <= float(kl_said) < 1
        assert float(low) < 100 * same <= float(high) <= 100


def test_tokens_of_probability_zero() -> None:
    rng = np.random.default_rng(4)
    P, Q = (normalized(rng.standard_normal((9, 6))) for _ in range(2))
    both = [np.insert(each, 2, -np.inf, axis=1) for each in (P, Q)]
    masked, plain = compare(*both), compare(P, Q)
    assert values(masked) == pytest.approx(values(plain))
    assert masked.difference.rank.value == plain.difference.rank.value == 5
    infinite = compare(normalized(np.insert(P, 2, 0.0, axis=1)), both[1])
    assert infinite.statistics["kl"].value is None
    assert infinite.rows()[0] == ("verdict", "KL(P‖Q) ∞ nats; same top token: 0 ± 0 %")
    assert 0 < infinite.statistics["tv"].value < 1
    json.dumps(infinite.to_dict(), allow_nan=False)


def test_equal_models_without_targets() -> None:
    layer, hidden = nn.Linear(3, 5), torch.randn(4, 3)
    knows, same = (compare(layer, layer, hidden=hidden, targets=each) for each in ([0, 1, 2, 3], None))
    assert (same.difference.rank.value, same.difference.effective_rank, same.statistics["jsd"].value) == (0, 0, 0)
    left_out = knows.statistics.keys() - same.statistics.keys()
    assert left_out == {name for name in knows.statistics if re.search("perplexity|delta|log_ratio", name)}
    assert (same.nll, same.first_better) == (None, ())


def test_the_limit_of_a_perplexity_ratio_is_that_of_the_log_ratio() -> None:
    """Three contexts: the ratio is the exponential of a mean, whose interval is not symmetric."""
    P, targets = normalized(np.random.default_rng(0).standard_normal((3, 9))), [2, 4, 7]
    Q = P.copy()
    for row, (target, nats) in enumerate(zip(targets, (0.0, 0.1, 0.2), strict=True)):
        p = np.exp(P[row])
        p *= (1 - p[target] * math.exp(-nats)) / (1 - p[target])
        p[target] = math.exp(P[row, target] - nats)
        Q[row] = np.log(p)
    found = on_targets(P, Q, targets, max_ppl_ratio=1.4)
    end = math.exp(0.1 + student.ppf(0.975, 2) * 0.1 / math.sqrt(3))
    assert (found.limits[0].end, found.passed) == (pytest.approx(end), False)


def test_a_difference_that_is_roundoff_has_no_directions() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((90, 8)) @ rng.standard_normal((8, 60))
    exact = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    noisy = exact * (1 + 2e-8 * rng.standard_normal(exact.shape))
    found = compare(exact.astype(np.float32), noisy.astype(np.float32))
    rank = found.difference.rank
    assert (rank.low, rank.high, found.difference.effective_rank) == (0, 59, None)
    assert ("effective rank", "unknown") in found.rows()


def test_what_cannot_be_compared() -> None:
    P = normalized(np.zeros((4, 5)))
    with pytest.raises(SourceError, match=r"array has 4, array \(2\) has 3; .* the first of each: give contexts=3"):
        compare(P, P[:3])
    assert compare(P, P[:3], contexts=3).contexts == 3
    with pytest.raises(SourceError, match="array is a matrix of any kind: give log-probabilities or logits"):
        compare(P, P, kind="matrix")
    for arguments in ((P,), ([P],), ({"a": P}, P)):
        with pytest.raises(ConfigurationError, match="takes a reference and at least one model"):
            compare(*arguments)


def test_quantization_moves_every_direction_and_an_edited_head_few() -> None:
    """A monotone loss at 8, 6 and 4 bits, with W rounded to the absolute maximum of its rows."""
    rng = torch.Generator().manual_seed(6)
    W, hidden = torch.randn(90, 8, generator=rng), torch.randn(60, 8, generator=rng)
    edited = W + torch.randn(90, 2, generator=rng) @ torch.randn(2, 8, generator=rng) / 30
    models = {"W": W, **{f"{bits} bits": rounded(W, bits) for bits in (8, 6, 4)}, "edited": edited}
    found = compare({label: heads.Softmax.of(each) for label, each in models.items()}, hidden=hidden)
    assert [each.name for each in found] == [*models][1:]
    kl = [values(each)["kl"] for each in found]
    assert kl[0] < kl[1] / 4 < kl[2] / 16
    assert [each.difference.rank.value for each in found] == [8, 8, 8, 2]
    assert {each.difference.method for each in found} == {"factored"}
    alike = compare(*(normalized(hidden.double() @ each.double().T) for each in (W, models["4 bits"])))
    assert alike.difference.method != "factored"
    assert alike.difference.rank.value == 8
    assert alike.difference.effective_rank == found["4 bits"].difference.effective_rank
    assert found.to_frame()["statistics.kl"].tolist() == kl
    ax = found.plot()
    assert len(ax.lines) == 4
    for line, each in zip(ax.lines, found, strict=True):  # as many contexts lie below as the curve says
        x, y = line.get_xdata(), line.get_ydata()
        assert y[30] == pytest.approx(100 * np.mean(each.by_context["kl"] <= x[30]))


def rounded(W: torch.Tensor, bits: int) -> torch.Tensor:
    step = W.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (W / step).round() * step


def test_a_model_with_a_part_of_the_tokens_is_cut_and_does_not_pass() -> None:
    """Its KL divergence is that of what both have, whatever the others hold; the table says so."""
    reference = normalized(np.random.default_rng(0).normal(size=(40, 12)))
    part = normalized(reference[:, :9] + 0.1 * np.random.default_rng(1).normal(size=(40, 9)))
    found = compare({"whole": reference, "same": reference, "part": part}, max_kl=0.1, min_agreement=0.5)
    assert [each.passed for each in found] == [True, False]
    cut = compare(normalized(reference[:, :9]), part)
    assert values(found["part"]) == pytest.approx(values(cut))
    assert found["part"].difference.rank.value == cut.difference.rank.value
    held = f"{np.exp(reference[:, 9:]).sum(1).mean():.2g} of the probability of whole"
    sentence = f"part: cut to the first 9 tokens, which both have, and renormalized; the others hold {held}"
    assert any(each.startswith(sentence) for each in found.footnotes)
    assert "part: cut to the first 9 tokens" in repr(found)
    assert found["part"].limits[0].end is None
    W, hidden = torch.randn(12, 3), torch.randn(20, 3)
    layers = compare(heads.Softmax.of(W), heads.Softmax.of(W[:9]), hidden=hidden)
    assert (layers.difference.rank.value, layers.difference.method) == (0, "factored")
    assert "KL(P‖Q) ≤ " in layers.verdict


def test_a_loaded_comparison_is_not_drawn(tmp_path: Path) -> None:
    P = normalized(np.random.default_rng(0).normal(size=(9, 4)))
    compare(P, P[:, ::-1].copy()).save(tmp_path / "c.json")
    with pytest.raises(ConfigurationError, match="was loaded, and what is saved holds no numbers by context: compare"):
        load(tmp_path / "c.json").plot()
